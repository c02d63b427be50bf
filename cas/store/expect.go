package store

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// maxSkip is how many bytes between two chunks are read along rather than left out of one request to the disk.
const maxSkip = 64 << 10

// Expect has the disk begin to read chunks that Get will be asked for soon, in few large requests: chunks of one file
// mostly lie one after the other. It returns before they are read. What cannot be located is passed over. The bases of
// deltas are looked for in the background.
func (s *Store) Expect(hashes []cas.Hash) {
	locs := make([]cas.Location, len(hashes))
	if s.Locate(hashes, locs) != nil {
		return
	}
	var deltas []Link
	for i, l := range locs {
		if l.Delta {
			deltas = append(deltas, Link{hashes[i], l})
		}
	}
	s.willRead(locs)
	if len(deltas) == 0 {
		return
	}
	select {
	case s.ahead <- struct{}{}:
		go func() {
			s.expectBases(deltas)
			<-s.ahead
		}()
	default: // they are read when they are needed
	}
}

// expectBases is Expect for the bases of deltas, and for theirs.
func (s *Store) expectBases(deltas []Link) {
	for range segment.RoundedNumber {
		seen := map[cas.Hash]bool{}
		var locs []cas.Location
		var next []Link
		for _, d := range deltas {
			b, _, err := s.baseOf(d.Hash, d.Loc)
			if err != nil {
				continue
			}
			for _, h := range b.Hashes() {
				if seen[h] {
					continue
				}
				seen[h] = true
				loc, err := s.locateNow(false, h)
				if err != nil || loc.Segment == 0 {
					continue
				}
				locs = append(locs, loc)
				if loc.Delta {
					next = append(next, Link{h, loc})
				}
			}
		}
		s.willRead(locs)
		if deltas = next; len(deltas) == 0 {
			return
		}
	}
}

// willRead has the disk begin to read records. It changes the order of locs.
func (s *Store) willRead(locs []cas.Location) {
	slices.SortFunc(locs, func(a, b cas.Location) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Off, b.Off))
	})
	for len(locs) > 0 {
		l := locs[0]
		end := l.Off + segment.Size(int(l.Stored))
		n := 1
		for ; n < len(locs) && locs[n].Segment == l.Segment && locs[n].Off <= end+maxSkip; n++ {
			end = max(end, locs[n].Off+segment.Size(int(locs[n].Stored)))
		}
		locs = locs[n:]
		if l.Segment == 0 {
			continue
		}
		if f, err := s.files.get(l.Segment); err == nil {
			f.WillRead(l.Off, end-l.Off)
			s.files.put(f)
		}
	}
}
