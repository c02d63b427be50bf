package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/copies"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// replay takes records into the index, many with one commit.
type replay struct {
	s       *Store
	entries []cas.Entry
	copies  copies.Deltas
	// mark is up to where the index has all. While one is made from nothing it stays zero until the end, so
	// that a start goes on where this was cut short: at the beginning.
	mark    cas.Watermark
	refused error // if not nil, what there is instead of a commit
	failed  error // the index's
}

func newReplay(s *Store) *replay { return &replay{s: s, copies: copies.Deltas{}} }

func (in *replay) add(n uint32, rec *segment.Record) error {
	if !rec.Kind.Indexed() {
		return nil
	}
	in.entries = append(in.entries, rec.Entry(n))
	if len(in.entries) < in.s.opt.ReplayBatch {
		return nil
	}
	return in.commit()
}

func (in *replay) commit() error {
	if len(in.entries) == 0 {
		return nil
	}
	if in.refused != nil {
		return in.refuse()
	}
	entries, err := in.lowest()
	if err == nil {
		err = in.s.indexer.index.Commit(entries, in.mark)
	}
	in.entries, in.failed = in.entries[:0], err
	return err
}

// refuse drops the entries that the index has already, here or elsewhere: the watermark may be far behind.
// The error says that it lacks one.
func (in *replay) refuse() error {
	hashes, locs := make([]cas.Hash, len(in.entries)), make([]cas.Location, len(in.entries))
	for i := range in.entries {
		hashes[i] = in.entries[i].Hash
	}
	if in.failed = in.s.indexer.index.Locate(hashes, locs); in.failed != nil {
		return in.failed
	}
	for i, l := range locs {
		if l.Segment == 0 || !l.Kind.Serves(in.entries[i].Kind) {
			return in.refused
		}
	}
	in.entries = in.entries[:0]
	return nil
}

// unread reports whether err, which ended the look at a segment, is one of that segment's: damage of it and
// of nothing else.
func (in *replay) unread(err error) bool { return in.failed == nil && disk.Unreadable(err) }

// finish ends it: up to mark the index has all.
func (in *replay) finish(mark cas.Watermark) error {
	if err := in.commit(); err != nil {
		return err
	}
	s := in.s
	better, err := in.copies.Resolve(copies.Index{Base: s.reader.baseAt,
		Locate: func(h cas.Hash) (cas.Location, error) { return one(h, s.indexer.index.Locate) }})
	if err != nil || len(better) == 0 && mark == in.mark {
		return err
	}
	return s.indexer.index.Commit(better, mark)
}

// lowest is the entries, which lie behind what the index has, without the records of which there is one of a
// lower number: what was stored since may be written against that one. Of equals the last one is as good.
// Mostly there is one record of a chunk; more are left by a Compaction that was cut short, by a chunk that
// was stored afresh, and by a salvage, behind later ones. The copies are told of deltas among them.
func (in *replay) lowest() ([]cas.Entry, error) {
	s, entries := in.s, in.entries
	var hashes []cas.Hash
	for i := range entries {
		if entries[i].Delta {
			hashes = append(hashes, entries[i].Hash)
		}
	}
	if len(hashes) == 0 {
		return entries, nil
	}
	locs := make([]cas.Location, len(hashes))
	if err := s.indexer.index.Locate(hashes, locs); err != nil {
		return nil, err
	}
	have := map[key]cas.Location{}
	for i, l := range locs {
		if l.Segment != 0 {
			have[keyOf(hashes[i])] = l
		}
	}
	number := func(h cas.Hash, l cas.Location) uint8 {
		if !l.Delta {
			return 0
		}
		b, err := s.reader.baseAt(l, h)
		if err != nil {
			return anyNumber
		}
		return b.Number
	}
	return slices.DeleteFunc(entries, func(e cas.Entry) bool {
		l, ok := have[keyOf(e.Hash)]
		if ok && e.Delta && l.Delta {
			in.copies.Add(e.Hash, l, e.Location)
		}
		if ok && e.Delta && l.Kind.Serves(e.Kind) && number(e.Hash, l) < number(e.Hash, e.Location) {
			return true
		}
		have[keyOf(e.Hash)] = e.Location
		return false
	}), nil
}
