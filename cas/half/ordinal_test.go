package half

import (
	"math"
	"testing"
)

// TestOrdinals: numbers come in the order of their values, each in a place of its own.
func TestOrdinals(t *testing.T) {
	before := float32(math.Inf(-1))
	for o := range 1 << 16 {
		x := FromOrdinal16(uint16(o))
		if Ordinal16(x) != uint16(o) {
			t.Fatalf("%#x is at %#x, want %#x", x, Ordinal16(x), o)
		}
		bits := uint32(x) << 16
		if Ordinal32(bits)>>16 != uint32(o) || FromOrdinal32(Ordinal32(bits)) != bits {
			t.Fatalf("%#x is at %#x", bits, Ordinal32(bits))
		}
		if v := FromBF16(x); v == v {
			if v < before {
				t.Fatalf("%v comes after %v", v, before)
			}
			before = v
		}
	}
	if Ordinal16(0x8000)+1 != Ordinal16(0) || Ordinal32(1<<31)+1 != Ordinal32(0) {
		t.Error("-0 is not right before 0")
	}
}
