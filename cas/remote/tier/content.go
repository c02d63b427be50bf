package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/segment"
)

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// content appends the content of the record h, at w, to dst. The record's number is below the given one: so
// there are no circles, whatever a hostile remote says. checked: the content is held against h.
func (t *Tier) content(ctx context.Context, w wanted, h cas.Hash, dst []byte, below uint8, checked bool) (
	out []byte, err error) {
	n := len(dst)
	err = t.reader.Each(ctx, []fetch.Record{w.record()},
		func(_ int, rec *segment.Record, payload []byte) error {
			if rec.Hash != h {
				return fmt.Errorf("record %s: %w", rec.Hash.Short(), cas.ErrCorrupt)
			}
			out, err = t.decode(ctx, w.p, rec, payload, dst, below, false)
			if err == nil && checked {
				err = cas.Check(out[n:], h)
			}
			if !codec.NeedsBase(rec.Codec) || !errors.Is(err, cas.ErrCorrupt) {
				return err
			}
			// What it is stored against may be wrong.
			if out, err = t.decode(ctx, w.p, rec, payload, dst, below, true); err == nil {
				err = cas.Check(out[n:], h)
			}
			return err
		})
	var base *baseError
	if errors.As(err, &base) {
		err = base.err // which says where that lies
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// decode appends the content of a record whose payload is at hand to dst. checked: what it is stored against
// is held against its hash.
func (t *Tier) decode(ctx context.Context, p *plan, rec *segment.Record, payload, dst []byte, below uint8,
	checked bool) ([]byte, error) {
	dst = slices.Grow(dst, int(rec.Raw))
	if !codec.NeedsBase(rec.Codec) {
		return fetch.Content(dst, rec, payload, nil, 0)
	}
	b, err := segment.ParseBase(rec.Codec, payload)
	if err != nil {
		return dst, err
	}
	if b.Number >= below {
		return dst, fmt.Errorf("delta of number %d, want less than %d: %w", b.Number, below, cas.ErrCorrupt)
	}
	bases := buffers.Get().(*[]byte)
	defer buffers.Put(bases)
	var first int
	*bases, first, err = delta.Gather((*bases)[:0], &b, func(buf []byte, h cas.Hash) ([]byte, error) {
		out, err := t.getOf(ctx, p, h, buf, b.Number, checked)
		if err != nil {
			err = &baseError{&cas.ChunkError{Hash: h, Err: err}}
		}
		return out, err
	})
	if err != nil {
		return dst, err
	}
	return fetch.Content(dst, rec, payload, *bases, first)
}

// getOf appends the content of a record that a plan should have, as content does.
func (t *Tier) getOf(ctx context.Context, p *plan, h cas.Hash, dst []byte, below uint8, checked bool) (
	[]byte, error) {
	out, err := t.o.Store.Get(h, dst)
	if err == nil || !lacks(err) {
		return out, err
	}
	n, ok := p.find(keyOf(h))
	if !ok {
		return dst, lies(p.Plan, "the plan lacks %s", h.Short())
	}
	w := wanted{p, n}
	if err := t.await(ctx, w); err != nil {
		return dst, err
	}
	return t.content(ctx, w, h, dst, below, checked)
}

// baseError is the error of what a record is stored against. It is none of the record's own, which is not to
// be read again for it: so it wraps nothing.
type baseError struct{ err error }

func (e *baseError) Error() string { return fmt.Sprintf("what it is stored against: %v", e.err) }
