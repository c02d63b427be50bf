package mend

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// commit is what one commit record says, and when its object was put.
type commit struct {
	*record.Commit
	put time.Time
}

// scanned is what lies in the objects of a remote.
type scanned struct {
	commits map[record.Writer][]commit // of each the order in which they were made, as far as that is known
	there   []record.ID                // all d and m objects, ascending
	damaged []string                   // keys of meta objects that could not be read
}

const atOnce = 16 // requests

// scan reads all commit records, and lists what is there.
func (m *mending) scan(ctx context.Context) error {
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(m.o.Parallel, atOnce))
	for _, class := range []record.Class{record.ClassData, record.ClassMeta} {
		for info, err := range m.b.List(ctx, class.Prefix(), "") {
			if err != nil {
				return cmp.Or(g.Wait(), err)
			}
			_, id, ok := record.ParseObject(info.Key)
			if !ok {
				continue
			}
			m.there = append(m.there, id)
			m.say("looking for commit records in objects", int64(len(m.there)))
			if class != record.ClassMeta || info.Size > record.MaxObject {
				continue
			}
			g.Go(func() error {
				found, err := m.commitsIn(gctx, info.Key, id)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && damage(err) {
					m.damaged = append(m.damaged, info.Key)
					return nil
				}
				for _, c := range found {
					m.commits[c.Writer] = append(m.commits[c.Writer], commit{c, info.Modified})
				}
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.SortFunc(m.there, compareIDs)
	for _, all := range m.commits {
		slices.SortStableFunc(all, func(a, b commit) int {
			return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.put.Compare(b.put), compareIDs(a.ID, b.ID))
		})
	}
	return nil
}

// commitsIn reads the commit records of a meta object. These are of some MiB, and what else is in them is
// small: so an object is read as a whole.
func (m *mending) commitsIn(ctx context.Context, key string, id record.ID) (all []*record.Commit, err error) {
	p, _, err := bucket.Read(ctx, m.b, key, record.MaxObject, "")
	if err != nil {
		return nil, err
	}
	of := segment.ID{Store: id, Number: 1}
	r := bytes.NewReader(p)
	foot, err := segment.ReadFooter(r, int64(len(p)), of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, err, cas.ErrCorrupt)
	}
	err = foot.Each(r, func(at *segment.Record) error {
		if at.Kind != cas.Commit {
			return nil
		}
		if at.Off < 0 || at.Off > int64(len(p)) || at.End() > int64(len(p)) {
			return fmt.Errorf("%s: record at %d: %w", key, at.Off, cas.ErrCorrupt)
		}
		rec, err := segment.ParseRecord(p[at.Off:], of, at.Off)
		if err != nil {
			return err
		}
		payload := p[at.Off+segment.RecordHeaderSize:][:at.Stored]
		if rec.Stored != at.Stored || rec.Raw != rec.Stored {
			return fmt.Errorf("%s: commit record at %d: %w", key, at.Off, cas.ErrCorrupt)
		}
		if err := cas.Check(payload, rec.Hash); err != nil {
			return err
		}
		c, err := record.DecodeCommit(payload)
		if err == nil {
			all = append(all, c)
		}
		return err
	})
	return all, err
}

func compareIDs(a, b record.ID) int { return bytes.Compare(a[:], b[:]) }

// has reports whether an object is there.
func (s *scanned) has(id record.ID) bool {
	_, ok := slices.BinarySearchFunc(s.there, id, compareIDs)
	return ok
}
