package names

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Attr describes the node.
func (n *Node) Attr() (tree.Attr, error) {
	if n.synth != nil {
		return attrOfSynthetic(n)
	}
	if n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
	}
	return n.AttrLocked()
}

// AttrLocked is Attr of a node of the tree; a file's mu is held.
func (n *Node) AttrLocked() (tree.Attr, error) {
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

// AttrFrom is Attr of a node of the tree whose inode was looked at just now.
func (n *Node) AttrFrom(st *unix.Stat_t) (tree.Attr, error) {
	a := tree.AttrOf(st)
	if n.file == nil {
		return a, nil
	}
	n.file.Lock()
	defer n.file.Unlock()
	if err := n.file.LoadLocked(); err != nil { // which may have to end what was cut off
		return tree.Attr{}, err
	}
	if n.file.StateLocked().Moved { // perhaps between the look and the lock
		return n.AttrLocked()
	}
	return a, n.file.AttrLocked(&a)
}

// SetAttr changes the node's attributes and returns the new ones.
func (n *Node) SetAttr(s *tree.SetAttr) (tree.Attr, error) {
	if n.synth != nil {
		if err := n.synth.Setattr(s); err != nil {
			return tree.Attr{}, err
		}
		return attrOfSynthetic(n)
	}
	if err := n.ns.o.begin(); err != nil {
		return tree.Attr{}, err
	}
	defer n.ns.o.End()
	defer n.ns.o.Changed(n.ino)
	if n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
	}
	if err := n.setAttrLocked(s); err != nil {
		return tree.Attr{}, err
	}
	return n.AttrLocked()
}

// setAttrLocked changes the attributes of a node of the tree; a file's mu is held.
func (n *Node) setAttrLocked(s *tree.SetAttr) error {
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
