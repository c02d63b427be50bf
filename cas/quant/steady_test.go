package quant

import "testing"

// TestSteadyNoNumber: an infinity times 0 is the least, whatever sign a processor gives to what is none.
func TestSteadyNoNumber(t *testing.T) {
	v := [8]float32{inf, -inf, inf, 1, -1, 0, inf, -inf}
	for name, f := range map[string]func(*[8]float32, float32, float32, float32) uint64{
		"portable": steady8Portable, "": steady8,
	} {
		if got := f(&v, 0, -128, 127); got != 0x8080000000808080 {
			t.Errorf("%s: %016x", name, got)
		}
		if got := f(&v, 0, 3, 63); got != 0x0303030303030303 {
			t.Errorf("%s: %016x", name, got)
		}
	}
}
