package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
)

// deltaRecord is a delta that a segment holds.
type deltaRecord struct {
	hash  cas.Hash
	loc   cas.Location
	codec byte
	left  bool // in a segment without a footer, which no sweep changes: it stays
	young bool // it stays for the grace period
	done  bool // its base is marked
}

// Deltas calls f with the deltas that the segments hold and the index names, as far as they can be read, and
// with the codec of each.
func Deltas(ctx context.Context, s *Store, f func(h cas.Hash, loc cas.Location, id byte) error) error {
	for _, sealed := range []bool{false, true} {
		if _, err := s.deltasIn(ctx, sealed, 0, func(d deltaRecord) error {
			now, err := s.locateNow(false, d.hash)
			if err != nil || now.Segment != d.loc.Segment || now.Off != d.loc.Off {
				return err
			}
			return f(d.hash, d.loc, d.codec)
		}); err != nil {
			return err
		}
	}
	return nil
}

// bases marks what the deltas need that stay: those that are marked, wherever the index has them, those that
// a batch has, and those in segments that are too young to be swept, or have no footer. Those of deltas that
// are put from here on are in use: a batch that depends on one that another is storing has no pins on its
// bases, but then the record was looked at here.
//
// What only the young ones need, and what that needs, is in waits, too: a sweep without grace would take it.
//
// An error says that it cannot be told which bases are needed. A delta whose own record is damaged needs
// none. What one needs that the disk does not read may be any chunk: then blind says so, and the sweep takes
// no chunk that the index has.
func (w *sweep) bases(ctx context.Context) error {
	ds := spilled.NewSlab[deltaRecord](w.s.opt.Spill)
	var unread []uint32
	for _, sealed := range []bool{false, true} {
		// First those that are being written: one that is sealed meanwhile is looked at twice, not never.
		not, err := w.s.deltasIn(ctx, sealed, w.deadline.Unix(), func(d deltaRecord) error {
			d.young = d.young && (sealed || w.opt.Grace > 0 || !w.opt.DryRun) // else it would be sealed first
			*ds.New() = d
			return nil
		})
		if err != nil {
			return err
		}
		unread = append(unread, not...)
	}
	for _, young := range []bool{false, true} {
		if err := w.follow(ctx, ds, young); err != nil {
			return err
		}
	}
	if len(unread) > 0 {
		if err := w.suspect(ds, unread); err != nil {
			return err
		}
	}
	return w.marked.Err()
}

// follow marks the bases of deltas that stay, and theirs: without those that stay because they are young, or
// with them.
func (w *sweep) follow(ctx context.Context, ds *spilled.Slab[deltaRecord], young bool) error {
	for again := true; again; {
		again = false
		if err := ds.Each(func(d *deltaRecord) error {
			k := keyOf(d.hash)
			if d.done || !d.left && !(young && d.young) && !w.marked.MayHave(k) && !w.s.pins.inUse(k) {
				return nil
			}
			d.done = true
			more, err := w.needs(ctx, d.hash, d.loc, young)
			again = again || more
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// needs marks the bases of a delta that stays, and reports whether one was not marked before.
func (w *sweep) needs(ctx context.Context, h cas.Hash, loc cas.Location, young bool) (
	more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	b, _, err := w.s.reader.baseOf(h, loc)
	if errors.Is(err, cas.ErrCorrupt) {
		return false, nil
	}
	if disk.Unreadable(err) {
		w.blind = cmp.Or(w.blind, loc.Segment)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("segment %08d: which chunks are needed cannot be told: %w", loc.Segment, err)
	}
	for _, h := range b.Hashes() {
		added := w.marked.Add(keyOf(h))
		more = more || added
		if added && young && w.waits != nil {
			w.waits.Add(keyOf(h))
		}
	}
	return more, nil
}

// suspect has the sweep be blind if segments that the disk does not read may have deltas that stay, besides
// ds.
func (w *sweep) suspect(ds *spilled.Slab[deltaRecord], unread []uint32) error {
	done, held := spilled.NewSet(w.s.opt.Spill), spilled.NewSet(w.s.opt.Spill)
	if err := ds.Each(func(d *deltaRecord) error {
		if d.done {
			done.Add(keyOf(d.hash))
		}
		return nil
	}); err != nil {
		return err
	}
	err := w.s.indexer.forEach(func(e cas.Entry) error {
		k := keyOf(e.Hash)
		held.Add(k)
		if e.Delta && !done.Has(k) && slices.Contains(unread, e.Segment) &&
			(w.marked.MayHave(k) || w.s.pins.inUse(k)) {
			w.blind = e.Segment
		}
		return nil
	})
	// What is wanted and in no index may lie there, too: a start could not read its late entry.
	if !w.marked.Within(done, held) {
		w.blind = cmp.Or(w.blind, unread[0])
	}
	return err
}

// deltasIn calls f with the deltas of the segments that are sealed, or of those that are being written. Young
// are all of those that were sealed after the deadline. unread are the segments that may have more of them.
func (s *Store) deltasIn(ctx context.Context, sealed bool, deadline int64, f func(deltaRecord) error) (
	unread []uint32, err error) {
	var own error // f's, or the context's
	add := func(n uint32, rec *segment.Record, left, young bool) {
		if own == nil && rec.Kind.Indexed() && codec.NeedsBase(rec.Codec) {
			own = cmp.Or(ctx.Err(), f(deltaRecord{hash: rec.Hash, loc: rec.Entry(n).Location,
				codec: rec.Codec, left: left, young: young}))
		}
	}
	if !sealed {
		tails, _ := s.appender.tails.All()
		for _, t := range tails {
			for _, rec := range t.Records() {
				add(t.Number(), &rec, false, true)
			}
		}
		return nil, own
	}
	numbers, err := s.appender.tails.Sealed()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := segment.EachOrScan(s.fs, s.dir, s.segment(n), func(sealed time.Time, rec *segment.Record) {
			add(n, rec, sealed.IsZero(), sealed.Unix() > deadline)
		})
		if own != nil {
			return nil, own
		}
		if disk.Unreadable(err) {
			unread, err = append(unread, n), nil
		}
		if err != nil {
			return nil, fmt.Errorf("segment %08d: which chunks are needed cannot be told: %w", n, err)
		}
	}
	return unread, nil
}
