package bring

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/state"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
)

// machine is a local store and one that publishes from it.
type machine struct {
	store *store.Store
	state *state.DB
	*writer.Writer
}

func newMachine(t testing.TB, b bucket.Bucket, n byte) *machine {
	t.Helper()
	m := &machine{store: newStore(t)}
	var err error
	if m.state, err = state.Open(filepath.Join(t.TempDir(), "remote.db"), [16]byte{n}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.state.Close() })
	m.Writer = writer.New(writer.Options{Bucket: b, Remote: record.ID{9}, State: m.state, Parallel: 2,
		Now: time.Now, Random: rand.NewChaCha8([32]byte{n}),
		Register: func(ctx context.Context) (record.Writer, error) {
			w := record.Writer(fmt.Sprintf("test.%08x", n))
			_, err := b.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
			return w, err
		}})
	return m
}

// publish pushes a file, and returns its entry as others see it.
func (m *machine) publish(t testing.TB, path string, f *saved) (*record.Entry, writer.Result) {
	t.Helper()
	src := local.Begin(m.store)
	defer src.Close()
	e := record.Entry{Path: path, Kind: record.KindFile, Mode: 0o644,
		File: &record.File{Size: int64(len(f.content)), Manifest: f.manifest}}
	res, err := m.Push(t.Context(), src, writer.Changes{Entries: []record.Entry{e}})
	if err != nil || len(res.Failed) > 0 {
		t.Fatal(res.Failed, err)
	}
	found := res.Head.Find(path)
	if len(found) != 1 {
		t.Fatalf("%d entries of %s", len(found), path)
	}
	return &found[0], res
}

// What one machine pushes step by step another brings, all of it or what it lacks, and pushes on from there.
func TestPushed(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two, late := newMachine(t, b, 1), newMachine(t, b, 2), newMachine(t, b, 3)
	var f *saved
	var e *record.Entry
	for v := range 8 {
		f = save(t, one.store, v, f)
		e, _ = one.publish(t, fmt.Sprintf("runs/a/%d/model.pt", v), f)
		b.gets = 0
		got, err := bringTo(t, two.store, b, nil, e)
		if err != nil || !bytes.Equal(got, f.content) {
			t.Fatalf("step %d: %d bytes, %v", v, len(got), err)
		}
		if b.gets > 4 { // the plan, manifest and lists, chunks in two objects at most
			t.Errorf("step %d: %d requests", v, b.gets)
		}
		sameStored(t, one.store, two.store, f)
	}
	got, err := bringTo(t, late.store, b, nil, e)
	if err != nil || !bytes.Equal(got, f.content) {
		t.Fatalf("the last alone: %d bytes, %v", len(got), err)
	}
	sameStored(t, one.store, late.store, f)
	g := save(t, two.store, 8, f)
	e, _ = two.publish(t, "runs/b/1/model.pt", g)
	for _, m := range []*machine{one, late} {
		if got, err := bringTo(t, m.store, b, nil, e); err != nil || !bytes.Equal(got, g.content) {
			t.Errorf("another machine's: %d bytes, %v", len(got), err)
		}
		sameStored(t, two.store, m.store, g)
	}
	if _, res := one.publish(t, "runs/a/7/again.pt", f); res.Bytes > 16<<10 {
		t.Errorf("what is there was put again: %d bytes", res.Bytes)
	}
}

// What was brought is known to the next push, deltas too: it is relied on, and its bases with it.
func TestBroughtIsKnown(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := newMachine(t, b, 1), newMachine(t, b, 2)
	var f *saved
	var e *record.Entry
	for v := range 4 {
		f = save(t, one.store, v, f)
		e, _ = one.publish(t, fmt.Sprintf("runs/a/%d/model.pt", v), f)
	}
	batch := two.store.Begin()
	defer batch.Release()
	x := &Bringer{Reader: &fetch.Reader{Bucket: b}, Store: two.store, Learn: two.state.Learn}
	if err := x.File(t.Context(), batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	again, res := two.publish(t, "runs/b/1/model.pt", f)
	if res.Bytes > 8<<10 { // the plan and the commit record
		t.Errorf("%d bytes put", res.Bytes)
	}
	late := newStore(t)
	if got, err := bringTo(t, late, b, nil, again); err != nil || !bytes.Equal(got, f.content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
