package store

// room reports whether n bytes may be written that only save room. Until written is called they count as not
// being on the disk yet.
func (s *Store) room(n int64) (written func(), err error) {
	if s.opt.Room == nil {
		return func() {}, nil
	}
	if err := s.opt.Room(s.spending.Add(n)); err != nil {
		s.spending.Add(-n)
		return nil, err
	}
	return func() { s.spending.Add(-n) }, nil
}

// makeRoom reports whether there is more room on the disk now.
func (s *Store) makeRoom() bool { return s.opt.MakeRoom != nil && s.opt.MakeRoom() }
