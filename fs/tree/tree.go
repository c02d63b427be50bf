// Package tree is the store's folder: the names and the bytes of files, both left to the host's filesystem.
//
//	STORE/
//	  format              what this is, written last when a store is made (see Format)
//	  lock                flock, and who holds it (see Lock)
//	  control.sock        while a daemon runs
//	  log                 of the daemons, unless --log-file names another file
//	  writing             which files have writers (see Writing)
//	  moving              while a folder moves in or out (package ckptfs/fs/inplace)
//	  arriving/           while a folder is copied in from another disk: what is there of it so far
//	  tree/…              the mount's names: directories, symlinks, special and regular files, each as it is
//	  segments/*.seg      everything packed (package ckptfs/cas/segment)
//	  index.db            derived, may be deleted (package ckptfs/index)
//	  catalogue           derived, may be deleted (package ckptfs/index/prefix)
//	  remote…             of the remote that the store was joined to, if any (package ckptfs/fs/share)
//	  reserve             room that a start on a full disk needs; may be missing
//	  lost+found/         what repairs could not place
//
// # Files
//
// A regular file in tree/ is the file that the mount shows: its name, mode, owner, links, inode number and
// size are the host's. As long as it was never packed it is a plain file, with its bytes and times, and at
// most a checksum tells it from any other. What the store knows of a file lies in one extended attribute,
// user.ckptfs, the record, so that it changes in one step. Numbers are little-endian:
//
//	offset size
//	     0    1  version, 2
//	     1    1  flags, below
//	     2    2  zero
//	     4    4  CRC-32C of the other 60 bytes
//	     8    8  modification time, signed nanoseconds since 1970, if packed, else zero
//	    16    8  change time likewise; 0: the inode's own
//	    24   32  manifest's hash if packed, else zero
//	    56    8  size in bytes of the safetensors view of a packed file; 0: it has none
//
//	flag   1  packed: the segments hold the file, by the manifest
//	       2  view hidden: the name of the file's view was unlinked
//	       4  hollow: the file was evicted; only with packed
//	       8  emptying: the file is empty, and about to become a plain file; not with packed
//	      16  literal: a plain file whose first bytes look like those of a hollow one
//	      32  remote: a remote has what the segments may not have; only with packed
//	      64  summed: a plain file with a checksum; not with packed, emptying or lost
//	     128  lost: the disk did not take all that was written to the file; not with emptying
//
// Of a summed file the same bytes hold:
//
//	 8    8  the inode's modification time when the checksum was made
//	16    8  change time that programs see, since the record moved the inode's
//	24   32  BLAKE3 of the file's bytes
//	56    4  their number
//	60    4  the store's epoch, from the lock file: a new one is drawn at each start that finds that the host
//	         went down, or the filesystem was mounted again, with the store open
//
// A program that does not know a flag refuses the file.
//
// 64 bytes fit into the free part of a 256-byte ext4 inode beside the attribute's name, so that reading a
// record costs no block.
//
// # Which copy is true
//
//	record              the file is
//	none                the local bytes: those of the file in tree/
//	literal, hidden     the local bytes
//	lost                as without this flag; some of the bytes may be zeros or older ones
//	summed              the local bytes
//	packed              the manifest; the local bytes are a copy of it, and read as long as they can be
//	                    believed: the file is resident
//	packed, hollow      the manifest; the local bytes are a header and holes, or anything while the file is
//	                    hydrated
//	remote              as without this flag; what the segments lack of the manifest's records a remote has
//	emptying            empty, whatever the local bytes
//
// The times of a packed file are the record's, since the host moves the inode's when it is hydrated or
// evicted, and at each change of the record. Its size is the inode's, which no transition changes.
//
// A local copy is complete, but not always durable. After an unclean end it is believed only within the same
// boot of the host and the same mount of its filesystem; after another boot or mount every packed file is
// made hollow, with the manifest's size, and the manifest speaks. A clean end syncs the whole filesystem
// before it says so.
//
// The order of writes makes each transition safe under kill -9, at any moment, and under power cuts, since
// the host's journal keeps the order of what is done to one inode. Nothing but a program's write changes
// bytes while no record is there:
//
//   - packed: segments synced, index committed, then the record;
//   - evicted: no program has the file open or mapped, which an exclusive lease makes sure of; the manifest
//     and its chunk lists are read and every chunk is found in the index, else the file becomes plain; the
//     flag hollow, then the blocks go, then the header is written, then the inode's modification time is set
//     to the record's;
//   - hydrated: a hole, the bytes, which are synced, then the inode's modification time, then the flag hollow
//     goes;
//   - opened for writing: hydrated, unless the local copy is known to be durable, the bytes are synced, the
//     inode's modification time, then the record goes and that is synced, since fdatasync would not see to
//     it, then the writer gets the file; if a sync fails, the record comes back, and says hollow;
//   - truncated to nothing: a record that says emptying replaces the other, the file is truncated, then the
//     record goes.
//
// # What the disk does not take
//
// A write may fail after write(2) has succeeded: a thin volume, a quota or a network disk refuses it when the
// kernel writes it back. The kernel tells of that once, and takes the pages for written: later syncs succeed,
// and what is read is what the disk has, as soon as the pages go. So local bytes count as the file, or as a
// copy that may replace its manifest, only after a sync that succeeded on a descriptor that was open
// before they were written. An error of any sync makes a packed file hollow. A plain file has nothing else:
// its record says lost, also once it is packed, until a program truncates it to nothing. So it is named until
// then, by whichever process, and no end is clean (package ckptfs/fs/content, durable.go; package
// ckptfs/fs/queue, lost.go). A lost file gets no checksum.
//
// # Checksums of plain files
//
// A plain file that rests, and that no program has open for writing, gets the checksum of its bytes. The
// record loses it before a program gets the file to write or truncate it, and with every change of its inode,
// whose change time speaks then. So within one epoch bytes that are not what the record says are damaged, in
// whatever order the daemon was killed. Exempt are files whose size or modification time is not the record's:
// a program wrote them past the mount.
//
// Neither the bytes nor the record are synced when a checksum is made, nor its going when a file is opened:
// that would cost writers a sync. After a power cut, therefore, a record may speak of bytes that never
// reached the disk, or stay though the bytes did that came after it. It is of an epoch that ended then: bytes
// that fit it get a record of the new epoch, bytes that do not are reported once, and called changed, not
// damaged. A clean end syncs the filesystem if any checksum was made or taken away.
//
// # Hollow files
//
// A hollow file begins with a header, so that a store that was copied without its attributes is recognised,
// and its files are not taken for the zeros that they would hold. A file shorter than a header is not packed.
//
//	offset size
//	     0   64  text: `ckptfs: packed, read it through the mount of its store` and spaces, the last byte a line feed
//	    64   16  the store's id
//	    80   64  the record
//	   144    8  the file's size
//	   152    4  zero
//	   156    4  CRC-32C of the 156 bytes before
//
// A plain file without a record that begins with a header of this store is damaged: its record was lost, and
// can be made again from the header. One that a program wrote so gets the record literal when it is closed.
package tree

