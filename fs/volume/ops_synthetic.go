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
	n.Pin()
	v.content.Count.Handles.Add(1)
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	return &Handle{
		Node: n, Mode: mode, KeepCache: mode == content.Cached, write: write,
		as: &synthetic{Opened: o, node: n, write: write, count: &v.content.Count.Handles},
	}, nil
}
