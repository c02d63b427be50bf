package fusefs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// opened answers an operation that opened a file. flags are open(2)'s.
func (s *Server) opened(out *fuse.OpenOut, h *volume.Handle, by *fuse.InHeader, flags uint32) {
	s.describe(out, h, s.handles.add(h, by, handover.Handle{
		Kind: handover.KindFile, Node: uint64(h.Node.ID()), Flags: flags, Thread: by.Pid,
		Mode: uint32(h.Mode), Backing: h.Backing,
	}))
}

// describe tells the kernel how a handle is read and written.
func (s *Server) describe(out *fuse.OpenOut, h *volume.Handle, fh uint64) {
	out.Fh = fh
	if !h.Writes() { // nothing is done at its close
		out.OpenFlags |= fuse.FOPEN_NOFLUSH
	}
	switch h.Mode {
	case content.Passthrough:
		out.OpenFlags |= fuse.FOPEN_PASSTHROUGH
		out.BackingID = h.Backing
	case content.Direct:
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	case content.Cached:
		if h.KeepCache {
			out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
		}
	}
}

// openedAgain answers an OPEN or CREATE that an earlier process did.
func (s *Server) openedAgain(by *fuse.InHeader, out *fuse.OpenOut) *volume.Handle {
	fh, was := s.handles.again(by)
	h, ok := was.(*volume.Handle)
	if !ok {
		return nil
	}
	s.describe(out, h, fh)
	return h
}

// Open opens a file.
func (s *Server) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s.openedAgain(&in.InHeader, out) != nil {
		return fuse.OK
	}
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	ctx := context.Background()
	if n.IsVirtual() { // may take a while
		var stop context.CancelFunc
		ctx, stop = s.until(cancel)
		defer stop()
	}
	h, err := s.v.OpenBy(ctx, caller(&in.InHeader), n, in.Flags)
	if err != nil {
		return s.status(err)
	}
	if in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		if err := s.killSUID(h, &in.InHeader); err != nil {
			h.Release()
			return s.status(err)
		}
	}
	fault(in.Opcode, "made")
	s.opened(out, h, &in.InHeader, in.Flags)
	return fuse.OK
}

// killSUID clears set-user-id and set-group-id, as a change of the bytes by any user but root does.
// Before a write by passthrough the kernel asks for it by a SETATTR of nothing.
func (s *Server) killSUID(h *volume.Handle, by *fuse.InHeader) error {
	if h.Node.IsView() {
		return nil
	}
	c := caller(by)
	_, err := s.v.Setattr(h.Node, &tree.SetAttr{KillSUID: true, By: &c})
	return err
}

// Create makes a file and opens it.
func (s *Server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	return s.once(&in.InHeader, change{
		before: handover.Entry{Dir: in.NodeId, Name: name, Ino: s.v.Names().InoAt(dir, name)},
		happened: func(before handover.Entry) bool {
			if _, h := s.handles.again(&in.InHeader); h != nil {
				return true
			}
			s.unmake(dir, before)
			return false
		},
		do: func() fuse.Status {
			n, a, h, err := s.v.Create(dir, name, in.Mode, in.Flags, caller(&in.InHeader))
			if err == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
				// Made behind the kernel's back, as when a view became a file: it wants to open that.
				return errStale
			}
			return s.created(in, out, n, a, h, err)
		},
		answer: func() fuse.Status { return s.createdAgain(in, out) },
	})
}

// Tmpfile makes a file without a name and opens it.
func (s *Server) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	if _, h := s.handles.again(&in.InHeader); h != nil {
		return s.createdAgain(in, out)
	}
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	n, a, h, err := s.v.Tmpfile(dir, in.Mode, in.Flags, caller(&in.InHeader))
	return s.created(in, out, n, a, h, err)
}

