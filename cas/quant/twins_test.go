package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"ckptfs/cas/codectest"
)

// kernelled are the formats that have kernels.
var kernelled = []Format{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4, Q4_K, Q5_K, Q6_K}

// samePredictions fails unless the codes of each level are those of the twin. Parts that are not all numbers
// have no factor, as ever.
func samePredictions(t *testing.T, q *Quantiser, x []float32, factors *factors) {
	t.Helper()
	all := *factors
	f := &all
	var e extremes
	extremesPortable(&e, x, shapes[q.Format].sub, 0)
	for i := range len(x) / shapes[q.Format].sub {
		if !e.finite(i) {
			f.a[i] = nan
		}
	}
	elems, size := q.Format.Block()
	want := make([]byte, len(x)/elems*size)
	for i := range want {
		want[i] = byte(i) // fields stay
	}
	before := bytes.Clone(want)
	q.predictPortable(want, x, f)
	codectest.Levels(func(level string) {
		got := bytes.Clone(before)
		if q.predict(got, x, f); bytes.Equal(got, want) {
			return
		}
		sub := shapes[q.Format].sub
		a, b := make([]byte, elems), make([]byte, elems)
		for i := 0; i*size < len(got); i++ {
			q.Format.unpack(a, got[i*size:(i+1)*size])
			q.Format.unpack(b, want[i*size:(i+1)*size])
			for j := range a {
				if k := i*elems + j; a[j] != b[j] {
					t.Fatalf("%v, %s: %v, a %v, b %v: code %d, the twin's %d", q.Format, level, x[k],
						f.a[k/sub], f.b[k/sub], a[j], b[j])
				}
			}
		}
		t.Fatalf("%v, %s: other bytes than codes differ", q.Format, level)
	})
}

// scalesOf are 64 factors of parts as a format has them, and some as only hostile fields have.
func scalesOf(f Format) (all [64][2]float32) {
	r := rand.New(rand.NewPCG(uint64(f), 1))
	for i := range all {
		d, m := float32(r.ExpFloat64()*0.001), float32(0)
		if f != Q6_K {
			m = float32(r.ExpFloat64() * 0.01)
		}
		switch i {
		case 0:
			d = 0x1p-24 // the least of binary16
		case 1:
			d, m = 65504*63, m*1e6
		case 2:
			d = nan
		case 3:
			d = inf
		case 4:
			d, m = -d, -m
		case 5:
			m = nan
		case 6:
			m = -inf
		case 7:
			d, m = math.Float32frombits(1), 0
		case 8:
			d = 1
		case 9:
			d, m = 0.5, 0
		case 10:
			d, m = 0, 0
		case 11:
			d = 1e38
		}
		if f <= Q5_1 || f == MXFP4 {
			d = 1 / d
		}
		if f == Q6_K || f == Q8_0 {
			m = 0
		}
		all[i] = [2]float32{d, m}
	}
	return all
}

// TestTwinsAll: kernels give the codes that their twins do for every number of bfloat16, with 64 scales of
// each format.
func TestTwinsAll(t *testing.T) {
	for _, format := range kernelled {
		q := Quantiser{Format: format}
		scales := scalesOf(format)
		if testing.Short() {
			copy(scales[1:], scales[56:])
		}
		var f factors
		x := make([]float32, Slab)
		for at := 0; at < 1<<16; at += Slab {
			for i := range x {
				x[i] = math.Float32frombits(uint32(at+i) << 16)
			}
			for _, s := range scales {
				for i := range f.a {
					f.a[i], f.b[i] = s[0], s[1]
				}
				samePredictions(t, &q, x, &f)
				if testing.Short() && s == scales[8] {
					break
				}
			}
		}
	}
}

// TestTwinsTies: the same at and next to every boundary between codes.
func TestTwinsTies(t *testing.T) {
	for _, format := range kernelled {
		q := Quantiser{Format: format}
		lo, hi := format.bounds()
		for _, s := range scalesOf(format) {
			var f factors
			var x []float32
			for i := range f.a {
				f.a[i], f.b[i] = s[0], s[1]
			}
			for c := lo - 2; c <= hi+2; c += 0.5 {
				v := c*s[0] - s[1]
				switch format {
				case Q8_0:
					v = c / s[0]
				case MXFP4:
					v = c * (1 - float32(len(x)/5%2)*2) / s[0]
				case Q4_0, Q5_0, Q4_1, Q5_1:
					v = (c-q.unrounded(0, 1, 0))/s[0] + s[1]
				}
				for range 2 {
					v = math.Nextafter32(v, -inf)
				}
				for range 5 {
					x = append(x, v)
					v = math.Nextafter32(v, inf)
				}
			}
			for len(x)%256 != 0 {
				x = append(x, math.Float32frombits(uint32(len(x)%3)<<31|uint32(len(x)%2))) // zeros, the least
			}
			for len(x) > 0 {
				n := min(len(x), Slab)
				samePredictions(t, &q, x[:n], &f)
				x = x[n:]
			}
		}
	}
}

