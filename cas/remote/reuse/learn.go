package reuse

import (
	"bytes"
	"context"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/index/manifest"
)

// part is an object of a plan, and how many records of it the plan has.
type part struct {
	record.Object
	n int
}

func partsOf(p *record.Plan) []part {
	parts := make([]part, len(p.Objects))
	for i, o := range p.Objects {
		parts[i].Object = o
	}
	parts[p.Record.Object].n++
	for _, r := range p.Lists {
		parts[r.Object].n++
	}
	for _, at := range p.Chunks {
		parts[at.Object].n++
	}
	for _, b := range p.Bases {
		parts[b.Object].n++
	}
	return parts
}

// learn has the State know what the objects of a plan have, and drops of what a file wants what is known now.
func (s *search) learn(ctx context.Context, t *target, p *record.Plan) error {
	var parts []part
	for _, o := range partsOf(p) {
		if !s.seen[o.ID] && len(parts) < mostParts {
			parts = append(parts, o)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if err := s.footers(ctx, parts, nil); err != nil {
		return err
	}
	return s.ask(t)
}

// footers reads what objects have, has the State know it, and calls look with it, one object after the other.
// Of an object that is not there, or not as it should be, there is nothing.
func (s *search) footers(ctx context.Context, parts []part,
	look func(o record.ID, records []segment.Record)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range parts {
		g.Go(func() error {
			records, err := s.Reader.Footer(ctx, o.Object, o.n)
			there := err == nil
			if there {
				err = s.State.Learn(o.Object, alone(records))
			}
			if err != nil && !fetch.Lost(err) {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.seen[o.ID] = there; look != nil {
				look(o.ID, records)
			}
			return nil
		})
	}
	return g.Wait()
}

// alone are the records that need no other. Those of a kind or a codec that is not known may.
func alone(records []segment.Record) []objects.Placed {
	placed := make([]objects.Placed, 0, len(records))
	for i := range records {
		r := &records[i]
		if _, err := codec.ByID(r.Codec); err == nil && r.Kind >= cas.Chunk && r.Kind <= cas.Event {
			placed = append(placed, objects.Placed{Hash: r.Hash, Off: r.Off, Raw: r.Raw, Stored: r.Stored,
				Kind: r.Kind})
		}
	}
	return placed
}

// relyOn takes a file to be there as a whole, if it is as the plan has it in so many of its objects.
func (s *search) relyOn(ctx context.Context, t *target, whole *objects.Whole, most int) error {
	p := whole.Plan
	lists := t.doc.Lists()
	chunks, err := t.doc.Chunks(s.Get)
	if err != nil {
		return nil // who publishes it says what is wrong
	}
	if p.Size != t.doc.Size || int(p.Record.Raw) != t.raw || len(p.Lists) != len(lists) ||
		len(p.Chunks) != len(chunks) {
		return nil
	}
	parts := partsOf(p)
	n := min(most, len(parts))
	some := make([]part, n)
	for i := range some {
		some[i] = parts[i*len(parts)/n]
	}
	c := &comparison{plan: p, lists: lists, chunks: chunks}
	same := true
	err = s.footers(ctx, some, func(o record.ID, records []segment.Record) {
		same = same && c.is(o, records)
	})
	if same && err == nil {
		s.whole[t.Manifest] = whole
	}
	return err
}

// comparison holds a plan against what is known here, and against what an object has.
type comparison struct {
	plan   *record.Plan
	lists  []cas.Hash
	chunks []manifest.Span
}

// is reports whether an object has what the plan has in it.
func (c *comparison) is(id record.ID, records []segment.Record) bool {
	at := make(map[int64]*segment.Record, len(records))
	for i := range records {
		at[records[i].Off] = &records[i]
	}
	has := func(x record.Place, h []byte) bool {
		if c.plan.Objects[x.Object].ID != id {
			return true
		}
		r := at[x.Off]
		return r != nil && r.Stored == x.Stored && bytes.HasPrefix(r.Hash[:], h)
	}
	same := has(c.plan.Record.Place, c.plan.Manifest[:])
	for i, h := range c.lists {
		same = same && has(c.plan.Lists[i].Place, h[:])
	}
	for i := range c.chunks {
		same = same && has(c.plan.Chunks[i], c.chunks[i].Hash[:])
	}
	for i := range c.plan.Bases {
		same = same && has(c.plan.Bases[i].Place, c.plan.Bases[i].Hash[:])
	}
	return same
}
