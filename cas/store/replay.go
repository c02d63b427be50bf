package store

import (
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
	entries, err := in.copies.Lowest(in.known(), in.entries)
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

// known is what the index has.
func (in *replay) known() copies.Index {
	return copies.Index{Base: in.s.reader.baseAt, Locate: in.s.indexer.index.Locate}
}

// finish ends it: up to mark the index has all.
func (in *replay) finish(mark cas.Watermark) error {
	if err := in.commit(); err != nil {
		return err
	}
	s := in.s
	better, err := in.copies.Resolve(in.known())
	if err != nil || len(better) == 0 && mark == in.mark {
		return err
	}
	return s.indexer.index.Commit(better, mark)
}
