package volume

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// found is what Lookup returns of a synthetic node. It drops the node's reference if there is an error.
func found(n *names.Node, err error) (*names.Node, tree.Attr, error) {
	if err != nil {
		return nil, tree.Attr{}, err
	}
	a, err := n.Attr()
	if err != nil {
		n.Unpin()
		return nil, tree.Attr{}, err
	}
	return n, a, nil
}

// openSynthetic opens a node that has no inode.
func (v *Volume) openSynthetic(
	ctx context.Context, c tree.Caller, n *names.Node, flags uint32,
) (*Handle, error) {
	o, mode, err := n.Synth().Open(ctx, c, flags)
	if err != nil {
		return nil, err
	}
	h := handleOfSynthetic(v, n, o, mode, flags)
	h.KeepCache = mode == content.Cached && n.KeepsPages()
	return h, nil
}

// reopenSynthetic makes a handle again that an earlier process gave to the kernel. Who may have it was asked
// then.
func reopenSynthetic(v *Volume, n *names.Node, flags uint32, mode content.Mode) (*Handle, error) {
	o, _, err := n.Synth().Open(context.Background(), tree.Caller{}, flags)
	if err == unix.ESTALE {
		o, err = overtaken{}, nil
	}
	if err != nil {
		return nil, err
	}
	return handleOfSynthetic(v, n, o, mode, flags), nil
}

func handleOfSynthetic(
	v *Volume, n *names.Node, o names.Opened, mode content.Mode, flags uint32,
) *Handle {
	n.Pin()
	v.content.Count.Handles.Add(1)
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	return &Handle{
		Node: n, Mode: mode, write: write,
		as: &synthetic{Opened: o, node: n, write: write, count: &v.content.Count.Handles},
	}
}

// overtaken is an open view whose source has other bytes by now.
type overtaken struct{}

func (overtaken) Read([]byte, int64) (int, error)  { return 0, unix.ESTALE }
func (overtaken) Write([]byte, int64) (int, error) { return 0, unix.EBADF }
func (overtaken) Flush(context.Context) error      { return nil }
func (overtaken) Close()                           {}
