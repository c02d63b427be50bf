package codec

import "testing"

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
