package codec

import (
	"bytes"
	"errors"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/half"
)

func TestRounded(t *testing.T) {
	base := codectest.Weights(cas.ChunkSize, 4)
	for i, x := range []uint32{0x7f800001, 0xffffffff, 0x7f800000, 0xff800000, 1, 0x7f7fffff, 0xff7fffff} {
		le.PutUint32(base[4*i*i:], x)
	}
	for _, h := range []Hint{{"BF16", 2}, {"F16", 2}} {
		for _, n := range []int{2, 4, 6, 1000, 4098, len(base) / 2} {
			raw := make([]byte, n)
			half.Round(raw, base, roundedTo(h))
			for i := range n / 2 {
				want := half.ToBF16(le.Uint32(base[4*i:]))
				if h.DType == "F16" {
					want = half.ToF16(le.Uint32(base[4*i:]))
				}
				if got := le.Uint16(raw[2*i:]); got != want {
					t.Fatalf("%v: element %d: %#04x, want %#04x", h, i, got, want)
				}
			}
			out, ok := EncodeRounded([]byte("x"), raw, base[:2*n], h)
			if !ok || len(out) != 2 {
				t.Fatal(h, n, ok, out)
			}
			got, err := decodeRounded([]byte("y"), out[1:], base[:2*n], n)
			if err != nil || !bytes.Equal(got[1:], raw) {
				t.Fatal(h, n, err)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				raw[at] ^= 1
				_, ok := EncodeRounded(nil, raw, base[:2*n], h)
				if ok && !half.IsNaN(le.Uint32(base[at/2*4:])) {
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
	}{{nil, 8, 4}, {[]byte{0}, 8, 4}, {[]byte{3}, 8, 4}, {[]byte{1, 1}, 8, 4}, {[]byte{1}, 8, 5},
		{[]byte{1}, 6, 3}, {[]byte{1}, 7, 4}, {[]byte{1}, 0, -2},
		{[]byte{1, 1, 1, 1}, 8, 4}, {[]byte{1, 1, 1, 1, 1, 1, 1}, 8, 4}, {[]byte{3, 1, 1}, 8, 4}} {
		if _, err := decodeRounded(nil, c.stored, base[:c.base], c.raw); !errors.Is(err, cas.ErrCorrupt) &&
			!errors.Is(err, cas.ErrTooLarge) {
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
	base := codectest.Weights(1<<14, 4)
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
			"the last":   {func(i int) uint16 { return 0x7fc0 + uint16(i/4) }, 1 + 2*len(nans)}, // of five
		} {
			half.Round(raw, base, roundedTo(h))
			for i, at := range nans {
				le.PutUint16(raw[2*at:], c.nan(i))
			}
			out, ok := EncodeRounded(nil, raw, base, h)
			if !ok || len(out) != c.size || !IsRounded(raw, base, h) {
				t.Fatalf("%s %s: %v, % x", h.DType, what, ok, out)
			}
			if got, err := DecodeAgainst(nil, Rounded, out, base, len(raw)); err != nil ||
				!bytes.Equal(got, raw) {
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
	if _, ok := EncodeRounded(nil, codectest.Random(len(base)/2), base, Hint{"BF16", 2}); ok {
		t.Error("nothing but NaNs, of which each became something else, was taken")
	}
}
