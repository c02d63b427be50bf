package steps

import "ckptfs/cas"

// Alter is called before anything in the tree is changed, and Altered behind it. A change that its caller
// tells of (Changed) needs neither, unless a kill in between would leave it untold.
func (s *Steps) Alter() {
	s.altering.Add(1)
	s.alter()
}

// Altered ends what Alter began.
func (s *Steps) Altered() {
	s.alter() // before the change counts as ended: Settle looks in the other order
	s.altering.Add(-1)
}

func (s *Steps) alter() {
	s.alterations.Add(1)
	defer s.news.changed()
	if s.Writing != nil {
		s.Writing.Unsettle()
	}
}

// Alterations counts what changed since this process began.
func (s *Steps) Alterations() uint64 { return s.alterations.Load() }

// Settle notes something for the next process that holds until the tree is changed (Settled), also if this
// one is killed. It notes nothing if something changed since Alterations was n, or is being changed.
func (s *Steps) Settle(note cas.Hash, n uint64) {
	if s.Writing != nil {
		s.Writing.Settle(note, func() bool { return s.altering.Load() > 0 || s.alterations.Load() != n })
	}
}

// Settled is what held when the last process ended, however it did; zero: nothing. It says nothing of
// another boot.
func (s *Steps) Settled() (note cas.Hash) {
	if s.Writing != nil {
		note = s.Writing.Was
	}
	return note
}
