package objectstest

import (
	"context"
	"fmt"
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Read reads all that the plan of a file names, and holds each record against its place, its header and its
// bases, and the plan against the file.
func (s *Store) Read(ctx context.Context, b bucket.Bucket, f *record.File) error {
	p, r, err := read(ctx, b, record.ClassMeta, f.Plan.Object, f.Plan.Off, f.Plan.Stored)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if cas.Sum(p) != r.Hash || r.Kind != cas.Plan {
		return fmt.Errorf("plan: %s of kind %s: %w", r.Hash.Short(), r.Kind, errPlan)
	}
	plan, err := record.DecodePlan(p)
	if err != nil {
		return err
	}
	if plan.Manifest != f.Manifest {
		return errPlan
	}
	deps := map[record.ID]bool{}
	for _, id := range f.Deps {
		deps[id] = true
	}
	for _, o := range plan.Objects {
		_, info, err := b.Get(ctx, o.Class.Key(o.ID), 0, 0, "")
		if err != nil || info.Size != o.Len || !deps[o.ID] {
			return fmt.Errorf("object %s of %d bytes, a dep %v: %w", o.ID, o.Len, deps[o.ID], err)
		}
	}
	v := &planReader{ctx: ctx, b: b, plan: plan, numbers: map[cas.Hash]uint8{}}
	if err := v.all(); err != nil {
		return err
	}
	if err := v.closed(); err != nil {
		return err
	}
	return s.compare(plan, v)
}

type planReader struct {
	ctx     context.Context
	b       bucket.Bucket
	plan    *record.Plan
	numbers map[cas.Hash]uint8 // of all records
	bases   []segment.Base     // that records name, in the plan's order; zero: none
	hashes  []cas.Hash         // in the plan's order
}

func (v *planReader) all() error {
	if err := v.one(v.plan.Record.Place); err != nil {
		return err
	}
	for _, l := range v.plan.Lists {
		if err := v.one(l.Place); err != nil {
			return err
		}
	}
	for _, c := range v.plan.Chunks {
		if err := v.one(c); err != nil {
			return err
		}
	}
	for _, x := range v.plan.Bases {
		if err := v.one(x.Place); err != nil {
			return err
		}
		h := v.hashes[len(v.hashes)-1]
		if [16]byte(h[:16]) != x.Hash || v.numbers[h] != x.Number {
			return fmt.Errorf("base %s of number %d: %w", h.Short(), x.Number, errPlan)
		}
	}
	return nil
}

func (v *planReader) one(at record.Place) error {
	o := v.plan.Objects[at.Object]
	p, r, err := read(v.ctx, v.b, o.Class, o.ID, at.Off, at.Stored)
	if err != nil {
		return err
	}
	var base segment.Base
	if codec.NeedsBase(r.Codec) {
		if base, err = segment.ParseBase(r.Codec, p); err != nil {
			return err
		}
	}
	v.bases = append(v.bases, base)
	v.numbers[r.Hash] = base.Number
	v.hashes = append(v.hashes, r.Hash)
	return nil
}

// closed holds that each base is in the plan, with a lower number, and that the plan says which they are.
func (v *planReader) closed() error {
	shown := v.hashes[1+len(v.plan.Lists):]
	for i, b := range v.bases[1+len(v.plan.Lists):] {
		var told, want []cas.Hash
		if v.plan.Against != nil {
			for _, n := range v.plan.Against[i] {
				told = append(told, shown[n-1])
			}
		}
		for _, h := range b.Hashes() {
			if slices.Contains(shown, h) {
				want = append(want, h)
			}
		}
		if !slices.Equal(told, want) {
			return fmt.Errorf("record %d against %v, want %v: %w", i, told, want, errPlan)
		}
	}
	for _, b := range v.bases {
		for _, h := range b.Hashes() {
			if number, ok := v.numbers[h]; !ok || number >= b.Number {
				return fmt.Errorf("base %s, there %v, of number %d for %d: %w", h.Short(), ok, number, b.Number,
					errPlan)
			}
		}
	}
	return nil
}

// compare holds that the plan has the file's records in their order.
func (s *Store) compare(plan *record.Plan, v *planReader) error {
	s.mu.Lock()
	f, ok := s.files[plan.Manifest]
	s.mu.Unlock()
	if !ok || len(plan.Lists) != len(f.lists) || plan.Size != f.size {
		return errPlan
	}
	want := append([]cas.Hash{plan.Manifest}, f.lists...)
	seen := map[cas.Hash]bool{}
	for _, h := range f.chunks {
		if !seen[h] {
			want = append(want, h)
		}
		seen[h] = true
	}
	for i, h := range want {
		if v.hashes[i] != h {
			return fmt.Errorf("record %d is %s: %w", i, v.hashes[i].Short(), errPlan)
		}
	}
	return nil
}

// read reads a record at a place.
func read(ctx context.Context, b bucket.Bucket, c record.Class, id record.ID, off int64, stored uint32) (
	[]byte, segment.Record, error) {
	p := make([]byte, segment.RecordHeaderSize+int(stored))
	body, _, err := b.Get(ctx, c.Key(id), off, int64(len(p)), "")
	if err != nil {
		return nil, segment.Record{}, err
	}
	defer body.Close()
	if _, err := io.ReadFull(body, p); err != nil {
		return nil, segment.Record{}, err
	}
	r, err := segment.ParseRecord(p, segment.ID{Store: id, Number: 1}, off)
	if err == nil {
		err = r.CheckPayload(p[segment.RecordHeaderSize:])
	}
	if err == nil && r.Stored != stored {
		err = errPlan
	}
	return p[segment.RecordHeaderSize:], r, err
}
