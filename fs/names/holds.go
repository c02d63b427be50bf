package names

// whole is the mark of a directory that this process made: it has all marks of its names.
const whole = 1 << 31

// MayHold reports whether a directory may have, or have had, a name with one of some marks (Options.Mark).
// Nothing is known of one that this process did not make.
func (n *Node) MayHold(marks uint32) bool {
	has := n.holds.Load()
	return has&whole == 0 || has&marks != 0
}

// holdsLocked notes a name that a directory is about to have. ns is held.
func (n *Node) holdsLocked(name string) {
	if n.ns.o.Mark != nil {
		n.holds.Or(n.ns.o.Mark(name))
	}
}
