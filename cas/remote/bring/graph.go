package bring

import (
	"context"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
)

// Graph puts the architecture of an entry's model into a batch, as far as the remote still has it: a file is
// none the worse without.
func (x *Bringer) Graph(ctx context.Context, b *store.Batch, e *record.Entry) error {
	if e.File == nil || e.File.Model == nil || len(e.File.Model.Graph) == 0 {
		return nil
	}
	parts := e.File.Model.Graph
	hashes, held := make([]cas.Hash, len(parts)), make([]bool, len(parts))
	for i := range parts {
		hashes[i] = parts[i].Hash
	}
	if err := b.PutHeld(cas.Event, hashes, held); err != nil {
		return err
	}
	var wants []fetch.Record
	var of []cas.Hash
	for i, p := range parts {
		if !held[i] {
			o := record.Object{ID: p.Object, Class: record.ClassMeta}
			wants = append(wants, fetch.Record{Object: o, Off: p.Off, Stored: p.Stored})
			of = append(of, p.Hash)
		}
	}
	err := x.Reader.Each(ctx, wants, func(i int, rec *segment.Record, payload []byte) error {
		if rec.Hash != of[i] || rec.Kind != cas.Event || codec.NeedsBase(rec.Codec) {
			return fmt.Errorf("%s %s, want part %s of a graph: %w", rec.Kind, rec.Hash.Short(), of[i].Short(),
				cas.ErrCorrupt)
		}
		raw, err := decode(nil, rec, payload, nil, 0)
		if err == nil {
			_, err = b.PutStored(*rec, payload, raw)
		}
		return err
	})
	if fetch.Lost(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: its architecture: %w", e.Path, err)
	}
	return nil
}
