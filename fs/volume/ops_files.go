package volume

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Handle is an open file.
type Handle struct {
	Node      *names.Node
	Mode      content.Mode
	Backing   int32 // in Passthrough
	KeepCache bool  // in Cached: the kernel's pages of the file are still right

	file  *content.Handle // of a file of the tree
	write bool
	synth names.Opened  // of a node that has no inode
	count *atomic.Int64 // of the open handles of such nodes
}

// handleOf is the Handle of an open file of the tree.
func handleOf(n *names.Node, h *content.Handle) *Handle {
	return &Handle{
		Node: n, Mode: h.Mode, Backing: h.Backing, KeepCache: h.KeepCache, file: h, write: h.Writes,
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
	h, err := n.File().Open(flags, c.Thread)
	if err != nil {
		return nil, err
	}
	return handleOf(n, h), nil
}

// Release ends a handle: the last of its descriptors is closed, and no mapping is left.
func (h *Handle) Release() {
	n := h.Node
	if h.file != nil {
		h.file.Release()
		return
	}
	h.count.Add(-1)
	h.synth.Close()
	n.Unpin()
}

// Read reads into p at off. Fewer bytes than asked for mean the end of the file.
func (h *Handle) Read(p []byte, off int64) (int, error) {
	if h.file != nil {
		return h.file.Read(p, off)
	}
	return h.synth.Read(p, off)
}

// Lend is Read of n bytes without a copy; nil: use Read.
func (h *Handle) Lend(n int, off int64) (*assemble.Loan, int, error) {
	if h.file == nil {
		return nil, 0, nil
	}
	return h.file.Lend(n, off)
}

// Write writes p at off; the kernel has resolved O_APPEND.
func (h *Handle) Write(p []byte, off int64) (int, error) {
	switch {
	case h.file != nil:
		return h.file.Write(p, off)
	case h.write:
		return h.synth.Write(p, off)
	}
	return 0, unix.EBADF
}

// Flush is a close(2) of one of the handle's descriptors. Its RELEASE may come later. The close of a writer
// waits while more than Options.MaxUnpacked bytes wait to be packed.
func (v *Volume) Flush(h *Handle) {
	if h.file != nil && h.write {
		v.queue.MakeRoom(h.Node.File(), h.file.Flush())
	}
}

// Fsync makes the file's bytes, attributes and name durable, as fsync(2) on the host does.
func (h *Handle) Fsync() error {
	if h.file == nil {
		return nil
	}
	return h.Node.File().Sync()
}

// CopyRange copies up to n bytes to another open file and returns how many it did; fewer than n is no error.
// thread is the caller's id, as the kernel reports it, or 0.
func (h *Handle) CopyRange(srcOff int64, dst *Handle, dstOff, n int64, thread uint32) (int64, error) {
	if dst.synth != nil && dst.write {
		return 0, unix.EOPNOTSUPP
	}
	if dst.file == nil || !dst.write {
		return 0, unix.EBADF
	}
	if h.file != nil {
		return dst.file.CopyFrom(h.file, srcOff, dstOff, n, thread)
	}
	return dst.file.CopyFrom(synthSource{h}, srcOff, dstOff, n, thread)
}

// synthSource is a view or a virtual file that is copied from.
type synthSource struct{ h *Handle }

func (s synthSource) Read(p []byte, off int64) (int, error) { return s.h.synth.Read(p, off) }
func (s synthSource) Size() (int64, error)                  { return s.h.Node.Synth().Size(), nil }

// Fallocate is fallocate(2).
func (h *Handle) Fallocate(mode uint32, off, n int64) error {
	switch {
	case !h.write:
		return unix.EBADF
	case h.file == nil:
		return unix.EOPNOTSUPP
	}
	return h.file.Fallocate(mode, off, n)
}

// Seek answers SEEK_DATA and SEEK_HOLE. A packed file is data throughout.
func (h *Handle) Seek(off int64, whence int) (int64, error) {
	if h.file == nil {
		return content.SeekDense(off, whence, h.Node.Synth().Size())
	}
	return h.file.Seek(off, whence)
}
