package fetch

import (
	"context"
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// Manifests reads the manifests of plans, and decodes them; nil where one is not there, or not as it should
// be.
func (r *Reader) Manifests(ctx context.Context, plans []*record.Plan) ([][]byte, error) {
	contents, all := make([][]byte, len(plans)), make([]Record, len(plans))
	for i, p := range plans {
		all[i] = recordOf(p, p.Record)
	}
	err := r.lenient(ctx, all, func(i int, rec *segment.Record, payload []byte) (err error) {
		if rec.Hash != plans[i].Manifest {
			return fmt.Errorf("record %s, want manifest %s: %w", rec.Hash.Short(), plans[i].Manifest.Short(),
				cas.ErrCorrupt)
		}
		if codec.NeedsBase(rec.Codec) {
			return fmt.Errorf("manifest %s does not stand alone: %w", rec.Hash.Short(), cas.ErrCorrupt)
		}
		raw, err := Content(nil, rec, payload, nil, 0)
		if err == nil {
			err = cas.Check(raw, rec.Hash)
		}
		if err == nil {
			contents[i] = raw
		}
		return err
	})
	return contents, err
}

func recordOf(p *record.Plan, x record.Record) Record {
	return Record{Object: p.Objects[x.Object], Off: x.Off, Stored: x.Stored}
}

// Lost reports whether err says that what was asked for is not there, or not as it should be: nothing that
// passes.
func Lost(err error) bool {
	return err != nil && (!passes(err) || errors.Is(err, cas.ErrNewer))
}
