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
// mostly lie one after the other. It returns before they are read. What cannot be located is passed over.
func (s *Store) Expect(hashes []cas.Hash) {
	locs := make([]cas.Location, len(hashes))
	if s.Locate(hashes, locs) != nil {
		return
	}
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
