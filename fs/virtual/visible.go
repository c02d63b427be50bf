package virtual

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// sight says who finds a name, of those whom the kernel lets into its folder.
type sight int

const (
	toAll   sight = iota // everyone: the folder has the permissions of that of the source
	inPlace              // who may read the source, if let into the folder: that is the source's, or as it
	byPath               // who may read the source by one of its paths, from the mount's root on
	toOwner              // the daemon's user, and root
)

// visible decides what a caller may see of what is made up: it is the one place. src is what it is made of,
// nil with toAll and toOwner.
func (v *Virtual) visible(c *tree.Asker, s sight, src *names.Node) bool {
	switch {
	case s == toAll, c.UID == 0:
		return true
	case s == toOwner:
		return c.UID == v.owner
	}
	need := uint32(tree.MayRead)
	if src.IsDir() {
		need |= tree.MayEnter
	}
	return passes(c, src, need) && (s == inPlace || reaches(c, src))
}

// passes reports whether the permissions of a node let a caller do what need says.
func passes(c *tree.Asker, n *names.Node, need uint32) bool {
	var st unix.Stat_t
	if err := n.Stat(&st); err != nil {
		return false
	}
	a := tree.AttrOf(&st)
	return c.Passes(tree.GuardOf(&a, need))
}

// reaches reports whether a caller may enter all folders above a node, by one of its known names.
func reaches(c *tree.Asker, n *names.Node) bool {
	reached := false
	for _, way := range n.Ways() {
		open := true
		for _, dir := range way {
			open = open && (reached || passes(c, dir, tree.MayEnter))
			dir.Unpin()
		}
		reached = reached || open
	}
	return reached
}
