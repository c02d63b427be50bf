package pack

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/safetensors"
	"ckptfs/index/manifest"
)

// averaging is a store of files of tensors of single precision.
type averaging struct {
	t *testing.T
	*bench
	p *Packer
}

// set is tensors by their names, in order.
type set struct {
	names []string
	of    [][]float32
}

func (a *averaging) pack(rel Related, sets ...set) *Result {
	a.t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for _, s := range sets {
		for i, x := range s.of {
			entries = append(entries, safetensors.Entry{Name: s.names[i], DType: formats.F32,
				Shape: []int64{int64(len(x))}})
			for _, v := range x {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		}
	}
	src, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	src = append(src, data...)
	l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
	if err != nil {
		a.t.Fatal(err)
	}
	batch := a.st.Begin()
	defer batch.Release()
	res, err := a.p.Layout(a.t.Context(), batch, bytes.NewReader(src), int64(len(src)), l, rel)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := batch.Commit(); err != nil {
		a.t.Fatal(err)
	}
	a.same(a.t, res, src)
	return res
}

// TestAverages: averages in a file beside that of the weights, or in that, ahead of them or behind. What is
// no average is none.
func TestAverages(t *testing.T) {
	const n, steps, tensors = 100_000, 4, 2
	for prefix, most := range map[string]int64{
		"beside.": n / 10, "a_ema.": 3 * n * tensors, "z_ema.": 3 * n * tensors, "none.": 0,
	} {
		t.Run(prefix, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(33, 34))
			b := memBench(t)
			a := &averaging{t: t, bench: b, p: New(b.st, Options{})}
			w := set{names: []string{"model.0.weight", "model.1.weight"}, of: make([][]float32, tensors)}
			ema := set{names: []string{prefix + "0.weight", prefix + "1.weight"},
				of: make([][]float32, tensors)}
			for i := range tensors {
				for range n {
					v := float32(rng.NormFloat64() * 0.02)
					w.of[i] = append(w.of[i], v)
					ema.of[i] = append(ema.of[i], v+float32(rng.NormFloat64()*0.01))
				}
			}
			var before []*manifest.Manifest
			for step := range steps {
				for i := range tensors {
					for k := range n {
						w.of[i][k] += float32(rng.NormFloat64() * 0.001)
					}
					op := recipe.Combine{Form: recipe.Average, To: recipe.F32,
						C: []float32{0.99, float32(1 - 0.99)}}
					now := make([]float32, n)
					op.Combined(now, append(append([]float32{}, ema.of[i]...), w.of[i]...))
					if prefix == "none." {
						for k := range now {
							now[k] += float32(rng.NormFloat64() * 0.001)
						}
					}
					ema.of[i] = now
				}
				rel := Related{Before: before}
				var res *Result
				switch prefix {
				case "beside.", "none.":
					rel.Beside = []*manifest.Manifest{a.pack(Related{}, w).Manifest}
					res = a.pack(rel, ema)
				case "a_ema.":
					res = a.pack(rel, ema, w)
				default:
					res = a.pack(rel, w, ema)
				}
				before = []*manifest.Manifest{res.Manifest}
				t.Logf("step %d: %d bytes", step, res.FreshStored)
				if step > 0 && most > 0 && res.FreshStored > most {
					t.Errorf("step %d: %d bytes, want at most %d", step, res.FreshStored, most)
				}
			}
		})
	}
}
