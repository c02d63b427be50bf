package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ReadOnly is FS without a way to change anything on it, times of access included where the system lets them
// be. What would is EROFS; making durable does nothing, for there is nothing to be made durable.
type ReadOnly struct{ FS FS }

// OpenFile opens a file for reading.
func (r ReadOnly) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND) != 0 {
		return nil, refuse("open", name)
	}
	f, err := r.FS.OpenFile(name, flag|syscall.O_NOATIME, perm)
	if errors.Is(err, syscall.EPERM) { // another user's file
		f, err = r.FS.OpenFile(name, flag, perm)
	}
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f, name}, nil
}

func (ReadOnly) Rename(oldname, _ string) error { return refuse("rename", oldname) }

func (ReadOnly) Remove(name string) error { return refuse("remove", name) }

func (ReadOnly) MkdirAll(name string, _ os.FileMode) error { return refuse("mkdir", name) }

func (r ReadOnly) ReadDir(name string) ([]string, error) { return r.FS.ReadDir(name) }

func (ReadOnly) SyncDir(string) error { return nil }

type readOnlyFile struct {
	File
	name string
}

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, refuse("write", f.name) }
func (f readOnlyFile) Truncate(int64) error               { return refuse("truncate", f.name) }
func (f readOnlyFile) PunchHole(_, _ int64) error         { return refuse("fallocate", f.name) }
func (readOnlyFile) Sync() error                          { return nil }

func refuse(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: syscall.EROFS}
}
