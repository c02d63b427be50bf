package volume

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Stat describes a node.
func (v *Volume) Stat(n *Node) (tree.Attr, error) {
	if n.synth != nil {
		return statSynthetic(n)
	}
	if n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
	}
	return v.statLocked(n)
}

// statLocked is Stat of a node that is no view; a file's mu is held.
func (v *Volume) statLocked(n *Node) (tree.Attr, error) {
	var st unix.Stat_t
	if n.file != nil {
		if err := n.file.LoadLocked(); err != nil { // which may have to end what was cut off
			return tree.Attr{}, err
		}
	}
	if err := n.Stat(&st); err != nil {
		return tree.Attr{}, err
	}
	a := tree.AttrOf(&st)
	if n.file == nil {
		return a, nil
	}
	return a, n.file.AttrLocked(&a)
}

// Setattr changes a node's attributes and returns the new ones. h may be nil.
func (v *Volume) Setattr(n *Node, s *tree.SetAttr) (tree.Attr, error) {
	if n.synth != nil {
		if err := n.synth.Setattr(s); err != nil {
			return tree.Attr{}, err
		}
		return statSynthetic(n)
	}
	if v.readOnly {
		return tree.Attr{}, unix.EROFS
	}
	defer v.steps.Changed(n.ino)
	if f := n.file; f != nil {
		f.Lock()
		defer f.Unlock()
	}
	if err := setInode(n, s); err != nil {
		return tree.Attr{}, err
	}
	if n == v.names.root {
		v.restat()
	}
	return v.statLocked(n)
}

// setInode changes the attributes of a node of the tree; a file's mu is held.
func setInode(n *Node, s *tree.SetAttr) error {
	f := n.file
	switch {
	case f == nil && s.Size != nil:
		return unix.EINVAL
	case f == nil:
		return n.SetHost(s)
	}
	if err := f.LoadLocked(); err != nil {
		return err
	}
	if s.Size != nil {
		if err := f.ResizeLocked(*s.Size); err != nil {
			return err
		}
	}
	return f.SetInodeLocked(s)
}
