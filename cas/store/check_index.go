package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"ckptfs/cas"
	"ckptfs/cas/damage"
	"ckptfs/cas/segment"
)

// index checks that every entry names a record.
func (c *checker) index(ctx context.Context) error {
	s := c.s
	index := s.indexer.now() // the next one, should there be one, has no damage yet
	if x, ok := index.(interface{ Check() error }); ok {
		if err := x.Check(); err != nil {
			c.found(damage.Finding{Problem: damage.BadIndex, Err: err})
		}
	}
	const prefixes = 64 // at a time: a long look keeps bbolt from using room again
	for p := 0; p <= 0xffff; p += prefixes {
		if err := ctx.Err(); err != nil {
			return err
		}
		var odd []cas.Entry
		err := index.ForEach(uint16(p), uint16(p+prefixes-1), func(e cas.Entry) error {
			c.st.Entries++
			if !c.knows(e) {
				odd = append(odd, e)
			}
			return nil
		})
		if err != nil {
			c.found(damage.Finding{Problem: damage.BadIndex, Err: err})
			return nil
		}
		for _, e := range odd {
			if what, err := c.wrong(e); err != nil {
				c.found(damage.Finding{Problem: what.By(err), Segment: e.Segment, Off: e.Off, Hash: e.Hash,
					Kind: e.Kind, Err: err})
			}
		}
	}
	return nil
}

func (c *checker) knows(e cas.Entry) bool {
	if e.Segment > c.last {
		return true
	}
	seen := c.segs[e.Segment]
	if seen == nil {
		return false
	}
	return e.Off >= seen.end || seen.Has(e.Off, &e.Hash)
}

// wrong looks again at an entry that seems to name no record: it may have been moved or removed meanwhile. If
// data is read, one that is there is, too: where a crash left no footer, the start lists what is whole.
func (c *checker) wrong(e cas.Entry) (damage.Problem, error) {
	s := c.s
	s.passes.reshaping.RLock()
	defer s.passes.reshaping.RUnlock()
	now, _, err := c.locate(e.Hash)
	if err != nil {
		return damage.BadEntry, err
	}
	if now != e.Location {
		return 0, nil
	}
	r, err := segment.Open(s.fs, s.dir, s.segment(e.Segment))
	if errors.Is(err, fs.ErrNotExist) {
		return damage.BadEntry, fmt.Errorf("%s is missing: %w", segment.Name(e.Segment), cas.ErrCorrupt)
	}
	if err != nil {
		return damage.BadEntry, err
	}
	defer r.Close()
	var rec segment.Record
	if err := r.HeaderAt(e.Off, &rec); err != nil {
		return damage.BadEntry, err
	}
	if !bytes.Equal(rec.Hash[:16], e.Hash[:16]) || rec.Stored != e.Stored || rec.Raw != e.Raw {
		return damage.BadEntry, fmt.Errorf("another record lies there: %w", cas.ErrCorrupt)
	}
	if !c.opt.ReadData || !c.chosen(rec.Hash) {
		return 0, nil
	}
	what, err := c.content(r, e.Location, &rec)
	if what == damage.BadChunk {
		what = damage.BadUnlisted
	}
	return what, err
}

func (c *checker) locate(h cas.Hash) (loc cas.Location, coming bool, err error) {
	loc, err = one(h, func(hashes []cas.Hash, locs []cas.Location) error {
		on, err := c.s.locateHere(hashes, locs)
		coming = on != nil
		return err
	})
	return loc, coming, err
}
