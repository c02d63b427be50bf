package recipes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// step is what an average of a type becomes that goes on.
func step(form recipe.Form, to recipe.Type, a, c float64, was, x []float32) []float32 {
	op := recipe.Combine{Form: form, To: to, C: []float32{float32(a), float32(c)}}
	got := make([]float32, len(was))
	op.Combined(got, append(append([]float32{}, was...), x...))
	return got
}

// TestAveraging: rates are found, of averages that decay, that are warmed up and that are means.
func TestAveraging(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	const n = 4096
	was, x := make([]float32, n), make([]float32, n)
	for i := range was {
		was[i] = float32(rng.NormFloat64() * 0.04)
		x[i] = was[i] + float32(rng.NormFloat64()*0.004)
	}
	rates := map[string]float64{"0.9": 1 - 0.9, "0.999": 1 - 0.999, "0.9999": 1 - 0.9999, "0.995": 1 - 0.995}
	for k := 10; k < 1000; k += 7 {
		rates[fmt.Sprint("one of ", k)] = 1 / float64(k)
		rates[fmt.Sprint("nine of ", k)] = 1 - float64(k-9)/float64(k)
	}
	for name, c := range rates {
		for _, form := range averages {
			got := step(form, recipe.F32, 1-c, c, was, x)
			op, ok := Averaging(got, was, x, recipe.F32)
			if !ok {
				t.Errorf("%s, form %d: not found", name, form)
				continue
			}
			// To round once or twice seldom makes a difference.
			same := map[recipe.Form]recipe.Form{recipe.AverageApart: recipe.Average,
				recipe.AverageEach: recipe.Average, recipe.MoveApart: recipe.Move}
			if op.Form != form && op.Form != same[form] || op.C[1] != float32(c) {
				t.Errorf("%s, form %d: found %v, want %v", name, form, op, float32(c))
			}
		}
	}
	other := make([]float32, n)
	for i := range other {
		other[i] = x[i] + float32(rng.NormFloat64()*0.004)
	}
	if op, ok := Averaging(other, was, x, recipe.F32); ok {
		t.Errorf("of others: %v", op)
	}
}

// TestAverageGoesOn: an average of many steps is computed of the first of them and of the weights of the
// others, as far as programs go.
func TestAverageGoesOn(t *testing.T) {
	for _, to := range []recipe.Type{recipe.F32, recipe.BF16} {
		averageGoesOn(t, to)
	}
}

func averageGoesOn(t *testing.T, to recipe.Type) {
	rng := rand.New(rand.NewPCG(27, 28))
	const n = 100_000
	bytes, typ := asF32, formats.F32
	if to == recipe.BF16 {
		bytes, typ = asBF16, formats.BF16
	}
	st, programs := contents{}, map[cas.Hash]*cas.Recipe{}
	x := numbers(rng, n)
	was := st.put(bytes(x))
	w := numbers(rng, n)
	for i := range recipe.MaxVectors + 1 {
		for k := range w {
			w[k] += float32(rng.NormFloat64() * 0.002)
		}
		w = Floats(bytes(w), typ)
		with := st.put(bytes(w))
		now := step(recipe.Average, to, 0.9, 1-0.9, x, w)
		op, ok := Averaging(now[:4096], x[:4096], w[:4096], to)
		if !ok {
			t.Fatalf("step %d: not found", i)
		}
		a := NewAveraged(typ, op, was, func(h cas.Hash) ([]cas.Hash, []byte, bool) {
			r := programs[h]
			if r == nil {
				return nil, nil, false
			}
			return r.Bases, r.Program, true
		})
		a.With = func() []manifest.Span { return with }
		raw := bytes(now)
		grid := st.put(raw)
		for k, s := range grid {
			r := a.Chunk(int64(k))
			if r == nil {
				if i != recipe.MaxVectors-1 {
					t.Errorf("step %d, chunk %d: nothing", i, k)
				}
				continue
			}
			if want := 2 + i%(recipe.MaxVectors); len(r.Bases) != want {
				t.Errorf("step %d, chunk %d: %d bases, want %d", i, k, len(r.Bases), want)
			}
			var bases []byte
			for _, h := range r.Bases {
				if programs[h] != nil {
					t.Errorf("step %d: a base is computed", i)
				}
				bases = append(bases, st[h]...)
			}
			out, ok := recipe.Encode(nil, r.Program, st[s.Hash], bases, 1000)
			if !ok || len(out) > 300 {
				t.Errorf("step %d, chunk %d: %v, %d bytes", i, k, ok, len(out))
			}
			programs[s.Hash] = r
		}
		x, was = now, grid
	}
	// Chunks that are not there, or of another length, are none.
	a := NewAveraged(typ, recipe.Combine{Form: recipe.Move, To: to, C: []float32{0.5, 0.5}}, was, func(cas.Hash) (
		[]cas.Hash, []byte, bool) {
		return nil, nil, false
	})
	a.With = func() []manifest.Span { return nil }
	if r := a.Chunk(0); r != nil {
		t.Error("of nothing")
	}
	a.With = func() []manifest.Span { return []manifest.Span{{Hash: was[0].Hash, Len: 4}} }
	if r := a.Chunk(0); r != nil {
		t.Error("of what is shorter")
	}
}