// TestTwinsRandom: the same, and the extremes and magnitudes, of numbers of all kinds.
func TestTwinsRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for range 3000 {
		x := hostile(r, 256*(1+r.IntN(Slab/256)))
		if r.IntN(2) == 0 { // no infinities, so that kernels have their say
			for i := range x {
				if !isFinite(x[i]) {
					x[i] = float32(r.NormFloat64())
				}
			}
		}
		for _, sub := range []int{16, 32} {
			n := r.IntN(len(x)/sub) + 1
			var want extremes
			extremesPortable(&want, x[:n*sub], sub, 0)
			codectest.Levels(func(level string) {
				var got extremes
				extremesOf(&got, x[:n*sub], sub)
				for i := range n {
					if bits(got.min[i]) != bits(want.min[i]) || bits(got.max[i]) != bits(want.max[i]) {
						t.Fatalf("%s: part %d of %d: %v to %v, the twin's %v to %v, of %v", level, i, n,
							got.min[i], got.max[i], want.min[i], want.max[i], x[i*sub:(i+1)*sub])
					}
				}
			})
		}
		some := x[:r.IntN(len(x)+1)]
		codectest.Levels(func(level string) {
			if got, want := magnitude(some), magnitudePortable(some); got != want {
				t.Fatalf("%s: magnitude %#x, the twin's %#x", level, got, want)
			}
		})
		var f factors
		for i := range f.a {
			f.a[i], f.b[i] = float32(r.NormFloat64()*0.01), float32(r.NormFloat64()*0.1)
			if r.IntN(30) == 0 {
				f.a[i], f.b[i] = math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
			}
		}
		for _, format := range kernelled {
			q := Quantiser{Format: format}
			g := f
			if format == Q6_K || format == Q8_0 {
				clear(g.b[:])
			}
			samePredictions(t, &q, x, &g)
		}
	}
}

// TestTwinsSteady: what scales are predicted as, by factors of any bits.
func TestTwinsSteady(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	for i := range 200_000 {
		var v [8]float32
		for j := range v {
			if v[j] = float32(r.NormFloat64()); i%3 == 0 {
				v[j] = float32(r.IntN(300)) / 2 // whole, or halfway
			}
		}
		by := float32(r.NormFloat64() * 40)
		switch i % 4 {
		case 0:
			by = math.Float32frombits(r.Uint32())
		case 1:
			by = float32(1 - 2*r.IntN(2))
		}
		lo, hi := float32(0), float32(63)
		if i%2 == 0 {
			lo, hi = -128, 127
		}
		want := steady8Portable(&v, by, lo, hi)
		for j := range v {
			if got := byte(want >> (8 * j)); got != byte(round(float32(v[j]*by), lo, hi)) {
				t.Fatalf("%v by %v is %d", v[j], by, got)
			}
		}
		codectest.Levels(func(level string) {
			if got := steady8(&v, by, lo, hi); got != want {
				t.Fatalf("%s: %v by %v is %#x, the twin's %#x", level, v, by, got, want)
			}
		})
	}
}

// TestTwinsF8: FP8 of every number of bfloat16, of what lies halfway between two numbers and next to that,
// and of numbers of all kinds, with 64 scales, in all variants.
func TestTwinsF8(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	var all []float32
	for i := range uint32(1 << 16) {
		all = append(all, math.Float32frombits(i<<16))
	}
	all = append(all, hostile(r, 4096)...)
	for _, format := range []Format{F8E4M3, F8E5M2} {
		x := all
		for c := range byte(0x7b) {
			half := (format.value8(c) + format.value8(c+1)) / 2
			below, above := math.Nextafter32(half, 0), math.Nextafter32(half, inf)
			x = append(x, half, -half, below, -below, above, -above, format.value8(c), -format.value8(c))
		}
		x = x[:len(x)-3] // no whole blocks
		for variant := range uint8(format.Variants()) {
			q := Quantiser{Format: format, Variant: variant}
			for i, s := range scalesOf(Q4_K) {
				if testing.Short() && i > 12 {
					break
				}
				want, got := make([]byte, len(x)), make([]byte, len(x))
				q.f8Portable(want, x, s[0])
				codectest.Levels(func(level string) {
					q.f8(got, x, s[0])
					for i := range got {
						if got[i] != want[i] {
							t.Fatalf("%v, variant %d, %s: %v by %v is %#x, the twin's %#x", format, variant, level,
								x[i], s[0], got[i], want[i])
						}
					}
				})
			}
		}
	}
}

// TestTwinsRestore: blocks and streams are the same at all levels.
func TestTwinsRestore(t *testing.T) {
	for _, format := range append(kernelled, F8E4M3, IQ4_XS) {
		q, blocks, x := weights(t, format)
		var all [][]byte
		codectest.Levels(func(string) {
			var s Streams
			if err := q.Differ(&s, blocks, x); err != nil {
				t.Fatal(err)
			}
			restores(t, &q, &s, blocks, x)
			all = append(all, bytes.Join(s[:], []byte{0}))
		})
		if !codectest.Same(all) {
			t.Fatalf("%v: the levels write differently", format)
		}
	}
}

// TestEdge: kernels read and write nothing but what they are given.
func TestEdge(t *testing.T) {
	for _, format := range append(kernelled, F8E4M3) {
		q := Quantiser{Format: format}
		elems, size := format.Block()
		for n := 256; n <= 1024; n += 256 {
			p := codectest.Edge(t, make([]byte, 4*n))
			x := unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), n)
			dst := codectest.Edge(t, make([]byte, n/elems*size))
			codectest.Levels(func(string) {
				var e extremes
				var f factors
				if format.FP8() {
					q.f8(dst, x, 1)
					magnitude(x)
					return
				}
				extremesOf(&e, x, shapes[format].sub)
				q.predict(dst, x, &f)
			})
		}
	}
}
