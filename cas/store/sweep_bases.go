package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// deltaRecord is a delta that a segment holds.
type deltaRecord struct {
	hash cas.Hash
	loc  cas.Location
	kept bool // whether it is wanted or not
	done bool // its base is marked
}

// bases marks what the deltas need that stay: those that are marked, wherever the index has them, those that
// a batch has, and those in segments that are too young to be swept, or have no footer. Those of deltas that
// are put from here on are in use: a batch that depends on one that another is storing has no pins on its
// bases, but then the record was looked at here.
//
// An error says that it cannot be told which bases are needed. A delta whose own record is damaged needs
// none. What one needs that the disk does not read may be any chunk: then blind says so, and the sweep takes
// no chunk that the index has.
func (w *sweep) bases(ctx context.Context) error {
	var ds []deltaRecord
	var unread []uint32
	for _, sealed := range []bool{false, true} {
		// First those that are being written: one that is sealed meanwhile is looked at twice, not never.
		recs, not, err := w.s.deltasIn(ctx, sealed, w.deadline.Unix())
		if err != nil {
			return err
		}
		ds, unread = append(ds, recs...), append(unread, not...)
	}
	for again := true; again; {
		again = false
		for i := range ds {
			d := &ds[i]
			if _, marked := w.marked[keyOf(d.hash)]; d.done ||
				!d.kept && !marked && !w.s.pins.inUse(keyOf(d.hash)) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			d.done, again = true, true
			b, _, err := w.s.reader.baseOf(d.hash, d.loc)
			if errors.Is(err, cas.ErrCorrupt) {
				continue
			}
			if disk.Unreadable(err) {
				w.blind = cmp.Or(w.blind, d.loc.Segment)
				continue
			}
			if err != nil {
				return fmt.Errorf("segment %08d: which chunks are needed cannot be told: %w", d.loc.Segment,
					err)
			}
			for _, h := range b.Hashes() {
				w.marked[keyOf(h)] = struct{}{}
			}
		}
	}
	if len(unread) == 0 {
		return nil
	}
	done := map[key]bool{}
	for i := range ds {
		done[keyOf(ds[i].hash)] = done[keyOf(ds[i].hash)] || ds[i].done
	}
	// What is wanted and in no index may lie there, too: a start could not read its late entry.
	nowhere := maps.Clone(w.marked)
	err := w.s.indexer.forEach(func(e cas.Entry) error {
		k := keyOf(e.Hash)
		_, marked := w.marked[k]
		delete(nowhere, k)
		if e.Delta && !done[k] && slices.Contains(unread, e.Segment) && (marked || w.s.pins.inUse(k)) {
			w.blind = e.Segment
		}
		return nil
	})
	for k := range nowhere {
		if !done[k] {
			w.blind = cmp.Or(w.blind, unread[0])
		}
	}
	return err
}

// deltasIn lists the deltas of the segments that are sealed, or of those that are being written. All are kept
// of those that were sealed after the deadline. unread are the segments that may have more of them.
func (s *Store) deltasIn(ctx context.Context, sealed bool, deadline int64) (
	ds []deltaRecord, unread []uint32, err error) {
	add := func(n uint32, rec *segment.Record, kept bool) {
		if rec.Kind.Indexed() && codec.NeedsBase(rec.Codec) {
			ds = append(ds, deltaRecord{hash: rec.Hash, loc: rec.Entry(n).Location, kept: kept})
		}
	}
	if !sealed {
		tails, _ := s.appender.tails.All()
		for _, t := range tails {
			for _, rec := range t.Records() {
				add(t.Number(), &rec, true)
			}
		}
		return ds, nil, nil
	}
	numbers, err := s.appender.tails.Sealed()
	if err != nil {
		return nil, nil, err
	}
	for _, n := range numbers {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		err := s.listed(n, deadline, add)
		if disk.Unreadable(err) {
			unread, err = append(unread, n), nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("segment %08d: which chunks are needed cannot be told: %w", n, err)
		}
	}
	return ds, unread, nil
}

// listed calls f with the records of a segment that is not being written. kept: it was sealed after the
// deadline, or has no footer, so that no sweep changes it. An error that disk.Unreadable knows says that
// there may be more.
func (s *Store) listed(n uint32, deadline int64, f func(n uint32, rec *segment.Record, kept bool)) error {
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return r.EachOrScan(func(sealed time.Time, rec *segment.Record) {
		f(n, rec, sealed.IsZero() || sealed.Unix() > deadline)
	})
}
