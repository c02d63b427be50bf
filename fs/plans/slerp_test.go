package plans

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"ckptfs/formats"
)

// A file between two has the numbers that mergekit has, if it rounds its sines from double precision: of
// tensors in one part and in several, at an angle, along one line, and with numbers that are none.
func TestSlerp(t *testing.T) {
	a, b := made(t, "slerp 0", pt, nil), made(t, "slerp 1", pt, nil)
	for _, way := range []float64{0.4, 0, 1.25} {
		p, err := Slerp(a.Source, b.Source, way)
		if err != nil {
			t.Fatal(err)
		}
		over(p, a, b).saved(t, fmt.Sprintf("slerp %v", way))
	}
}

// The norm and the sum are torch's, also of numbers that come slab by slab.
func TestSlerpSums(t *testing.T) {
	b, err := os.ReadFile("testdata/sums.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][3]uint32
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	numbers := make([]float32, rows[len(rows)-1][0])
	for i := range numbers {
		numbers[i] = float32(int64(uint32(i)*2654435761)-1<<31) / (1 << 33)
	}
	for _, r := range rows {
		for _, size := range []int{len(numbers), 4 * lanes, 12 * lanes} {
			var norm norm
			var total total
			for x := numbers[:r[0]]; len(x) > 0; x = x[min(size, len(x)):] {
				norm.add(x[:min(size, len(x))])
				total.add(x[:min(size, len(x))])
			}
			if got := math.Float32bits(norm.root()); got != r[1] {
				t.Errorf("the norm of %d numbers, %d at a time, is %x, want %x", r[0], size, got, r[1])
			}
			if got := math.Float32bits(total.sum()); got != r[2] {
				t.Errorf("the sum of %d numbers, %d at a time, is %x, want %x", r[0], size, got, r[2])
			}
		}
	}
}

// A file is between two of the same tensors and types.
func TestSlerpRefuses(t *testing.T) {
	one := func(name string, d formats.DType, shape ...int64) *Source { return zeroed(t, name, d, shape...) }
	a := one("a", formats.F32, 4, 2)
	for what, b := range map[string]*Source{
		"another name": one("b", formats.F32, 4, 2), "another shape": one("a", formats.F32, 2, 4),
		"another type": one("a", formats.BF16, 4, 2), "integers": one("a", formats.I32, 4, 2),
	} {
		_, err := Slerp(a, b, 0.5)
		refused(t, what, err)
	}
	for _, d := range []formats.DType{formats.F64, formats.F8E4M3, formats.C64} {
		x := one("a", d, 4)
		_, err := Slerp(x, x, 0.5)
		refused(t, string(d), err)
	}
	_, err := Slerp(a, a, 1e39)
	refused(t, "too far", err)
}
