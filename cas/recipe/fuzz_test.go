package recipe

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// FuzzDecode: whatever is stored, nothing is decoded but as many bytes as were asked for, or the error says
// that it is damaged, or newer.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	base := random(rng, 8<<10)
	for _, p := range []Program{
		{Run(Bytes1, 5, 4096)},
		{Take{Type: BF16, Groups: []Group{{4, []Stretch{{0, 16, 64}, {32, 16, 64}}}}}, Widen{},
			Round{half.F16}},
		{Run(BF16, 0, 200), Widen{}, Combine{Form: Lerp, C: []float32{0, 0.5}, To: BF16}},
		{Run(F32, 3, 100), Widen{}, Round{half.BF16}},
		{Run(Bytes1, 3, 144*4), Dequantise{Format: quant.Q4_K}, Round{half.BF16}},
		{Run(Bytes1, 8, 150), Dequantise{quant.F8E4M3,
			quant.Scales{Rows: 20, Cols: 20, Tall: 1, Wide: 10, At: 90}, 110}},
	} {
		f.Add(append(p.Append(nil), 0), 4096)
	}
	f.Fuzz(func(t *testing.T, stored []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		dst := append(make([]byte, 0, n+3), "abc"...)
		got, err := Decode(dst, stored, base, n)
		if err == nil && len(got) != n+3 || !bytes.HasPrefix(got, []byte("abc")) {
			t.Fatalf("%d bytes, want %d", len(got)-3, n)
		}
		if err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) &&
			!errors.Is(err, cas.ErrTooLarge) {
			t.Fatal(err)
		}
	})
}
