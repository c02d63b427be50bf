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
	at := Record{Object: record.Object{ID: f.Plan.Object, Class: record.ClassMeta}, Off: f.Plan.Off,
		Stored: f.Plan.Stored}
	err = r.Each(ctx, []Record{at}, func(_ int, rec *segment.Record, payload []byte) error {
		if rec.Kind != cas.Plan || rec.Codec != codec.Raw || rec.Raw != rec.Stored {
			return fmt.Errorf("%s of codec %d, want a plan: %w", rec.Kind, rec.Codec, cas.ErrCorrupt)
		}
		if err := cas.Check(payload, rec.Hash); err != nil {
			return err
		}
		if p, err = record.DecodePlan(payload); err != nil {
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
