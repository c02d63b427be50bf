package volume

import (
	"context"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Lookup finds name in dir for a caller, and takes a reference to it for the kernel: a name that others
// published, too. When ctx ends, nothing is waited for.
func (v *Volume) Lookup(
	ctx context.Context, c tree.Caller, dir *names.Node, name string,
) (*names.Node, tree.Attr, error) {
	v.sharing.ensure(ctx, dir, name)
	return lookup(ctx, v, c, dir, name)
}

// lookup is Lookup of what the tree has. It may be called with locks held that come before names.
func lookup(
	ctx context.Context, v *Volume, c tree.Caller, dir *names.Node, name string,
) (*names.Node, tree.Attr, error) {
	if dir.Synth() != nil {
		return found(dir.Synth().Lookup(ctx, c, dir, name))
	}
	n, st, err := v.names.Child(dir, name)
	if err == unix.ENOENT {
		if v.virtual.Reserved(dir, name) {
			return found(v.virtual.Root(), nil)
		}
		return found(v.virtual.LookupView(&tree.Asker{Caller: c}, dir, name))
	}
	if err != nil {
		return nil, tree.Attr{}, err
	}
	a, err := n.AttrFrom(&st)
	if err != nil {
		n.Unpin()
		return nil, tree.Attr{}, err
	}
	return n, a, nil
}

// resolve finds the node of a path below the mount's root, with one reference more. Symlinks are not
// followed.
func (v *Volume) resolve(p string) (*names.Node, error) {
	n := v.names.Root()
	n.Pin()
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if name == "" {
			continue
		}
		next, _, err := lookup(context.Background(), v, tree.Caller{}, n, name)
		n.Unpin()
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

// walk calls f with every regular file at or below p, each with its path. It passes over names that are
// removed meanwhile and, without privileges, folders below p that their owner has locked.
func (v *Volume) walk(ctx context.Context, p string, f func(path string, n *names.Node) error) error {
	n, err := v.resolve(p)
	if err != nil {
		return err
	}
	defer n.Unpin()
	return v.names.WalkBelow(ctx, strings.Trim(path.Clean("/"+p), "/"), n, f)
}

// Setattr changes a node's attributes and returns the new ones.
func (v *Volume) Setattr(n *names.Node, s *tree.SetAttr) (tree.Attr, error) {
	if err := v.sharing.changing(n); err != nil {
		return tree.Attr{}, err
	}
	a, err := n.SetAttr(s)
	if err == nil {
		v.sharing.touch(n)
	}
	if err == nil && n == v.names.Root() {
		v.virtual.Restat()
	}
	return a, err
}
