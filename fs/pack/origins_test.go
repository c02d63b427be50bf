package pack

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/index/manifest"
)

// model is a safetensors file of tensors under these names, each of n weights of a model some steps on.
func model(t testing.TB, seed uint64, steps float64, n int, names ...string) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	entries := make([]safetensors.Entry, len(names))
	var data []byte
	for i, name := range names {
		entries[i] = safetensors.Entry{Name: name, DType: formats.DType("F32"), Shape: []int64{int64(n)}}
		for range n {
			w, change := r.NormFloat64(), r.NormFloat64()
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(w*(1+1e-6*change*steps))))
		}
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// deltas counts the chunks of tensors that are stored as deltas.
func (b *bench) deltas(t testing.TB, m *manifest.Manifest) (n int) {
	t.Helper()
	e := newEarlier(b.st, m)
	for i := range m.Regions {
		if m.Regions[i].Kind != formats.Data {
			continue
		}
		for _, s := range e.grid(&m.Regions[i]) {
			var loc [1]cas.Location
			if err := b.st.Locate([]cas.Hash{s.Hash}, loc[:]); err != nil {
				t.Fatal(err)
			}
			if loc[0].Delta {
				n++
			}
		}
	}
	return n
}

// Of several files that have the tensors, the nearest is taken, whatever their order; what has nothing to do
// with the file is not even tried; what lies in several files is found in all.
func TestNearestBase(t *testing.T) {
	const n = 70_000 // two chunks
	b := memBench(t)
	base := b.related(t, model(t, 1, 0, n, "a.w", "b.w"), Related{}).Manifest
	near := b.related(t, model(t, 1, 9, n, "model.a.w", "model.b.w"), Related{}).Manifest
	other := b.related(t, model(t, 2, 0, n, "a.w", "b.w"), Related{}).Manifest
	both := b.related(t, model(t, 1, 300, n, "ema.a.w", "ema.b.w", "model.a.w"), Related{}).Manifest
	shard := b.related(t, model(t, 1, 0, n, "a.w"), Related{}).Manifest
	wild := &manifest.Manifest{Format: "safetensors", Size: 8 * n, Tensors: base.Tensors,
		Regions: base.Regions}

	steps := 12.0
	tuned := func() []byte { // never held
		steps += 0.01
		return model(t, 1, steps, n, "a.w", "b.w")
	}
	var of [2]int64
	for i, m := range []*manifest.Manifest{near, base} {
		of[i] = b.related(t, tuned(), Related{Before: known(m)}).FreshStored
	}
	if of[0] >= of[1]*98/100 {
		t.Fatalf("%d bytes against the nearer one, %d against the other", of[0], of[1])
	}
	for name, c := range map[string]struct {
		rel    Related
		deltas int
		most   int64
	}{
		"the nearest":      {Related{Alike: known(base, other, near)}, 4, (of[0] + of[1]) / 2},
		"the nearest last": {Related{Alike: known(other, near, base)}, 4, (of[0] + of[1]) / 2},
		"before, renamed":  {Related{Before: known(near)}, 4, (of[0] + of[1]) / 2},
		"what is known":    {Related{Before: known(base), Alike: known(other)}, 4, of[1] * 101 / 100},
		"one of two":       {Related{Alike: known(both)}, 4, math.MaxInt64},
		"nothing alike":    {Related{Alike: known(other)}, 0, math.MaxInt64},
		"a shard":          {Related{Before: known(shard)}, 2, math.MaxInt64},
		"shards":           {Related{Before: known(shard, near)}, 4, of[1]},
		"gone":             {Related{Alike: known(wild)}, 0, math.MaxInt64},
	} {
		res := b.related(t, tuned(), c.rel)
		if got := b.deltas(t, res.Manifest); got != c.deltas || res.FreshStored > c.most {
			t.Errorf("%s: %d deltas, %d bytes, at most %d", name, got, res.FreshStored, c.most)
		}
	}
}

// A file with more that is alike than there are samples for is packed all the same, against one of them.
func TestManyAlike(t *testing.T) {
	b := memBench(t)
	var alike []*manifest.Manifest
	for i := range 30 {
		alike = append(alike, b.related(t, model(t, 1, float64(i), 5000, "a.w", fmt.Sprintf("only%d.w", i)),
			Related{}).Manifest)
	}
	if res := b.related(t, model(t, 1, 100, 5000, "a.w", "only29.w", "only3.w"),
		Related{Alike: alike}); b.deltas(t, res.Manifest) == 0 {
		t.Error("no deltas")
	}
}