func (s *Server) created(in *fuse.CreateIn, out *fuse.CreateOut, n *names.Node, a tree.Attr,
	h *volume.Handle, err error) fuse.Status {
	if err != nil {
		return s.status(err)
	}
	fault(in.Opcode, "made")
	s.fillNew(out, n, &a)
	s.opened(&out.OpenOut, h, &in.InHeader, in.Flags)
	return fuse.OK
}

// createdAgain answers what an earlier process made and opened.
func (s *Server) createdAgain(in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	h := s.openedAgain(&in.InHeader, &out.OpenOut)
	if h == nil {
		return fuse.EIO
	}
	a, err := h.Node.Attr()
	if err != nil {
		return s.status(err)
	}
	h.Node.Pin() // for the kernel, as a lookup does
	s.fillNew(out, h.Node, &a)
	return fuse.OK
}

// fillNew describes a file that was made just now.
func (s *Server) fillNew(out *fuse.CreateOut, n *names.Node, a *tree.Attr) {
	s.fillEntry(&out.EntryOut, n, a)
	if !a.Settled { // the kernel asks once more at once, to check permissions
		out.SetAttrTimeout(justMade)
	}
}

// read reads what is not read by passthrough. It is READ, which does not come through go-fuse.
func (s *Server) read(in *fuse.ReadIn, room func(n int) []byte) (loan, []byte, fuse.Status) {
	h := s.handles.file(in.Fh)
	if h == nil {
		return nil, nil, fuse.EBADF
	}
	want := min(int(in.Size), maxRequest)
	lent, _, err := h.Lend(want, int64(in.Offset))
	if err != nil {
		return nil, nil, s.status(err)
	}
	if lent != nil {
		return lent, nil, fuse.OK
	}
	buf := room(want)
	n, err := h.Read(buf, int64(in.Offset))
	if err != nil {
		return nil, nil, s.status(err)
	}
	return nil, buf[:n], fuse.OK
}

// Write writes what is not written by passthrough.
func (s *Server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	h := s.handles.file(in.Fh)
	if h == nil {
		return 0, fuse.EBADF
	}
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if err := s.killSUID(h, &in.InHeader); err != nil {
			return 0, s.status(err)
		}
	}
	n, err := h.Write(data, int64(in.Offset))
	return uint32(n), s.status(err)
}

// maxCopied is the most bytes that an answer can state, in whole pages.
const maxCopied = 1<<32 - 4096

// CopyFileRange copies between two files of the mount.
func (s *Server) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	src, dst := s.handles.file(in.FhIn), s.handles.file(in.FhOut)
	if src == nil || dst == nil {
		return 0, fuse.EBADF
	}
	if in.Uid != 0 {
		if err := s.killSUID(dst, &in.InHeader); err != nil {
			return 0, s.status(err)
		}
	}
	n, err := src.CopyRange(int64(in.OffIn), dst, int64(in.OffOut), int64(min(in.Len, maxCopied)), in.Pid)
	return uint32(n), s.status(err)
}

// Lseek finds data and holes.
func (s *Server) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	h := s.handles.file(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	off, err := h.Seek(int64(in.Offset), int(in.Whence))
	out.Offset = uint64(max(off, 0))
	return s.status(err)
}

// Flush is a close(2) of one of a writer's descriptors; opened tells the kernel to send none of a reader's. A
// query is answered in it (Handle.Answer).
func (s *Server) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if h := s.handles.file(in.Fh); h != nil {
		s.v.Flush(h, func() bool { return killed(in.Pid) })
		return s.status(h.Answer(context.Background()))
	}
	return fuse.OK
}

// Fsync makes a file durable.
func (s *Server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := s.handles.file(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	return s.status(h.Fsync())
}

// Fallocate reserves or frees space.
func (s *Server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	h := s.handles.file(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	if in.Uid != 0 {
		if err := s.killSUID(h, &in.InHeader); err != nil {
			return s.status(err)
		}
	}
	return s.status(h.Fallocate(in.Mode, int64(in.Offset), int64(in.Length)))
}

// Release ends a handle; no program waits for it.
func (s *Server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	s.handles.release(in.Fh)
}
