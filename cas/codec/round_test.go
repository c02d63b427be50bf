package codec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

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
			id, out, ok := EncodeRounded([]byte("x"), raw, base[:2*n], h)
			if !ok || id != Rounded || len(out) != 2 {
				t.Fatal(h, n, ok, out)
			}
			got, err := decodeRounded([]byte("y"), id, out[1:], base[:2*n], n)
			if err != nil || !bytes.Equal(got[1:], raw) {
				t.Fatal(h, n, err)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				raw[at] ^= 1
				_, _, ok := EncodeRounded(nil, raw, base[:2*n], h)
				if ok && !isNaN(le.Uint32(base[at/2*4:])) {
					t.Error(h, n, "another byte is not seen at", at)
				}
				raw[at] ^= 1
			}
		}
	}
	for _, c := range []struct {
		id     byte
		stored []byte
		base   int
		raw    int
	}{{7, nil, 8, 4}, {7, []byte{0}, 8, 4}, {7, []byte{3}, 8, 4}, {7, []byte{1, 1}, 8, 4}, {7, []byte{1}, 8, 5}, {7, []byte{1}, 6, 3}, {7, []byte{1}, 7, 4}, {7, []byte{1}, 0, -2},
		{8, nil, 8, 4}, {8, []byte{1}, 8, 4}, {8, []byte{1, 1}, 8, 4}, {8, []byte{1, 1, 1, 1}, 8, 4}, {8, []byte{1, 1, 1, 1, 1, 1, 1}, 8, 4}, {8, []byte{3, 1, 1}, 8, 4}} {
		if _, err := decodeRounded(nil, c.id, c.stored, base[:c.base], c.raw); !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrTooLarge) {
			t.Errorf("%v from %d to %d: %v", c.stored, c.base, c.raw, err)
		}
	}
	for _, h := range []Hint{{"F32", 4}, {"", 2}, {"F8_E4M3", 1}} {
		if MayBeRounded(h) || IsRounded(base[:4], base[:8], h) {
			t.Error(h)
		}
	}
}

// TestRoundedNaNs: whatever is made of NaNs comes back; of one kind it takes no more than one.
func TestRoundedNaNs(t *testing.T) {
	base := weights(1<<14, 4)
	nans := []int{0, 5, 1000, 1001, len(base)/4 - 1}
	for i, at := range nans {
		le.PutUint32(base[4*at:], []uint32{0x7fc00000, 0xff800001, 0x7fffffff}[i%3])
	}
	for _, h := range []Hint{{"BF16", 2}, {"F16", 2}} {
		raw := make([]byte, len(base)/2)
		for what, c := range map[string]struct {
			nan  func(i int) uint16
			size int
		}{
			"of PyTorch": {func(int) uint16 { return 0xffff }, 3},
			"of a GPU":   {func(int) uint16 { return 0x7fff }, 3},
			"by sign":    {func(i int) uint16 { return 0x7fc0 | uint16(i%2)<<15 }, 1 + 2*len(nans)},
			"no NaNs":    {func(i int) uint16 { return uint16(i) }, 1 + 2*len(nans)},
			"the last":   {func(i int) uint16 { return []uint16{0x7fc0, 0x7fc0, 0x7fc0, 0x7fc0, 0x7fc1}[i] }, 1 + 2*len(nans)},
		} {
			round(raw, base, roundedTo(h))
			for i, at := range nans {
				le.PutUint16(raw[2*at:], c.nan(i))
			}
			id, out, ok := EncodeRounded(nil, raw, base, h)
			if !ok || id != RoundedNaNs || len(out) != c.size || !IsRounded(raw, base, h) {
				t.Fatalf("%s %s: %v, codec %d, % x", h.DType, what, ok, id, out)
			}
			if got, err := DecodeAgainst(nil, id, out, base, len(raw)); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%s %s: %v", h.DType, what, err)
			}
			if raw[20] ^= 1; IsRounded(raw, base, h) {
				t.Fatalf("%s %s: a number that is another is not seen", h.DType, what)
			}
		}
	}
	for i := 0; i < len(base); i += 4 {
		le.PutUint32(base[i:], 0x7fc00000)
	}
	if _, _, ok := EncodeRounded(nil, random(len(base)/2), base, Hint{"BF16", 2}); ok {
		t.Error("nothing but NaNs, of which each became something else, was taken")
	}
}

func TestRoundTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := random(4 * rapid.IntRange(1, 200).Draw(t, "elements"))
		for range rapid.IntRange(0, 3).Draw(t, "NaNs") {
			le.PutUint32(base[4*rapid.IntRange(0, len(base)/4-1).Draw(t, "place"):], 0x7fa12345)
		}
		for _, to := range []byte{toBF16, toF16} {
			got, want := make([]byte, len(base)/2), make([]byte, len(base)/2)
			round(got, base, to)
			roundPortable(want, base, to)
			if !bytes.Equal(got, want) {
				t.Fatalf("% x, the twin's % x, of % x", got, want, base)
			}
		}
	})
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
