package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Manifests reads the manifests of plans, and decodes them; nil where one is not there, or not as it should
// be.
func (r *Reader) Manifests(ctx context.Context, plans []*record.Plan) ([][]byte, error) {
	contents, all := make([][]byte, len(plans)), make([]Record, len(plans))
	against := make([][]byte, len(plans)) // payloads of those that are stored against others
	headers := make([]segment.Record, len(plans))
	for i, p := range plans {
		all[i] = recordOf(p, p.Record)
	}
	err := r.lenient(ctx, all, func(i int, rec *segment.Record, payload []byte) (err error) {
		if rec.Hash != plans[i].Manifest {
			return fmt.Errorf("record %s, want manifest %s: %w", rec.Hash.Short(), plans[i].Manifest.Short(),
				cas.ErrCorrupt)
		}
		if codec.NeedsBase(rec.Codec) {
			against[i], headers[i] = slices.Clone(payload), *rec
			return nil
		}
		contents[i], err = checked(rec, payload, nil, 0)
		return err
	})
	for i := 0; i < len(plans) && err == nil; i++ {
		if against[i] == nil {
			continue
		}
		contents[i], err = r.content(ctx, plans[i], &headers[i], against[i], segment.RoundedNumber+1)
		if Lost(err) {
			err = nil
		}
	}
	return contents, err
}

func recordOf(p *record.Plan, x record.Record) Record {
	return Record{Object: p.Objects[x.Object], Off: x.Off, Stored: x.Stored}
}

// checked is Content that is held against the record's hash.
func checked(rec *segment.Record, payload, bases []byte, first int) ([]byte, error) {
	raw, err := Content(nil, rec, payload, bases, first)
	if err == nil {
		err = cas.Check(raw, rec.Hash)
	}
	return raw, err
}

// content decodes a record of a plan, with all that it is stored against. Its number is below the given one.
func (r *Reader) content(ctx context.Context, p *record.Plan, rec *segment.Record, payload []byte,
	below uint8) ([]byte, error) {
	if !codec.NeedsBase(rec.Codec) {
		return checked(rec, payload, nil, 0)
	}
	b, err := segment.ParseBase(rec.Codec, payload)
	if err == nil && b.Number >= below {
		err = fmt.Errorf("delta of number %d, want less than %d: %w", b.Number, below, cas.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	var bases []byte
	first := 0
	for i, h := range b.Hashes() {
		base, err := r.base(ctx, p, h, b.Number)
		if err != nil {
			return nil, err
		}
		if bases = append(bases, base...); i == 0 {
			first = len(bases)
		}
	}
	return checked(rec, payload, bases, first)
}

// base reads a base that a plan has.
func (r *Reader) base(ctx context.Context, p *record.Plan, h cas.Hash, below uint8) (raw []byte, err error) {
	n := slices.IndexFunc(p.Bases, func(x record.Base) bool { return x.Hash == [16]byte(h[:16]) })
	if n < 0 {
		return nil, fmt.Errorf("the plan lacks %s: %w", h.Short(), cas.ErrCorrupt)
	}
	var rec segment.Record
	var payload []byte
	err = r.Each(ctx, []Record{recordOf(p, p.Bases[n].Record)},
		func(_ int, is *segment.Record, body []byte) error {
			if is.Hash != h {
				return fmt.Errorf("record %s, want %s: %w", is.Hash.Short(), h.Short(), cas.ErrCorrupt)
			}
			rec, payload = *is, slices.Clone(body)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return r.content(ctx, p, &rec, payload, below)
}

// Lost reports whether err says that what was asked for is not there, or not as it should be: nothing that
// passes.
func Lost(err error) bool {
	return err != nil && (!passes(err) || errors.Is(err, cas.ErrNewer))
}
