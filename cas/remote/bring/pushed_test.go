package bring

import (
	"bytes"
	"fmt"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
)

// What one machine pushes step by step another brings, all of it or what it lacks, and pushes on from there.
func TestPushed(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := remotetest.NewMachine(t, b, 1), remotetest.NewMachine(t, b, 2)
	late := remotetest.NewMachine(t, b, 3)
	var f *remotetest.Saved
	var e *record.Entry
	for v := range 8 {
		f = blob.Save(t, one.Store, v, f)
		e, _ = one.Publish(t, fmt.Sprintf("runs/a/%d/model.pt", v), f)
		b.gets = 0
		got, err := bringTo(t, two.Store, b, nil, e)
		if err != nil || !bytes.Equal(got, f.Content) {
			t.Fatalf("step %d: %d bytes, %v", v, len(got), err)
		}
		if b.gets > 4 { // the plan, manifest and lists, chunks in two objects at most
			t.Errorf("step %d: %d requests", v, b.gets)
		}
		sameStored(t, one.Store, two.Store, f)
	}
	got, err := bringTo(t, late.Store, b, nil, e)
	if err != nil || !bytes.Equal(got, f.Content) {
		t.Fatalf("the last alone: %d bytes, %v", len(got), err)
	}
	sameStored(t, one.Store, late.Store, f)
	g := blob.Save(t, two.Store, 8, f)
	e, _ = two.Publish(t, "runs/b/1/model.pt", g)
	for _, m := range []*remotetest.Machine{one, late} {
		if got, err := bringTo(t, m.Store, b, nil, e); err != nil || !bytes.Equal(got, g.Content) {
			t.Errorf("another machine's: %d bytes, %v", len(got), err)
		}
		sameStored(t, two.Store, m.Store, g)
	}
	if _, res := one.Publish(t, "runs/a/7/again.pt", f); res.Bytes > 16<<10 {
		t.Errorf("what is there was put again: %d bytes", res.Bytes)
	}
}

// What was brought is known to the next push, deltas too: it is relied on, and its bases with it.
func TestBroughtIsKnown(t *testing.T) {
	b := &counting{Mem: &bucket.Mem{}}
	one, two := remotetest.NewMachine(t, b, 1), remotetest.NewMachine(t, b, 2)
	var f *remotetest.Saved
	var e *record.Entry
	for v := range 4 {
		f = blob.Save(t, one.Store, v, f)
		e, _ = one.Publish(t, fmt.Sprintf("runs/a/%d/model.pt", v), f)
	}
	batch := two.Store.Begin()
	defer batch.Release()
	x := &Bringer{Reader: &fetch.Reader{Bucket: b}, Store: two.Store, Learn: two.State.Learn}
	if err := x.File(t.Context(), batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	again, res := two.Publish(t, "runs/b/1/model.pt", f)
	if res.Bytes > 8<<10 { // the plan and the commit record
		t.Errorf("%d bytes put", res.Bytes)
	}
	late := remotetest.NewStore(t)
	if got, err := bringTo(t, late, b, nil, again); err != nil || !bytes.Equal(got, f.Content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
