package volume

import (
	"fmt"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats/safetensors"
)

// crowd is a safetensors file of n tensors of 64 bytes, of which every so manieth is another in each step.
func crowd(t testing.TB, n, every, step int) []byte {
	t.Helper()
	entries := make([]safetensors.Entry, n)
	var data []byte
	for i := range entries {
		entries[i] = safetensors.Entry{Name: fmt.Sprintf("layer.%04d", i), DType: "F32", Shape: []int64{16}}
		seed := uint64(i)
		if i%every == 0 {
			seed += uint64(n * step)
		}
		data = append(data, random(64, seed)...)
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// The manifests of a run are stored against each other, and steps that come and go leave the others whole:
// evicted, pruned, checked, after a crash and without the index.
func TestManifestsOfARun(t *testing.T) {
	r := newRig(t)
	const steps, tensors = 10, 1000
	step := func(i int) string { return fmt.Sprintf("m-%d.safetensors", 10*i) }
	live := map[int]bool{}
	same := func(what string) {
		t.Helper()
		r.evictAll()
		for i := range live {
			r.want(step(i), packed)
			r.same(step(i), crowd(t, tensors, 50, i))
		}
		if r.sound(); t.Failed() {
			t.Fatal(what)
		}
	}
	for i := range steps {
		r.write(step(i), crowd(t, tensors, 50, i))
		r.pack(step(i))
		live[i] = true
		h, m := r.manifestOf(step(i))
		var at [1]cas.Location
		if err := r.store.Locate([]cas.Hash{h}, at[:]); err != nil {
			t.Fatal(err)
		}
		// Every eighth stands alone; of the others one refers to four steps back at most, of 20 tensors each.
		if key := i%8 == 0; len(m.Tensors) != tensors || at[0].Delta == key ||
			!key && at[0].Stored > 4*20*40+1024 {
			t.Errorf("step %d: manifest of %d tensors: %+v", i, len(m.Tensors), at[0])
		}
	}
	same("saved")
	for _, gone := range [][]int{{0, 3}, {1, 4, 5}, {8}} {
		for _, i := range gone {
			r.unlink(step(i))
			delete(live, i)
		}
		r.prune(now)
		same(fmt.Sprint("without ", gone))
	}
	r = r.crashed()
	same("after a crash")
	r = r.withoutIndex()
	same("without index")
	for i := range live {
		r.unlink(step(i))
		delete(live, i)
	}
	r.wantNothing()
}
