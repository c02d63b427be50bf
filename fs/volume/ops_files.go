package volume

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// Handle is an open file.
type Handle struct {
	Node      *names.Node
	Mode      content.Mode
	Backing   int32 // in Passthrough
	KeepCache bool  // in Cached: the kernel's pages of the file are still right

	write bool
	as    openFile // by the kind of the node
}

// handleOf is the Handle of an open file of the tree.
func handleOf(n *names.Node, h *content.Handle) *Handle {
	return &Handle{
		Node: n, Mode: h.Mode, Backing: h.Backing, KeepCache: h.KeepCache, write: h.Writes,
		as: &treeFile{h, n.File()},
	}
}

// Writes reports whether the handle may write.
func (h *Handle) Writes() bool { return h.write }

// OpenBy opens a node for a caller. flags are open(2)'s. When ctx ends, an answer that is being found is not
// waited for. ENXIO when the node is neither a file nor synthetic.
func (v *Volume) OpenBy(ctx context.Context, c tree.Caller, n *names.Node, flags uint32) (*Handle, error) {
	if n.Synth() != nil {
		return v.openSynthetic(ctx, c, n, flags)
	}
	if n.File() == nil {
		return nil, unix.ENXIO
	}
	if flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY {
		if err := v.sharing.changing(n); err != nil {
			return nil, err
		}
	}
	if flags&unix.O_TRUNC != 0 {
		v.steps.Alter()
		defer v.steps.Altered()
	}
	h, err := n.File().Open(flags, c.Thread)
	if err != nil {
		return nil, err
	}
	return handleOf(n, h), nil
}

// Reopen makes a handle again that an earlier process gave to the kernel: flags are those that it was opened
// with, mode and backing what the kernel was told.
func (v *Volume) Reopen(n *names.Node, flags uint32, mode content.Mode, backing int32) (*Handle, error) {
	flags &^= unix.O_CREAT | unix.O_EXCL | unix.O_TRUNC
	if n.Synth() != nil {
		return reopenSynthetic(v, n, flags, mode)
	}
	if n.File() == nil {
		return nil, unix.ENXIO
	}
	h, err := content.Reopen(n.File(), flags, mode, backing)
	if err != nil {
		return nil, err
	}
	return handleOf(n, h), nil
}

// Release ends a handle: the last of its descriptors is closed, and no mapping is left. For a file of the
// tree content.Handle.Release decides what becomes of it.
func (h *Handle) Release() { h.as.Release() }

// Read reads into p at off. Fewer bytes than asked for mean the end of the file.
func (h *Handle) Read(p []byte, off int64) (int, error) { return h.as.Read(p, off) }

// Lend is Read of n bytes without a copy; nil: use Read.
func (h *Handle) Lend(n int, off int64) (*assemble.Loan, int, error) { return h.as.Lend(n, off) }

// Write writes p at off; the kernel has resolved O_APPEND.
func (h *Handle) Write(p []byte, off int64) (int, error) { return h.as.Write(p, off) }

// Flush is a close(2) of one of a writer's descriptors. Its RELEASE may come later. The close waits while
// more than Options.MaxUnpacked bytes wait to be packed (queue.MakeRoom). Handle.Answer comes next. The
// kernel tells of no close(2) of a reader. killed: the caller is ending by a signal, and what it wrote may
// not be all. It is asked for files of steps alone.
func (v *Volume) Flush(h *Handle, killed func() bool) {
	h.as.closing(v, h.Node.Below(steps.Dir) && killed())
}

// Answer runs the query of a handle that wrote one (virtual/query.go): it parses the graph and looks for the
// model that matches best. EINVAL when it is no graph. Every close(2) that Flush is told of comes here, too.
func (h *Handle) Answer(ctx context.Context) error { return h.as.answer(ctx) }

// Fsync makes the file's bytes, attributes and name durable, as fsync(2) on the host does.
func (h *Handle) Fsync() error { return h.as.fsync() }

// CopyRange copies up to n bytes to another open file and returns how many it did; fewer than n is no error.
// thread is the caller's id, as the kernel reports it, or 0.
func (h *Handle) CopyRange(srcOff int64, dst *Handle, dstOff, n int64, thread uint32) (int64, error) {
	if !dst.write {
		return 0, unix.EBADF
	}
	return dst.as.CopyFrom(h.as.source(), srcOff, dstOff, n, thread)
}

// Fallocate is fallocate(2).
func (h *Handle) Fallocate(mode uint32, off, n int64) error {
	if !h.write {
		return unix.EBADF
	}
	return h.as.Fallocate(mode, off, n)
}

// Seek answers SEEK_DATA and SEEK_HOLE. A packed file is data throughout.
func (h *Handle) Seek(off int64, whence int) (int64, error) { return h.as.Seek(off, whence) }