import (
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// XattrName is the attribute that holds a file's record.
const XattrName = "user.ckptfs"

// Names in the store's folder.
const (
	FormatFile    = "format"
	LockFile      = "lock"
	SocketFile    = "control.sock"
	TreeDir       = "tree"
	ArrivingDir   = "arriving"
	SegmentsDir   = "segments"
	IndexFile     = "index.db"
	IndexDir      = "index"
	AnchorsDir    = IndexDir + "/anchors"
	CatalogueFile = "catalogue"
	UpkeepFile    = "upkeep"
	LostFound     = "lost+found"
	LogFile       = "log"
	PolicyFile    = "policy"
)

// OwnName is what a mount's root has besides what is stored: the folder of files that are computed.
const OwnName = ".ckptfs"

// HidesOwn reports whether something is stored by the name of the mount's own.
func HidesOwn(d *disk.Folder) bool {
	_, err := d.Lstat(TreeDir + "/" + OwnName)
	return err == nil
}

// MountID names the mount that dir lies on, 0 where the kernel does not tell: a filesystem that was shut down
// by an error and mounted again has lost what was not on the disk, within one boot. An older kernel has a
// number for a mount as well, and gives it to the next one.
func MountID(dir string) uint64 {
	const unique = 0x4000 // STATX_MNT_ID_UNIQUE, since Linux 6.8
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, 0, unique, &st) != nil || st.Mask&unique == 0 {
		return 0
	}
	return st.Mnt_id
}

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
