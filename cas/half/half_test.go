package half

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

func TestRound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var xs []uint32
	for range 200_000 {
		xs = append(xs, r.Uint32())
	}
	for h := range uint32(1 << 16) { // every number of either type, what lies halfway, and their neighbours
		b := h << 16
		xs = append(xs, b, b+0x7fff, b+0x8000, b+0x8001, b-1, b+1)
		f := math.Float32bits(float32(codectest.F16Value(uint16(h & 0x7fff))))
		xs = append(xs, f, f+0xfff, f+0x1000, f+0x1001, f-1, f+1, f|1<<31)
	}
	for _, x := range xs {
		f := math.Float32frombits(x)
		wantB, wantF := uint16(0x7fc0), uint16(x>>16&0x8000|0x7e00|x>>13&0x3ff)
		if f == f {
			wantB, wantF = codectest.HalfOf(f, codectest.BF16Value, 0x7f80),
				codectest.HalfOf(f, codectest.F16Value, 0x7c00)
		}
		if got := ToBF16(x); got != wantB {
			t.Fatalf("%#08x, %v: bfloat16 %#04x, want %#04x", x, f, got, wantB)
		}
		if got := ToF16(x); got != wantF {
			t.Fatalf("%#08x, %v: binary16 %#04x, want %#04x", x, f, got, wantF)
		}
	}
}

func TestRoundTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := codectest.Random(4 * rapid.IntRange(1, 200).Draw(t, "elements"))
		for range rapid.IntRange(0, 3).Draw(t, "NaNs") {
			le.PutUint32(base[4*rapid.IntRange(0, len(base)/4-1).Draw(t, "place"):], 0x7fa12345)
		}
		for _, to := range []Type{BF16, F16} {
			want := make([]byte, len(base)/2)
			roundPortable(want, base, to)
			codectest.Levels(func(how string) {
				got := make([]byte, len(base)/2)
				if Round(got, base, to); !bytes.Equal(got, want) {
					t.Fatalf("%s: % x, the twin's % x, of % x", how, got, want, base)
				}
			})
		}
	})
}

// TestRoundAll: kernels round what lies at, halfway between and next to any two numbers as their twins do.
func TestRoundAll(t *testing.T) {
	var src []byte
	for h := range uint32(1 << 16) {
		f := math.Float32bits(float32(codectest.F16Value(uint16(h&0x7fff)))) | h&0x8000<<16
		half := math.Float32bits(float32(codectest.F16Value(uint16(h&0x7fff))+0x1p-25)) | h&0x8000<<16
		for _, x := range []uint32{h << 16, h<<16 | 0x7fff, h<<16 | 0x8000, h<<16 | 0x8001, f, f + 0xfff,
			f + 0x1000, f + 0x1001, f - 1, f + 1, half - 1, half, half + 1} {
			if !IsNaN(x) {
				src = le.AppendUint32(src, x)
			}
		}
	}
	src = codectest.Edge(t, src)
	for _, to := range []Type{BF16, F16} {
		want, got := make([]byte, len(src)/2), codectest.Edge(t, make([]byte, len(src)/2))
		roundPortable(want, src, to)
		codectest.Levels(func(how string) {
			clear(got)
			if Round(got, src, to); !bytes.Equal(got, want) {
				for i := 0; i < len(got); i += 2 {
					if x := src[2*i:][:4]; !bytes.Equal(got[i:i+2], want[i:i+2]) {
						t.Fatalf("%s, type %d: %#08x is %#04x, the twin's %#04x", how, to, le.Uint32(x),
							le.Uint16(got[i:]), le.Uint16(want[i:]))
					}
				}
			}
		})
	}
}

// Widening is exact, also of what is no number.
func TestWiden(t *testing.T) {
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		le.PutUint16(src[2*i:], uint16(i))
	}
	codectest.Levels(func(how string) {
		for _, n := range []int{0, 1, 3, 15, 16, 17, 33, 1 << 16} {
			from := src[len(src)-2*n:]
			dst := make([]float32, n+1)
			dst[n] = 7
			Widen(dst[:n], from)
			for i := range n {
				if got, want := math.Float32bits(dst[i]), uint32(le.Uint16(from[2*i:]))<<16; got != want {
					t.Fatalf("%s: %x, want %x", how, got, want)
				}
			}
			if dst[n] != 7 {
				t.Errorf("%s: more than %d", how, n)
			}
		}
	})
}

func BenchmarkWiden(b *testing.B) {
	raw := codectest.Weights(cas.ChunkSize, 4)
	dst := make([]float32, len(raw)/2)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		Widen(dst, raw)
	}
}

func BenchmarkRound(b *testing.B) {
	base := codectest.Weights(cas.ChunkSize, 4)
	for name, to := range map[string]Type{"BF16": BF16, "F16": F16} {
		b.Run(name, func(b *testing.B) {
			raw := make([]byte, len(base)/2)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				Round(raw, base, to)
			}
		})
	}
}
