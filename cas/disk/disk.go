// Package disk is the seam between the store and the operating system's files: as much of a filesystem as the
// store uses and no more. OS is the real one; Mem is a twin in memory that can fail any operation and can
// crash.
//
// What the store may rely on, and what Mem therefore gives and no more:
//
//   - a write is durable once Sync on its file has returned nil; before that a crash may keep it, lose it, or
//     keep a part of it, whatever became of writes before and after it;
//   - a Sync that failed says nothing about what was written before it, and a later Sync that succeeds does
//     not make up for it (Linux marks the pages clean); reads still find it, in this process and in those
//     that come after it, until Forget, or until the kernel drops the pages;
//   - the name of a file that was created, renamed or removed is durable once SyncDir on its directory has
//     returned nil, and not by Sync on the file;
//   - Rename replaces atomically.
package disk

import (
	"io"
	"os"
)

// BlockSize is the unit, in bytes, in which a disk gives room out and takes it back, as far as the store
// reckons with it. A hole that holds no whole block frees nothing.
const BlockSize = 4096

// FS is a filesystem. Names are paths as package os takes them. Errors are those of package os: errors.Is
// with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC, syscall.EIO works on every implementation.
type FS interface {
	// OpenFile is os.OpenFile; the file is closed on exec.
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	Rename(oldname, newname string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	MkdirAll(name string, perm os.FileMode) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(name string) ([]string, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// File is an open file. All methods but Close may be called by several goroutines at once.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	// PunchHole gives the blocks of [off, off+n) back; that range then reads as zeros and the size stays.
	PunchHole(off, n int64) error
	// Allocated is how many bytes the file takes on the disk, which is less than Size where it has holes.
	Allocated() (int64, error)
	// ReadPast is ReadAt past the page cache, where the host can and unless all of it is there. off and
	// len(p) are multiples of BlockSize, and p begins at one. The file may end before the last of them; the
	// bytes before were read.
	ReadPast(p []byte, off int64) (int, error)
	// Forget drops what the page cache has of the bytes from off on, and a little before: a Sync that failed
	// leaves bytes there that the disk does not have, also where another process was told. Reads come from
	// the disk then. The caller has called Sync, and nobody writes meanwhile.
	Forget(off int64) error
	// WillRead says that [off, off+n) is going to be read soon. It waits for nothing and promises nothing.
	WillRead(off, n int64)
}
