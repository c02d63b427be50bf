package sweep

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/survey"
)

// identity is an entry's.
type identity struct {
	path    string
	origin  record.Writer
	version int64
}

func identityOf(e *record.Entry) identity { return identity{e.Path, e.Origin, e.Version} }

// stamp gives each head that is there the stamp of an epoch, and takes out what may go.
func (c *collection) stamp(ctx context.Context, e *record.Epoch) error {
	m, err := c.heads.Mark(ctx)
	if err != nil {
		return err
	}
	past := &past{since: c.heads.Date.Add(time.Second - c.o.Grace)} // a date has whole seconds
	past.condemned.AddKeys(e.Objects)
	past.condemned.Sort()
	spare, err := spareOf(m, past)
	if err != nil {
		return err
	}
	for i, w := range slices.Sorted(maps.Keys(m.Heads)) {
		c.say("telling writers", int64(i))
		if err := c.stampHead(ctx, w, e.Number, past, spare); err != nil {
			return err
		}
	}
	return nil
}

// spareOf are the entries of tails that may go.
func spareOf(m *survey.Mark, past *past) (map[identity]bool, error) {
	inTail := map[identity]bool{}
	for _, tail := range m.Tails {
		for i := range tail {
			inTail[identityOf(&tail[i])] = true
		}
	}
	spare := map[identity]bool{}
	err := m.Each(func(_ string, held []*record.Entry) error {
		for _, e := range held {
			if id := identityOf(e); inTail[id] && names.Spare(past.forget(e), held) {
				spare[id] = true
			}
		}
		return nil
	})
	return spare, err
}

// past tells what cannot be brought back any more.
type past struct {
	condemned survey.IDSet
	since     time.Time // what was removed before is past the grace
}

// forget is an entry, which does not tell what it removed if that is past.
func (p *past) forget(e *record.Entry) *record.Entry {
	if e.Removed == nil {
		return e
	}
	f := e.Removed.Entry.File
	if time.Unix(0, e.Removed.Time).After(p.since) &&
		(f == nil || !slices.ContainsFunc(f.Deps, p.condemned.Has)) {
		return e
	}
	plain := *e
	plain.Removed = nil
	return &plain
}

// stampHead stamps a head until it is stamped.
func (c *collection) stampHead(ctx context.Context, w record.Writer, n uint32, past *past,
	spare map[identity]bool) error {
	for {
		h, version, err := c.heads.Fetch(ctx, w, "")
		if errors.Is(err, bucket.ErrNotFound) {
			return nil
		}
		if err != nil || h.Stamp >= n {
			return err
		}
		h.Remote, h.Stamp = c.o.Remote, n
		entries := len(h.Tail)
		h.Tail = slices.DeleteFunc(h.Tail, func(e record.Entry) bool { return spare[identityOf(&e)] })
		for i := range h.Tail {
			h.Tail[i] = *past.forget(&h.Tail[i])
		}
		p, err := h.Encode(w)
		if err != nil {
			return err
		}
		_, err = c.b.Put(ctx, record.HeadKey(w), bucket.Bytes(p), bucket.Cond{Version: version})
		switch {
		case err == nil:
			c.stats.Stamped++
			c.stats.TakenOut += entries - len(h.Tail)
			return nil
		case !refused(err) && !errors.Is(err, bucket.ErrDoubt) && !errors.Is(err, bucket.ErrConflict):
			return err
		}
	}
}
