package fusefs

import (
	"context"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// opened answers an operation that opened a file.
func (s *Server) opened(out *fuse.OpenOut, h *volume.Handle) {
	out.Fh = s.handles.add(h)
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

// Open opens a file.
func (s *Server) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	ctx := context.Background()
	if n.IsVirtual() { // may take a while
		var stop context.CancelFunc
		ctx, stop = until(cancel)
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
	s.opened(out, h)
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
	n, a, h, err := s.v.Create(dir, name, in.Mode, in.Flags, caller(&in.InHeader))
	if err == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
		// Made behind the kernel's back, as when a view became a file: what it wants is to open that.
		return fuse.Status(unix.ESTALE)
	}
	return s.created(out, n, a, h, err)
}

// Tmpfile makes a file without a name and opens it.
func (s *Server) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	n, a, h, err := s.v.Tmpfile(s.node(in.NodeId), in.Mode, in.Flags, caller(&in.InHeader))
	return s.created(out, n, a, h, err)
}

func (s *Server) created(out *fuse.CreateOut, n *names.Node, a tree.Attr, h *volume.Handle,
	err error) fuse.Status {
	if err != nil {
		return s.status(err)
	}
	s.fillEntry(&out.EntryOut, n, &a)
	if !a.Settled { // the kernel asks once more at once, to check permissions
		out.SetAttrTimeout(justMade)
	}
	s.opened(&out.OpenOut, h)
	return fuse.OK
}

// Read reads what is not read by passthrough.
func (s *Server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h := s.handles.file(in.Fh)
	if h == nil {
		return nil, fuse.EBADF
	}
	loan, n, err := h.Lend(min(int(in.Size), len(buf)), int64(in.Offset))
	if err != nil {
		return nil, s.status(err)
	}
	if loan != nil {
		return lent{loan, n}, fuse.OK
	}
	n, err = h.Read(buf[:min(int(in.Size), len(buf))], int64(in.Offset))
	if err != nil {
		return nil, s.status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// lent answers a read with bytes where they lie: go-fuse has the kernel gather the slices.
type lent struct {
	*assemble.Loan
	n int
}

func (l lent) Size() int { return l.n }

// Slices is what go-fuse looks for.
func (l lent) Slices() ([][]byte, fuse.Status) { return l.Parts(), fuse.OK }

// Bytes is for callers that have no use for slices.
func (l lent) Bytes(buf []byte) ([]byte, fuse.Status) {
	return append(buf[:0], slices.Concat(l.Parts()...)...), fuse.OK
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

// Flush is a close of one of a file's descriptors.
func (s *Server) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if h := s.handles.file(in.Fh); h != nil {
		s.v.Flush(h)
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
	if h, ok := s.handles.remove(in.Fh).(*volume.Handle); ok {
		h.Release()
	}
}
