// Package bring copies files of a remote into the local store, as they are stored there.
//
//	plan → manifest and lists, with what these are stored against → chunks and their bases
//
// What the local store has is not fetched. A record is stored as it came, once its content was decoded and is
// what its hash names, and once what it is stored against is in the local store. So what the local store
// promises holds at each moment: a record's bases are there, and wrong bytes are not.
//
// A record that comes before its base waits for it, within a bound; beyond that it is fetched again.
package bring

import (
	"context"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/index/manifest"
)

// Bringer brings files. It may be used by several goroutines at once.
type Bringer struct {
	Reader *fetch.Reader
	Store  *store.Store
	// Learn, if not nil, is told what was put of an object, as it lies there. An error of it is File's.
	Learn func(o record.Object, records []objects.Placed) error
	// Stored, if not nil, is told how many bytes of an object were put.
	Stored func(object record.ID, bytes int64)
	// Progress, if not nil, is told of what was put, from several goroutines at once.
	Progress func(records, bytes int64)
}

// File puts all that reading an entry's file takes, which is not inline, into a batch, and its architecture.
// Who commits that batch, and gives the file a name before it is released, can read the file from the local
// store alone. Errors say which file, object and record they are of.
func (x *Bringer) File(ctx context.Context, b *store.Batch, e *record.Entry) error {
	t := &transfer{Bringer: x, batch: b, file: e.File, put: map[key]bool{},
		placed: map[record.Object][]objects.Placed{}}
	err := t.all(ctx)
	if err == nil {
		err = t.learn()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Path, err)
	}
	return x.Graph(ctx, b, e)
}

// transfer brings one file.
type transfer struct {
	*Bringer
	batch *store.Batch
	file  *record.File
	plan  *record.Plan // nil: not needed so far
	put   map[key]bool

	placed map[record.Object][]objects.Placed // what was put, by where it came from; under order.mu
}

// learn tells of what was put.
func (t *transfer) learn() error {
	for o, records := range t.placed {
		if t.Learn != nil {
			if err := t.Learn(o, records); err != nil {
				return err
			}
		}
		if t.Stored == nil {
			continue
		}
		var sum int64
		for i := range records {
			sum += segment.RecordHeaderSize + int64(records[i].Stored)
		}
		t.Stored(o.ID, sum)
	}
	return nil
}

func (t *transfer) all(ctx context.Context) error {
	m, err := t.manifest(ctx)
	if err != nil {
		return err
	}
	if m.Size != t.file.Size {
		return t.lies("a file of %d bytes, want %d", m.Size, t.file.Size)
	}
	if err := t.lists(ctx, m); err != nil {
		return err
	}
	return t.chunks(ctx, m)
}

// need reads the plan, unless that was done.
func (t *transfer) need(ctx context.Context) (err error) {
	if t.plan == nil {
		t.plan, err = t.Reader.Plan(ctx, t.file)
	}
	return err
}

// lacks pins hashes, and says which are not in the local store.
func (t *transfer) lacks(kind cas.Kind, hashes []cas.Hash) (not []int, err error) {
	held := make([]bool, len(hashes))
	err = t.batch.PutHeld(kind, hashes, held)
	for i, ok := range held {
		if !ok {
			not = append(not, i)
		}
	}
	return not, err
}

// manifest brings the manifest. With it come the lists: who lacks the one lacks the others, mostly, and they
// lie beside it.
func (t *transfer) manifest(ctx context.Context) (*manifest.Manifest, error) {
	h := t.file.Manifest
	not, err := t.lacks(cas.Manifest, []cas.Hash{h})
	if err != nil {
		return nil, err
	}
	if len(not) > 0 {
		if err := t.need(ctx); err != nil {
			return nil, err
		}
		all := []want{t.at(t.plan.Record, cas.Manifest, h)}
		for _, r := range t.plan.Lists {
			all = append(all, t.at(r, cas.List, cas.Hash{}))
		}
		if err := t.bring(ctx, all, func(k cas.Kind) bool { return k != cas.Chunk }); err != nil {
			return nil, err
		}
	}
	p, err := t.Store.Get(h, nil)
	if err != nil {
		return nil, err
	}
	return manifest.Decode(p)
}

// lists brings the lists of m that are not there.
func (t *transfer) lists(ctx context.Context, m *manifest.Manifest) error {
	hashes := m.Lists()
	not, err := t.lacks(cas.List, hashes)
	if err != nil || len(not) == 0 {
		return err
	}
	if err := t.need(ctx); err != nil {
		return err
	}
	if len(t.plan.Lists) != len(hashes) {
		return t.lies("a plan of %d lists, want %d", len(t.plan.Lists), len(hashes))
	}
	var all []want
	for _, i := range not {
		if !t.put[keyOf(hashes[i])] {
			all = append(all, t.at(t.plan.Lists[i], cas.List, hashes[i]))
		}
	}
	return t.bring(ctx, all, func(k cas.Kind) bool { return k != cas.Chunk })
}

// chunks brings the chunks of m that are not there.
func (t *transfer) chunks(ctx context.Context, m *manifest.Manifest) error {
	spans, err := m.Chunks(t.Store.Get)
	if err != nil {
		return err
	}
	hashes := make([]cas.Hash, len(spans))
	for i, s := range spans {
		hashes[i] = s.Hash
	}
	not, err := t.lacks(cas.Chunk, hashes)
	if err != nil || len(not) == 0 {
		return err
	}
	if err := t.need(ctx); err != nil {
		return err
	}
	if len(t.plan.Chunks) != len(hashes) {
		return t.lies("a plan of %d chunks, want %d", len(t.plan.Chunks), len(hashes))
	}
	var all []want
	for _, i := range not {
		if !t.put[keyOf(hashes[i])] {
			r := record.Record{Place: t.plan.Chunks[i], Raw: spans[i].Len}
			all = append(all, t.at(r, cas.Chunk, hashes[i]))
		}
	}
	return t.bring(ctx, all, func(cas.Kind) bool { return true })
}

func (t *transfer) lies(format string, args ...any) error {
	return fmt.Errorf("manifest %s: %s: %w", t.file.Manifest.Short(), fmt.Sprintf(format, args...),
		cas.ErrCorrupt)
}

// want is a record that is to be brought.
type want struct {
	fetch.Record
	raw  uint32
	kind cas.Kind
	hash cas.Hash // zero: not known, or not all of it
	key  key      // zero: not known either
}

func (w *want) known() bool { return w.key != key{} }

func (t *transfer) at(r record.Record, kind cas.Kind, h cas.Hash) want {
	return want{fetch.Record{Object: t.plan.Objects[r.Object], Off: r.Off, Stored: r.Stored}, r.Raw, kind, h,
		keyOf(h)}
}

// check holds what a record says against what is wanted. A chunk may be a record of another kind.
func (w *want) check(rec *segment.Record) error {
	switch {
	case rec.Raw != w.raw:
		return fmt.Errorf("record of %d bytes, want %d: %w", rec.Raw, w.raw, cas.ErrCorrupt)
	case rec.Kind != w.kind && (w.kind != cas.Chunk || rec.Kind < cas.Chunk || rec.Kind > cas.Event):
		return fmt.Errorf("a %s, want a %s: %w", rec.Kind, w.kind, cas.ErrCorrupt)
	case w.known() && w.key != keyOf(rec.Hash), !w.hash.IsZero() && w.hash != rec.Hash:
		return fmt.Errorf("record %s, want %x: %w", rec.Hash.Short(), w.key[:6], cas.ErrCorrupt)
	}
	return nil
}
