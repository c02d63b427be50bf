package reuse

import (
	"context"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
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
	for at := range places(p) {
		parts[at.Object].n++
	}
	return parts
}

// places yields all places of a plan.
func places(p *record.Plan) func(yield func(record.Place) bool) {
	return func(yield func(record.Place) bool) {
		if !yield(p.Record.Place) {
			return
		}
		for _, r := range p.Lists {
			if !yield(r.Place) {
				return
			}
		}
		for _, at := range p.Chunks {
			if !yield(at) {
				return
			}
		}
		for _, b := range p.Bases {
			if !yield(b.Place) {
				return
			}
		}
	}
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
	if _, err := s.footers(ctx, parts); err != nil {
		return err
	}
	return s.ask(t)
}

// footers reads what objects have, and has the State know it. Of an object that is not there, or not as it
// should be, there is nothing.
func (s *search) footers(ctx context.Context, parts []part) (map[record.ID][]segment.Record, error) {
	all := map[record.ID][]segment.Record{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range parts {
		g.Go(func() error {
			records, err := s.Reader.Footer(ctx, o.Object, o.n)
			if fetch.Lost(err) {
				return nil
			}
			if err == nil {
				err = s.State.Learn(o.Object, alone(records))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			all[o.ID], s.seen[o.ID] = records, err == nil
			return err
		})
	}
	return all, g.Wait()
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
	footers, err := s.footers(ctx, some)
	if err != nil {
		return err
	}
	c := &comparison{plan: p, at: map[record.ID]map[int64]*segment.Record{}}
	for _, o := range some {
		c.at[o.ID] = map[int64]*segment.Record{}
		for i := range footers[o.ID] {
			c.at[o.ID][footers[o.ID][i].Off] = &footers[o.ID][i]
		}
	}
	same := c.has(p.Record.Place, t.Manifest)
	for i, h := range lists {
		same = same && c.has(p.Lists[i].Place, h)
	}
	for i := range chunks {
		same = same && c.has(p.Chunks[i], chunks[i].Hash)
	}
	for i := range p.Bases {
		b := &p.Bases[i]
		r, looked := c.record(b.Place)
		same = same && (!looked || r != nil && [16]byte(r.Hash[:16]) == b.Hash)
	}
	if same {
		s.whole[t.Manifest] = whole
	}
	return nil
}

// comparison holds a plan against what objects have, as far as that was read.
type comparison struct {
	plan *record.Plan
	at   map[record.ID]map[int64]*segment.Record // by offset
}

// record is what lies at a place; nil: no record of that length. looked: its object was read.
func (c *comparison) record(at record.Place) (r *segment.Record, looked bool) {
	in, looked := c.at[c.plan.Objects[at.Object].ID]
	if r = in[at.Off]; r != nil && r.Stored != at.Stored {
		r = nil
	}
	return r, looked
}

// has reports whether a record is where the plan has it, or that was not looked at.
func (c *comparison) has(at record.Place, h cas.Hash) bool {
	r, looked := c.record(at)
	return !looked || r != nil && r.Hash == h
}
