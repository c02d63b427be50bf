package tree

import (
	"time"

	"golang.org/x/sys/unix"
)

// Attr is what stat(2) shows of a node.
type Attr struct {
	Ino    uint64
	Size   int64
	Blocks int64 // of 512 bytes
	Mode   uint32
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Atime  unix.Timespec
	Mtime  unix.Timespec
	Ctime  unix.Timespec

	// Settled says that nothing but a request through this mount will change the attributes, so that the
	// kernel may keep them. A file that is being written by passthrough, or waits to be packed and may be
	// mapped, is not settled.
	Settled bool
}

func AttrOf(st *unix.Stat_t) Attr {
	return Attr{
		Ino: st.Ino, Size: st.Size, Blocks: st.Blocks, Mode: st.Mode, Nlink: uint32(st.Nlink), UID: st.Uid,
		GID:  st.Gid,
		Rdev: uint32(st.Rdev), Atime: st.Atim, Mtime: st.Mtim, Ctime: st.Ctim, Settled: true,
	}
}

// SetAttr is a change of attributes; nil fields stay as they are.
type SetAttr struct {
	Mode     *uint32
	UID, GID *uint32
	Size     *int64
	Atime    *unix.Timespec // Nsec may be UTIME_NOW
	Mtime    *unix.Timespec
	KillSUID bool // clear set-user-id and, for an executable, set-group-id

	// By is the user who changed the bytes, if that is known: one outside of the file's group loses
	// set-group-id of what is no executable, too.
	By *Caller
}

// Nothing reports whether no field is set: chown(2) of neither, which moves the change time.
func (s *SetAttr) Nothing() bool {
	return s.Mode == nil && s.UID == nil && s.GID == nil && s.Size == nil && s.Atime == nil &&
		s.Mtime == nil && !s.KillSUID
}

// TimespecOf converts a time.
func TimespecOf(t time.Time) unix.Timespec { return unix.NsecToTimespec(t.UnixNano()) }
