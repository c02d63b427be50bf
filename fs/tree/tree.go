// Package tree is the store's folder: the names and the raw bytes, both left to the host's filesystem.
//
//	STORE/
//	  format              what this is, written last when a store is made (see Format)
//	  lock                flock, and who holds it (see Lock)
//	  control.sock        while a daemon runs
//	  tree/…              the mount's names: directories, symlinks, special files as they are, regular files as stubs
//	  content/xx/ID       raw bytes of resident files; xx is the first byte of the ID
//	  content/xx/ID.part  a raw copy that is being made; removed at the next start
//	  segments/*.seg      everything packed (package ckptfs/cas/segment)
//	  index.db            derived, may be deleted (package ckptfs/index)
//	  lost+found/         what recovery could not place
//
// # Stubs
//
// A regular file in tree/ is a stub: it has the right name, mode, owner, times, links, inode number and (while nobody
// writes the file) size, and no blocks. What else is to be known lies in one extended attribute, user.ckptfs, so that
// it changes in one step:
//
//	offset size
//	     0    1  version, 1
//	     1    1  flags: 1 packed, 2 view hidden
//	     2    2  zero
//	     4    4  CRC-32C of the other 60 bytes, little-endian
//	     8   16  id: names content/xx/ID
//	    24   32  manifest's hash if packed, else zero
//	    56    8  size in bytes of the safetensors view of a packed file, little-endian; 0: it has none
//
// 64 bytes fit into the free part of a 256-byte ext4 inode beside the attribute's name, so that reading a record costs
// no block.
//
// # Which copy is true
//
//	flags.packed  content/ID
//	     no        exists     content/ID is the file
//	     no        missing    the file is empty if the stub's size is 0, else damaged
//	     yes       missing    the manifest is the file
//	     yes       exists     the manifest is the file, content/ID is a cache of it
//
// A cache is complete once it has its name (it is renamed into place) but not durable. So after an unclean end it is
// believed only within the same boot of the host; after another boot every content/ID of a packed stub is dropped, and the
// manifest speaks. A clean end syncs the whole filesystem before it says so. The order that makes this safe:
//
//   - a packed file is opened for writing: content/ID is made complete and synced, its directory is synced, then the
//     record loses its manifest, then the writer gets the file;
//   - a file is packed: segment synced, index committed, then the record gets the manifest;
//   - a cache is dropped: the stub is synced, then content/ID is unlinked. It is never truncated: somebody may map it.
//
// A stub without the attribute and of size 0 is a file whose creation was cut short: an empty file.
package tree

import "golang.org/x/sys/unix"

// XattrName is the attribute that makes a regular file a stub.
const XattrName = "user.ckptfs"

// Names in the store's folder.
const (
	FormatFile  = "format"
	LockFile    = "lock"
	SocketFile  = "control.sock"
	TreeDir     = "tree"
	ContentDir  = "content"
	SegmentsDir = "segments"
	IndexFile   = "index.db"
	LostFound   = "lost+found"
	LogFile     = "log"
)

// BootID names the running boot of this host; page caches do not outlive it.
func BootID() string {
	var buf [64]byte
	fd, err := unix.Open("/proc/sys/kernel/random/boot_id", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf[:])
	if err != nil || n < 36 {
		return ""
	}
	return string(buf[:36])
}
