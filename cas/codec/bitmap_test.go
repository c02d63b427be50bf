package codec

import (
	"bytes"
	"testing"

	"ckptfs/cas/codectest"
	"ckptfs/cas/rans"
)

func TestSparseTwins(t *testing.T) {
	for n := range 300 {
		p := codectest.Random(n)
		for i := range p {
			if p[i]%4 < 3 {
				p[i] = 0
			}
		}
		var bitmaps, rests [][]byte
		codectest.Levels(func(how string) {
			bitmap := make([]byte, (n+7)/8)
			rest := pack(make([]byte, 2*n+128), bitmap, p)
			var all [maxPlane + 8]byte
			copy(all[:], rest)
			back := bytes.Repeat([]byte{0xee}, n)
			if scatter(back, bitmap, &all); !bytes.Equal(back, p) {
				t.Fatalf("%s: %d bytes come back as % x, want % x", how, n, back, p)
			}
			bitmaps, rests = append(bitmaps, bitmap), append(rests, rest)
		})
		if !codectest.Same(bitmaps) || !codectest.Same(rests) {
			t.Fatalf("%d bytes: the twins differ", n)
		}
	}
}

func TestUnion(t *testing.T) {
	for n := range 300 {
		for _, w := range []int{2, 4, 8} {
			planes := make([][]byte, w)
			for k := range planes {
				planes[k] = codectest.Skewed(n, 0.2)
			}
			codectest.Levels(func(how string) {
				any, zero := bytes.Repeat([]byte{9}, n), bytes.Repeat([]byte{9}, n)
				union(any, zero, planes)
				for i := range n {
					var v, z byte
					for _, p := range planes {
						v |= p[i]
					}
					if v == 0 {
						z = 1
					}
					if any[i] != v || zero[i] != z {
						t.Fatalf("%s, %d planes of %d bytes: at %d %#x and %d, want %#x and %d", how, w, n, i, any[i], zero[i], v, z)
					}
				}
			})
		}
	}
}

func TestSpreadAndGather(t *testing.T) {
	for b, m := range moves() {
		const v = 0x8877665544332211
		var want, packed uint64
		n := 0
		for k := range 8 {
			if b>>k&1 == 1 {
				want |= v >> (8 * n) & 0xff << (8 * k)
				packed |= v >> (8 * n) & 0xff << (8 * n)
				n++
			}
		}
		if got := spread(v, &m); got != want {
			t.Errorf("%08b: spread to %016x, want %016x", b, got, want)
		}
		if got := gather(want, &m); got != packed {
			t.Errorf("%08b: gathered to %016x, want %016x", b, got, packed)
		}
		if got := nonZero(want); got != byte(b) {
			t.Errorf("%016x: %08b, want %08b", want, got, b)
		}
	}
}

// What is zero wherever a sample looks, and nowhere else, takes room for what it is.
func TestZerosWhereSamplesLook(t *testing.T) {
	for _, h := range []Hint{{"U8", 1}, {"BF16", 2}, {"F32", 4}, {"F64", 8}} {
		w, n := h.Elem, slabElems(h.Elem)
		raw := codectest.Random(n * w)
		for i := range rans.Samples {
			at := (n - rans.SampleLen) / (rans.Samples - 1) * i
			clear(raw[at*w:][:rans.SampleLen*w])
		}
		base := codectest.Weights(n*w, min(w, 4))
		now := bytes.Clone(base)
		for i := range now {
			now[i] += raw[i]
		}
		codectest.Levels(func(how string) {
			stored := encodePlanes(nil, raw, h)
			if got, err := Decode(nil, Planes, stored, len(raw)); err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%s, %s: %v", how, h.DType, err)
			}
			stored, ok := EncodeDelta(nil, now, base, h, 2*len(raw))
			if got, err := DecodeAgainst(nil, Delta, stored, base, len(raw)); !ok || err != nil ||
				!bytes.Equal(got, now) {
				t.Errorf("%s, %s, a delta: %v", how, h.DType, err)
			}
		})
	}
}

func TestOnes(t *testing.T) {
	for n := range 300 {
		p := codectest.Skewed(n, 50)
		codectest.Levels(func(how string) {
			if got, want := ones(p), onesPortable(p); got != want {
				t.Fatalf("%s: %d of %d bytes, want %d", how, got, n, want)
			}
		})
	}
}
