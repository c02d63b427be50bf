package fetch

import (
	"context"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Plan reads the plan of a file that is not inline. Its objects are those of the file's entry.
func (r *Reader) Plan(ctx context.Context, f *record.File) (p *record.Plan, err error) {
	err = r.Each(ctx, []Record{metaRecord(f.Plan)}, func(_ int, rec *segment.Record, payload []byte) error {
		if p, err = planOf(rec, payload); err != nil {
			return err
		}
		if p.Manifest != f.Manifest || p.Size != f.Size {
			return fmt.Errorf("plan of another file: of manifest %s, %d bytes: %w", p.Manifest.Short(), p.Size,
				cas.ErrCorrupt)
		}
		return checkObjects(p, f)
	})
	return p, err
}

// metaRecord is a record of a meta object.
func metaRecord(at record.Ref) Record {
	o := record.Object{ID: at.Object, Class: record.ClassMeta}
	return Record{Object: o, Off: at.Off, Stored: at.Stored}
}

// planOf is the plan that a record holds.
func planOf(rec *segment.Record, payload []byte) (*record.Plan, error) {
	if rec.Kind != cas.Plan || rec.Codec != codec.Raw || rec.Raw != rec.Stored {
		return nil, fmt.Errorf("%s of codec %d, want a plan: %w", rec.Kind, rec.Codec, cas.ErrCorrupt)
	}
	if err := cas.Check(payload, rec.Hash); err != nil {
		return nil, err
	}
	return record.DecodePlan(payload)
}

// Plans reads plans of which no more is known than where they lie; nil where there is none.
func (r *Reader) Plans(ctx context.Context, at []record.Ref) ([]*record.Plan, error) {
	plans, all := make([]*record.Plan, len(at)), make([]Record, len(at))
	for i := range at {
		all[i] = metaRecord(at[i])
	}
	err := r.lenient(ctx, all, func(i int, rec *segment.Record, payload []byte) (err error) {
		plans[i], err = planOf(rec, payload)
		return err
	})
	return plans, err
}

// lenient is Each, but that records which are not there, or not as they should be, are passed over.
func (r *Reader) lenient(ctx context.Context, all []Record,
	f func(i int, rec *segment.Record, payload []byte) error) error {
	done := make([]bool, len(all))
	each := func(i int, rec *segment.Record, payload []byte) error {
		err := f(i, rec, payload)
		done[i] = err == nil
		return err
	}
	err := r.Each(ctx, all, each)
	if !Lost(err) {
		return err
	}
	for i := range all { // one that is wrong may have been read along with others
		if done[i] {
			continue
		}
		err := r.Each(ctx, all[i:i+1], func(_ int, rec *segment.Record, payload []byte) error {
			return each(i, rec, payload)
		})
		if err != nil && !Lost(err) {
			return err
		}
	}
	return nil
}

// checkObjects holds that all objects of a plan are kept for the file.
func checkObjects(p *record.Plan, f *record.File) error {
	kept := make(map[record.ID]bool, len(f.Deps))
	for _, id := range f.Deps {
		kept[id] = true
	}
	for _, o := range p.Objects {
		if !kept[o.ID] {
			return fmt.Errorf("its entry does not name object %s: %w", o.Class.Key(o.ID), cas.ErrCorrupt)
		}
	}
	return nil
}
