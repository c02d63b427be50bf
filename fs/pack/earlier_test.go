package pack

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/index/manifest"
)

// trained is a safetensors file of fp32 tensors after some steps of training: each moves every weight by a
// share of itself of about rate. All but the first have n elements.
func trained(t testing.TB, tensors, n, steps int, rate float64) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var entries []safetensors.Entry
	var data []byte
	for k := range tensors {
		n := n
		if k == 0 {
			n = 100
		}
		entries = append(entries,
			safetensors.Entry{Name: string(rune('a' + k)), DType: "F32", Shape: []int64{int64(n)}})
		for range n {
			w := r.NormFloat64()
			for s := range steps {
				w *= 1 + rate*rand.New(rand.NewPCG(uint64(s), math.Float64bits(w))).NormFloat64()
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(w)))
		}
	}
	p, err := safetensors.AppendHeader(nil, entries, map[string]string{"step": string(rune('0' + steps))})
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// known are the manifests that are some.
func known(ms ...*manifest.Manifest) []*manifest.Manifest {
	return slices.DeleteFunc(ms, func(m *manifest.Manifest) bool { return m == nil })
}

// against packs src with an earlier version.
func (b *bench) against(t testing.TB, src []byte, before *manifest.Manifest) *Result {
	t.Helper()
	return b.related(t, src, Related{Before: known(before)})
}

// related packs src with what is related to it.
func (b *bench) related(t testing.TB, src []byte, rel Related) *Result {
	t.Helper()
	batch := b.st.Begin()
	defer batch.Release()
	f := bytes.NewReader(src)
	l, err := safetensors.Parser{}.Parse(f, int64(len(src)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.p.Layout(t.Context(), batch, f, int64(len(src)), l, rel)
	if err == nil {
		err = batch.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.same(t, res, src)
	return res
}

func TestAgainstEarlier(t *testing.T) {
	const n = 80_000
	b := memBench(t)
	var before *manifest.Manifest
	var first int64
	for step := range 10 {
		res := b.against(t, trained(t, 4, n, step, 1e-6), before)
		switch {
		case step%8 == 0 && res.Deltas > 0:
			t.Errorf("step %d is no key: %d deltas", step, res.Deltas)
		case step == 0:
			first = res.FreshStored
		case step%8 != 0 && (res.Deltas < 3*2 || res.FreshStored > first*7/10):
			t.Errorf("step %d: %d deltas, %d bytes after %d", step, res.Deltas, res.FreshStored, first)
		}
		before = res.Manifest
	}
	// Early in training nothing is gained, and after a few tries nothing is tried.
	wild := b.against(t, trained(t, 4, n, 11, 2), before)
	if wild.Deltas > 1 { // the header
		t.Errorf("%d deltas of what has nothing in common", wild.Deltas)
	}
	// Tensors of other shapes have no earlier version.
	if res := b.against(t, trained(t, 4, n+1, 1, 1e-6), before); res.Deltas > 2 {
		t.Errorf("%d deltas of other shapes", res.Deltas)
	}
}

// Whatever is wrong with the earlier version, the file is packed.
func TestAgainstNonsense(t *testing.T) {
	b := memBench(t)
	src := trained(t, 3, 100_000, 1, 1e-6)
	res := b.against(t, trained(t, 3, 100_000, 0, 1e-6), nil)
	fakes := map[string]func(m *manifest.Manifest){
		"lost":          func(m *manifest.Manifest) { m.Objects[1].Digest[3]++ },
		"no list":       func(m *manifest.Manifest) { m.Objects[2].List = !m.Objects[2].List },
		"part":          func(m *manifest.Manifest) { m.Extents[2].ObjOff = 4 },
		"zeros":         func(m *manifest.Manifest) { m.Extents[2].Object = -1 },
		"another place": func(m *manifest.Manifest) { m.Tensors[1].Offset = 4 },
		"swapped": func(m *manifest.Manifest) {
			m.Tensors[1].Name, m.Tensors[2].Name = m.Tensors[2].Name, m.Tensors[1].Name
		},
		"no bytes": func(m *manifest.Manifest) { m.Tensors[1].Region = -1 },
		"empty":    func(m *manifest.Manifest) { *m = manifest.Manifest{Tensors: []formats.Tensor{}} },
	}
	for name, spoil := range fakes {
		m := *res.Manifest
		m.Objects = append([]manifest.Object{}, m.Objects...)
		m.Extents = append([]manifest.Extent{}, m.Extents...)
		m.Tensors = append([]formats.Tensor{}, m.Tensors...)
		spoil(&m)
		t.Run(name, func(t *testing.T) { b.against(t, src, &m) })
	}
}

func TestOdds(t *testing.T) {
	var o odds
	tries := 0
	for range 1000 {
		if o.good() {
			tries++
			o.tell(false)
		}
	}
	if tries < 4 || tries > 40 {
		t.Errorf("%d tries in vain", tries)
	}
	o = odds{}
	for range 1000 {
		if !o.good() {
			t.Fatal("given up")
		}
		o.tell(true)
	}
}

// BenchmarkAgainst packs a version of a file that is not held, alone and against the one before it.
func BenchmarkAgainst(b *testing.B) {
	const n = 4 << 20
	for _, name := range []string{"alone", "delta"} {
		b.Run(name, func(b *testing.B) {
			old, src := trained(b, 2, n, 0, 1e-6), trained(b, 2, n, 1, 1e-6)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				b.StopTimer()
				x := memBench(b)
				var m *manifest.Manifest
				if name == "delta" {
					m = x.against(b, old, nil).Manifest
				}
				batch := x.st.Begin()
				f := bytes.NewReader(src)
				l, err := safetensors.Parser{}.Parse(f, int64(len(src)))
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				res, err := x.p.Layout(b.Context(), batch, f, int64(len(src)), l, Related{Before: known(m)})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(res.FreshStored)/float64(len(src)), "stored/raw")
				b.StopTimer()
				batch.Release()
				b.StartTimer()
			}
		})
	}
}
