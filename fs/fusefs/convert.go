package fusefs

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Everything that changes a name or a settled attribute passes through the kernel, so it may keep them.
const forever = time.Hour

// justMade is how long the kernel keeps the attributes of a file made, or of a query found, just now, and
// what is brief: one tick of its clock. Its own writes it knows of.
const justMade = time.Nanosecond

// errStale has the kernel look a name up again, and do its call once more.
const errStale = fuse.Status(unix.ESTALE)

// status is the one place where an error becomes an errno.
func (s *Server) status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fuse.Status(errno)
	}
	switch {
	case errors.Is(err, context.Canceled): // by the caller
		return fuse.Status(unix.EINTR)
	case errors.Is(err, cas.ErrNotFound), errors.Is(err, cas.ErrCorrupt), errors.Is(err, cas.ErrTooLarge):
	default:
		s.log(slog.LevelError, "request failed", "reason", err)
	}
	return fuse.EIO
}

// until is a context that ends when the kernel says that the caller of a request was interrupted, or killed,
// and when the mount is gone.
func (s *Server) until(cancel <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		select {
		case <-cancel:
			stop()
		case <-s.dead:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

func fillAttr(out *fuse.Attr, a *tree.Attr) {
	*out = fuse.Attr{
		Ino: a.Ino, Size: uint64(a.Size), Blocks: uint64(a.Blocks), Mode: a.Mode, Nlink: a.Nlink,
		Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: a.Rdev, Blksize: 4096,
		Atime: uint64(a.Atime.Sec), Atimensec: uint32(a.Atime.Nsec),
		Mtime: uint64(a.Mtime.Sec), Mtimensec: uint32(a.Mtime.Nsec),
		Ctime: uint64(a.Ctime.Sec), Ctimensec: uint32(a.Ctime.Nsec),
	}
}

func attrTimeout(a *tree.Attr) time.Duration {
	if a.Settled {
		return forever
	}
	return 0
}

func (s *Server) fillEntry(out *fuse.EntryOut, n *names.Node, a *tree.Attr) {
	n.Tell()
	out.NodeId = uint64(n.ID())
	out.Generation = 1
	if !n.IsView() && !n.IsVirtual() || n.IsFixed() { // a view goes when its source changes
		out.SetEntryTimeout(forever)
	}
	out.SetAttrTimeout(attrTimeout(a))
	if n.IsQuery() { // its permissions are asked for once more at once
		out.SetAttrTimeout(justMade)
	}
	if n.IsBrief() && !n.IsFixed() {
		out.SetEntryTimeout(justMade)
		out.SetAttrTimeout(justMade)
	}
	fillAttr(&out.Attr, a)
}

func fillAttrOut(out *fuse.AttrOut, a *tree.Attr) {
	out.SetTimeout(attrTimeout(a))
	fillAttr(&out.Attr, a)
}

// setAttrOf is the kernel's request in the volume's words.
func setAttrOf(in *fuse.SetAttrIn) *tree.SetAttr {
	s := &tree.SetAttr{KillSUID: in.Valid&fuse.FATTR_KILL_SUIDGID != 0}
	if in.InHeader.Uid != 0 { // in.Uid is the new owner
		c := caller(&in.InHeader)
		s.By = &c
	}
	if in.Valid&fuse.FATTR_MODE != 0 {
		mode := in.Mode
		s.Mode = &mode
	}
	if in.Valid&fuse.FATTR_UID != 0 {
		uid := in.Uid
		s.UID = &uid
	}
	if in.Valid&fuse.FATTR_GID != 0 {
		gid := in.Gid
		s.GID = &gid
	}
	if in.Valid&fuse.FATTR_SIZE != 0 {
		size := int64(in.Size)
		s.Size = &size
	}
	s.Atime = timeOf(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec)
	s.Mtime = timeOf(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec)
	return s
}

func timeOf(valid, set, now uint32, sec uint64, nsec uint32) *unix.Timespec {
	switch {
	case valid&now != 0:
		return &unix.Timespec{Nsec: unix.UTIME_NOW}
	case valid&set != 0:
		return &unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
	}
	return nil
}

func caller(h *fuse.InHeader) tree.Caller {
	return tree.Caller{UID: h.Uid, GID: h.Gid, Thread: h.Pid}
}
