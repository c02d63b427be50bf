package store

import "ckptfs/cas/segment"

// Stats is what a store holds. Records count once they are in the index; a chunk that was found corrupt and
// stored afresh counts twice.
type Stats struct {
	segment.Totals
	Segments  int
	Bytes     int64 // that all segments take on the disk
	Underway  int64 // of these put by batches that are not released: files may not name them yet
	Unsealed  int   // segments that should have a footer and got none; the next Open tries again
	Abandoned int   // segments abandoned since Open because of a failed fsync

	// Unreadable are segments that the disk does not read, or not all of, as far as Open, or the making of an
	// index, came upon them.
	Unreadable int

	// Found by Open in segments that it had to scan:
	Damaged      int   // ranges that held committed records and do not any more, as far as can be told
	DamagedBytes int64 // their length
	Leftover     int64 // bytes of writes that a crash cut short
}

// Stats returns the present figures: stats with what the tails hold.
func (s *Store) Stats() Stats {
	a := &s.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.stats
	st.Underway = s.underway.Load()
	tails, _ := a.tails.All()
	for _, t := range tails {
		st.Segments++
		st.Bytes += t.Size()
	}
	return st
}

// Trusted reports whether not every read is held against the hash (package trust).
func (s *Store) Trusted() bool { return s.reader.trust.Is() }
