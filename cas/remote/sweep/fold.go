package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

const (
	// foldedFor is for how long the head of a folded writer stays.
	foldedFor = 90 * 24 * time.Hour
	// foldTries is how often a writer is folded that changes meanwhile, in one collection.
	foldTries = 4
)

// foldIdle moves what idle writers hold to @archive, as they were read by the last mark.
func (c *collection) foldIdle(ctx context.Context) error {
	idle := map[record.Writer]bool{}
	for w, h := range c.heads.Heads {
		rest := c.heads.Date.Sub(h.Time)
		switch {
		case !w.IsStore():
		case h.Sequence > 0 && !h.Folded && rest >= c.o.Fold:
			idle[w] = true
		case h.Folded && rest >= foldedFor:
			// Its writer registers again. What it sent before is on condition of a version that is no more.
			if err := c.b.Delete(ctx, []string{record.HeadKey(w)}); err != nil {
				return err
			}
		}
	}
	if len(idle) == 0 {
		return nil
	}
	left, err := foldable(c.marked, idle)
	if err != nil {
		return err
	}
	for i, w := range slices.Sorted(maps.Keys(idle)) {
		c.say("folding heads of idle writers", int64(i))
		if err := c.foldWriter(ctx, w, left); err != nil {
			return fmt.Errorf("fold %s: %w", w, err)
		}
	}
	return nil
}

// kept says what @archive has to have of an entry.
type kept byte

const (
	nothing   kept = iota // it is spare
	tombstone             // it is replaced, and covers something
	all
)

// foldable says what has to be kept of the entries of writers. What is spare or replaced stays so.
func foldable(m *survey.Mark, of map[record.Writer]bool) (map[identity]kept, error) {
	left := map[identity]kept{}
	err := m.Each(func(_ string, held []*record.Entry) error {
		for _, e := range held {
			if !of[e.Origin] {
				continue
			}
			switch {
			case names.Spare(e, held):
			case names.Replaced(e, held):
				left[identityOf(e)] = tombstone
			default:
				left[identityOf(e)] = all
			}
		}
		return nil
	})
	return left, err
}

