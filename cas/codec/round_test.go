package codec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
)

// halfOf rounds by what the type's values are: of the two neighbours the nearer, of two as near the even one.
func halfOf(x float32, value func(h uint16) float64, inf uint16) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	f := math.Abs(float64(x))
	lo, hi := uint16(0), inf
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; value(mid) <= f {
			lo = mid
		} else {
			hi = mid
		}
	}
	top := value(hi)
	if hi == inf { // as if the exponents went on
		top = value(inf-1) + (value(inf-1) - value(inf-2))
	}
	if math.IsInf(f, 1) || f >= top || f-value(lo) > top-f || f-value(lo) == top-f && lo&1 != 0 {
		return sign | hi
	}
	return sign | lo
}

func bf16Value(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }

func f16Value(h uint16) float64 {
	exp, m := int(h>>10&31), float64(h&1023)
	if exp == 0 {
		return math.Ldexp(m, -24)
	}
	return math.Ldexp(1024+m, exp-25)
}

func TestRound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var xs []uint32
	for range 200_000 {
		xs = append(xs, r.Uint32())
	}
	for h := range uint32(1 << 16) { // every number of either type, what lies halfway, and their neighbours
		b := h << 16
		xs = append(xs, b, b+0x7fff, b+0x8000, b+0x8001, b-1, b+1)
		f := math.Float32bits(float32(f16Value(uint16(h & 0x7fff))))
		xs = append(xs, f, f+0xfff, f+0x1000, f+0x1001, f-1, f+1, f|1<<31)
	}
	for _, x := range xs {
		f := math.Float32frombits(x)
		wantB, wantF := uint16(0x7fc0), uint16(x>>16&0x8000|0x7e00|x>>13&0x3ff)
		if f == f {
			wantB, wantF = halfOf(f, bf16Value, 0x7f80), halfOf(f, f16Value, 0x7c00)
		}
		if got := bf16(x); got != wantB {
			t.Fatalf("%#08x, %v: bfloat16 %#04x, want %#04x", x, f, got, wantB)
		}
		if got := f16(x); got != wantF {
			t.Fatalf("%#08x, %v: binary16 %#04x, want %#04x", x, f, got, wantF)
		}
	}
}

func TestRounded(t *testing.T) {
	base := weights(cas.ChunkSize, 4)
	for i, x := range []uint32{0x7f800001, 0xffffffff, 0x7f800000, 0xff800000, 1, 0x7f7fffff, 0xff7fffff} {
		le.PutUint32(base[4*i*i:], x)
	}
	for _, h := range []Hint{{"BF16", 2}, {"F16", 2}} {
		for _, n := range []int{2, 4, 6, 1000, 4098, len(base) / 2} {
			raw := make([]byte, n)
			round(raw, base, roundedTo(h))
			for i := range n / 2 {
				want := bf16(le.Uint32(base[4*i:]))
				if h.DType == "F16" {
					want = f16(le.Uint32(base[4*i:]))
				}
				if got := le.Uint16(raw[2*i:]); got != want {
					t.Fatalf("%v: element %d: %#04x, want %#04x", h, i, got, want)
				}
			}
			out, ok := EncodeRounded([]byte("x"), raw, base[:2*n], h)
			if !ok || len(out) != 2 {
				t.Fatal(h, n, ok, out)
			}
			got, err := DecodeRounded([]byte("y"), out[1:], base[:2*n], n)
			if err != nil || !bytes.Equal(got[1:], raw) {
				t.Fatal(h, n, err)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				raw[at] ^= 1
				if _, ok := EncodeRounded(nil, raw, base[:2*n], h); ok {
					t.Error(h, n, "another byte is not seen at", at)
				}
				raw[at] ^= 1
			}
		}
	}
	for _, c := range []struct {
		stored []byte
		base   int
		raw    int
	}{{nil, 8, 4}, {[]byte{0}, 8, 4}, {[]byte{3}, 8, 4}, {[]byte{1, 1}, 8, 4}, {[]byte{1}, 8, 5}, {[]byte{1}, 6, 3}, {[]byte{1}, 7, 4}, {[]byte{1}, 0, -2}} {
		if _, err := DecodeRounded(nil, c.stored, base[:c.base], c.raw); !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrTooLarge) {
			t.Errorf("%v from %d to %d: %v", c.stored, c.base, c.raw, err)
		}
	}
	for _, h := range []Hint{{"F32", 4}, {"", 2}, {"F8_E4M3", 1}} {
		if MayBeRounded(h) || IsRounded(base[:4], base[:8], h) {
			t.Error(h)
		}
	}
}

func BenchmarkRound(b *testing.B) {
	base := weights(cas.ChunkSize, 4)
	for _, h := range []Hint{{"BF16", 2}, {"F16", 2}} {
		b.Run(h.DType, func(b *testing.B) {
			raw := make([]byte, len(base)/2)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				round(raw, base, roundedTo(h))
			}
		})
	}
}
