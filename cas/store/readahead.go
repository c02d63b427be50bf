package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/expected"
	"ckptfs/cas/segment"
)

// maxSkip is how many bytes between two chunks are read along rather than left out of one request to the
// disk.
const maxSkip = 64 << 10

// Expect has the disk begin to read chunks that Get will be asked for soon, and their bases, in few large
// requests: chunks of one file mostly lie one after the other. What cannot be located is passed over. Of
// deltas it waits for the records, to learn their bases. done, to be called once, says that the chunks were
// got or will not be.
func (s *Store) Expect(hashes []cas.Hash) (done func()) {
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
	for range segment.RoundedNumber + 1 {
		all = s.reader.willRead(locs, all)
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

// willRead has the disk begin to read records, and appends what is read to memory of our own to all. It
// changes locs.
func (r *reader) willRead(locs []cas.Location, all []*expected.Stretch) []*expected.Stretch {
	locs = slices.DeleteFunc(locs, func(l cas.Location) bool { // others expect it
		t := r.ahead.Find(l.Segment, l.Off, segment.RecordHeaderSize+int(l.Stored))
		if t != nil {
			all = append(all, t)
		}
		return t != nil
	})
	slices.SortFunc(locs, cas.Location.Compare)
	for len(locs) > 0 {
		from, to := locs[0], segment.End(locs[0])
		n := 1
		for ; n < len(locs) && locs[n].Segment == from.Segment && locs[n].Off <= to+maxSkip &&
			expected.Fits(from.Off, segment.End(locs[n])); n++ {
			to = max(to, segment.End(locs[n]))
		}
		locs = locs[n:]
		if from.Segment == 0 {
			continue
		}
		f, err := r.files.Get(from.Segment)
		if err != nil {
			continue
		}
		if t := r.ahead.Add(from.Segment, from.Off, to); t != nil {
			all = append(all, t)
			go func() {
				r.ahead.Read(t, f.Reader)
				r.files.Put(f)
			}()
			continue
		}
		f.WillRead(from.Off, to-from.Off)
		r.files.Put(f)
	}
	return all
}