// foldWriter commits what a writer holds to @archive, and empties its head if that is as it was then. If
// @archive or the head changed meanwhile, it begins again; what @archive has twice then is the same.
func (c *collection) foldWriter(ctx context.Context, w record.Writer, left map[identity]kept) error {
	for range foldTries {
		archive, at, err := c.archive(ctx)
		if err != nil {
			return err
		}
		s, _, err := c.state(ctx)
		if err != nil {
			return err
		}
		gone, err := c.heads.Named(ctx, s.Epoch)
		if err != nil {
			return err
		}
		h, version, err := c.heads.Fetch(ctx, w, "")
		if errors.Is(err, bucket.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Commit != c.heads.Heads[w].Commit || s.Epoch < max(archive.Stamp, h.Stamp) {
			return nil // it is not as it was marked, but for stamps: in a later collection
		}
		entries, err := c.held(ctx, w, h, left)
		if err != nil || needed(gone, entries) {
			return err
		}
		done, err := c.commitArchive(ctx, archive, at, s.Epoch, entries)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		done, err = c.empty(ctx, w, h, version, s.Epoch)
		if err != nil || done {
			return err
		}
	}
	return nil
}

// archive reads @archive's head, and makes it if there is none: before gc/state is read, as of any writer.
func (c *collection) archive(ctx context.Context) (*record.Head, bucket.Version, error) {
	for {
		h, version, err := c.heads.Fetch(ctx, record.ArchiveWriter, "")
		if !errors.Is(err, bucket.ErrNotFound) {
			return h, version, err
		}
		_, err = c.put(ctx, record.HeadKey(record.ArchiveWriter), nil, bucket.Cond{Absent: true})
		if err != nil && !refused(err) {
			return nil, "", err
		}
	}
}

// needed reports whether entries need an object of the set.
func needed(s survey.IDSet, entries []record.Entry) bool {
	return slices.ContainsFunc(entries, func(e record.Entry) bool {
		return e.File != nil && slices.ContainsFunc(e.File.Deps, s.Has)
	})
}

// held is what has to be kept of a head.
func (c *collection) held(ctx context.Context, w record.Writer, h *record.Head, left map[identity]kept) (
	entries []record.Entry, err error) {
	seen := map[string]bool{}
	add := func(list []record.Entry) {
		for _, e := range list {
			if seen[e.Path] {
				continue
			}
			seen[e.Path] = true
			switch left[identityOf(&e)] {
			case tombstone:
				entries = append(entries, record.Entry{Path: e.Path, Kind: record.KindTombstone,
					Origin: e.Origin, Version: e.Version, Over: e.Over})
			case all:
				entries = append(entries, e)
			}
		}
	}
	add(h.Tail)
	for _, t := range h.Tables {
		read, err := c.heads.ReadTable(ctx, w, t)
		if err != nil {
			return nil, err
		}
		if err := read.Each(add); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// commitArchive adds entries to @archive; false: it was changed meanwhile.
func (c *collection) commitArchive(ctx context.Context, h *record.Head, at bucket.Version, epoch uint32,
	entries []record.Entry) (bool, error) {
	next := *h
	next.Remote, next.Stamp, next.Sequence, next.Time = c.o.Remote, epoch, h.Sequence+1, c.o.Now().UnixNano()
	if err := next.DrawCommit(c.o.Random); err != nil {
		return false, err
	}
	next.Tail = names.Union(record.ArchiveWriter, entries, h.Tail)
	for i := range entries {
		next.Clock = max(next.Clock, entries[i].Newest())
	}
	p, err := next.Encode(record.ArchiveWriter)
	if errors.Is(err, cas.ErrTooLarge) || err == nil && len(p) > record.MaxTail {
		if next.Tables, err = c.tables(ctx, next.Tail, h.Tables); err != nil {
			return false, err
		}
		next.Tail = nil
		p, err = next.Encode(record.ArchiveWriter)
	}
	if err != nil {
		return false, err
	}
	_, err = c.put(ctx, record.HeadKey(record.ArchiveWriter), p, bucket.Cond{Version: at})
	if refused(err) {
		return false, nil
	}
	return err == nil, err
}

// tables puts tables of entries, and of newer tables that are of like size, and returns them in front of
// older ones. What is merged is in none of the older tables as it was: nothing goes by that.
func (c *collection) tables(ctx context.Context, entries []record.Entry, older []record.Table) (
	[]record.Table, error) {
	made, err := record.EncodeTables(record.ArchiveWriter, c.o.Random, entries)
	for err == nil && len(made) == 1 {
		n := made[0].Mergeable(older)
		if n == 0 {
			break
		}
		if entries, err = c.merged(ctx, entries, older[:n]); err != nil {
			return nil, err
		}
		older = older[n:]
		made, err = record.EncodeTables(record.ArchiveWriter, c.o.Random, entries)
	}
	if err != nil {
		return nil, err
	}
	var all []record.Table
	for _, t := range made {
		body := bucket.Bytes(t.Bytes)
		body.Immutable = true
		if _, err := c.putBody(ctx, record.ClassTable.Key(t.ID), body, t.Bytes,
			bucket.Cond{Absent: true}); err != nil {
			return nil, err
		}
		all = append(all, t.Table)
	}
	return append(all, older...), nil
}

// merged is entries with those of tables of @archive, newest first.
func (c *collection) merged(ctx context.Context, entries []record.Entry, tables []record.Table) (
	[]record.Entry, error) {
	lists := [][]record.Entry{entries}
	for _, t := range tables {
		read, err := c.heads.ReadTable(ctx, record.ArchiveWriter, t)
		if err != nil {
			return nil, err
		}
		var list []record.Entry
		if err := read.Each(func(part []record.Entry) { list = append(list, part...) }); err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	return names.Union(record.ArchiveWriter, lists...), nil
}

// empty empties a writer's head, if it is as it was read; false: it is not.
func (c *collection) empty(ctx context.Context, w record.Writer, h *record.Head, version bucket.Version,
	epoch uint32) (bool, error) {
	commit, err := record.DrawID(c.o.Random)
	if err != nil {
		return false, err
	}
	folded := record.Head{Remote: c.o.Remote, Instance: h.Instance, Commit: commit, Sequence: h.Sequence + 1,
		Stamp: epoch, Folded: true, Clock: h.Clock, Time: c.heads.Date.UnixNano()}
	p, err := folded.Encode(w)
	if err != nil {
		return false, err
	}
	_, err = c.put(ctx, record.HeadKey(w), p, bucket.Cond{Version: version})
	if refused(err) {
		return false, nil
	}
	if err == nil {
		c.stats.Folded++
	}
	return err == nil, err
}
