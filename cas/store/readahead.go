package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/expected"
	"ckptfs/cas/segment"
)

// Expect has the disk begin to read chunks that Get will be asked for soon, and their bases, in few large
// requests: chunks of one file mostly lie one after the other. What cannot be located is passed over. Of
// deltas it waits for the records, to learn their bases; and up to a tenth of a second for memory. once says
// that the chunks themselves are not likely to be read again, so that they need no pages. done, to be called
// once, says that they were got or will not be: who holds some while it calls Expect again waits in vain.
func (s *Store) Expect(hashes []cas.Hash, once bool) (done func()) {
	links := make([]Link, len(hashes))
	locs := make([]cas.Location, len(hashes))
	if s.Locate(hashes, locs) != nil {
		return func() {}
	}
	for i, h := range hashes {
		links[i] = Link{Hash: h, Loc: locs[i]}
	}
	s.reader.located.Add(links)
	named := slices.Clone(links)
	var all []*expected.Stretch
	for range segment.AnyNumber {
		all = s.reader.ahead.WillRead(s.reader.files, locs, once, all)
		once = false // bases are others' too
		if links = s.reader.basesOf(links); len(links) == 0 {
			break
		}
		locs = locs[:0]
		for _, l := range links {
			locs = append(locs, l.Loc)
		}
	}
	return func() {
		s.reader.located.Remove(named)
		s.reader.ahead.Release(all...)
	}
}

// basesOf are the bases of those records that have some, each once. What cannot be read or found is passed
// over.
func (r *reader) basesOf(links []Link) (bases []Link) {
	seen := map[cas.Hash]bool{}
	for _, l := range links {
		b, _, err := r.baseOf(l.Hash, l.Loc)
		if err != nil {
			continue
		}
		for _, h := range b.Hashes() {
			if seen[h] {
				continue
			}
			seen[h] = true
			if loc, err := r.in.locateNow(false, h); err == nil && loc.Segment != 0 {
				bases = append(bases, Link{Hash: h, Loc: loc})
			}
		}
	}
	return bases
}
