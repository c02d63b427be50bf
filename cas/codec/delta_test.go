package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// step is raw after a step of training: every float moved by a share of itself of about size.
func step(raw []byte, h Hint, size float64) []byte {
	r := rand.New(rand.NewPCG(11, 12))
	p := bytes.Clone(raw)
	w, _ := numbers(h)
	for i := 0; i+w <= len(p); i += w {
		f := 1 + size*r.NormFloat64()
		switch h.DType {
		case "F32":
			v := math.Float32frombits(le.Uint32(p[i:]))
			le.PutUint32(p[i:], math.Float32bits(float32(float64(v)*f)))
		case "BF16":
			v := math.Float32frombits(uint32(le.Uint16(p[i:])) << 16)
			le.PutUint16(p[i:], uint16((math.Float32bits(float32(float64(v)*f))+0x8000)>>16))
		}
	}
	return p
}

func TestDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom([]Hint{{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I32", 4}, {"U8", 1}, {"F8_E4M3", 1}, {"", 2}}).Draw(t, "hint")
		raw := rapid.SliceOfN(rapid.Byte(), minLen, 700).Draw(t, "raw")
		base := bytes.Clone(raw)
		for range rapid.IntRange(0, 50).Draw(t, "changes") {
			base[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		out, ok := EncodeDelta([]byte("before"), raw, base, h, 10*len(raw))
		if !ok || !bytes.HasPrefix(out, []byte("before")) {
			t.Fatalf("not encoded: %v", ok)
		}
		got, err := DecodeDelta([]byte("x"), out[6:], base, len(raw))
		if err != nil || !bytes.Equal(got[1:], raw) {
			t.Fatalf("%v: % x, want % x", err, got, raw)
		}
	})
}

// TestOrder: what is next to each other among the floats is so among the integers; and what is no number survives.
func TestOrder(t *testing.T) {
	floats := []float32{float32(math.Inf(-1)), -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1)), 0,
		math.SmallestNonzeroFloat32, 1, math.Nextafter32(1, 2), math.MaxFloat32, float32(math.Inf(1))}
	for i, f := range floats {
		u := uint64(math.Float32bits(f))
		o := order(u, 32) & lowHalf
		if disorder(o, 32)&lowHalf != u {
			t.Errorf("%v does not come back", f)
		}
		if i > 0 && order(uint64(math.Float32bits(floats[i-1])), 32)&lowHalf >= o {
			t.Errorf("%v is not above %v", f, floats[i-1])
		}
	}
	for u := range uint64(1 << 16) {
		if disorder(order(u, 16)&0xffff, 16)&0xffff != u {
			t.Fatalf("%#x does not come back", u)
		}
	}
}

func TestDeltaPortableTwins(t *testing.T) {
	for n := range 150 {
		for _, w := range []int{1, 2, 4, 8} {
			for _, floats := range []bool{false, true} {
				a, base := random(n), random(n + 1)[1:]
				d, e := make([]byte, n), make([]byte, n)
				diff(d, a, base, w, floats)
				diffPortable(e, a, base, w, floats)
				if !bytes.Equal(d, e) {
					t.Fatalf("width %d, floats %v, %d bytes: % x, the twin's % x", w, floats, n, d, e)
				}
				undiff(d, base, w, floats)
				undiffPortable(e, base, w, floats)
				if !bytes.Equal(d, a) || !bytes.Equal(e, a) {
					t.Fatalf("width %d, floats %v, %d bytes: % x, the twin's % x, want % x", w, floats, n, d, e, a)
				}
			}
		}
	}
}

func TestDeltaPays(t *testing.T) {
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		raw := weights(cas.ChunkSize, h.Elem)
		for _, size := range []float64{1e-4, 1e-2} {
			now := step(raw, h, size)
			_, alone := Encode(nil, now, h)
			out, ok := EncodeDelta(nil, now, raw, h, len(alone))
			if !ok {
				t.Errorf("%s moved by %g: no smaller than alone", h.DType, size)
			}
			a, d := Estimate(now, raw, h)
			t.Logf("%s moved by %g: alone %.1f %% (estimate %.1f), delta %.1f %% (%.1f)", h.DType, size,
				100*float64(len(alone))/float64(len(now)), 100*a, 100*float64(len(out))/float64(len(now)), 100*d)
			if got := float64(len(out)) / float64(len(now)); math.Abs(got-d) > 0.02 {
				t.Errorf("%s moved by %g: %.3f estimated as %.3f", h.DType, size, got, d)
			}
			if got := float64(len(alone)) / float64(len(now)); math.Abs(got-a) > 0.02 {
				t.Errorf("%s moved by %g, alone: %.3f estimated as %.3f", h.DType, size, got, a)
			}
		}
		other := step(random(cas.ChunkSize), h, 0)
		if _, ok := EncodeDelta(nil, other, raw, h, len(raw)/2); ok {
			t.Errorf("%s: random bytes took half", h.DType)
		}
	}
	if a, d := Estimate(nil, nil, Hint{"F32", 4}); a != 1 || d != 1 {
		t.Error("nothing is estimated")
	}
	if _, ok := EncodeDelta(nil, random(100), random(99), Hint{"F32", 4}, 1000); ok {
		t.Error("a base of another length was taken")
	}
}

func TestDeltaRefuses(t *testing.T) {
	raw := weights(1000, 4)
	stored, _ := EncodeDelta(nil, raw, step(raw, Hint{"F32", 4}, 1e-3), Hint{"F32", 4}, 2000)
	for name, c := range map[string]struct {
		stored []byte
		base   int
		n      int
	}{
		"empty":        {nil, 1000, 1000},
		"kind":         {append([]byte{2}, stored[1:]...), 1000, 1000},
		"rotated":      {append([]byte{1, 0x14}, stored[2:]...), 1000, 1000},
		"width":        {append([]byte{1, 3}, stored[2:]...), 1000, 1000},
		"other base":   {stored, 999, 1000},
		"other length": {stored, 1004, 1004},
		"cut":          {stored[:len(stored)-1], 1000, 1000},
	} {
		if _, err := DecodeDelta(nil, c.stored, make([]byte, c.base), c.n); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeDelta(f *testing.F) {
	raw := weights(600, 4)
	stored, _ := EncodeDelta(nil, raw, step(raw, Hint{"F32", 4}, 1e-3), Hint{"F32", 4}, 2000)
	f.Add(stored, 600)
	f.Add([]byte{0, 2}, 5)
	f.Fuzz(func(t *testing.T, stored []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		base := make([]byte, n)
		if out, err := DecodeDelta(nil, stored, base, n); err == nil && len(out) != n {
			t.Fatalf("%d bytes, want %d", len(out), n)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	for _, h := range []Hint{{"F32", 4}, {"BF16", 2}} {
		raw := weights(cas.ChunkSize, h.Elem)
		now := step(raw, h, 1e-3)
		stored, _ := EncodeDelta(nil, now, raw, h, len(now))
		var dst []byte
		b.Run(fmt.Sprintf("%s/encode", h.DType), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				dst, _ = EncodeDelta(dst[:0], now, raw, h, len(now))
			}
			b.ReportMetric(100*float64(len(stored))/float64(len(raw)), "%size")
		})
		b.Run(fmt.Sprintf("%s/decode", h.DType), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				dst, _ = DecodeDelta(dst[:0], stored, raw, len(raw))
			}
		})
		b.Run(fmt.Sprintf("%s/estimate", h.DType), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				Estimate(now, raw, h)
			}
		})
	}
}
