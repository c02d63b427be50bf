package plans

import (
	"fmt"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// sources are those of files.
func sources(files ...file) (out []*Source) {
	for _, f := range files {
		out = append(out, f.Source)
	}
	return out
}

// Mean and Sum have the numbers that torch has, in files of several types.
func TestSoup(t *testing.T) {
	var f []file
	for i := range 3 {
		f = append(f, made(t, fmt.Sprintf("soup %d", i), pt, nil))
	}
	p, err := Mean(sources(f...))
	if err != nil {
		t.Fatal(err)
	}
	over(p, f...).saved(t, "mean 0 1 2")
	if p, err = Mean(sources(f[2], f[0])); err != nil {
		t.Fatal(err)
	}
	over(p, f[2], f[0]).saved(t, "mean 2 0")
	if p, err = Sum(sources(f...), []float64{0.3, 0.6, -0.1}); err != nil {
		t.Fatal(err)
	}
	over(p, f...).saved(t, "sum 0.3 0.6 -0.1")
}

// zeroed is a file of one tensor of zeros.
func zeroed(t *testing.T, name string, d formats.DType, shape ...int64) *Source {
	t.Helper()
	e := safetensors.Entry{Name: name, DType: d, Shape: shape}
	return build(t, []safetensors.Entry{e}, nil, func(int) []byte { return make([]byte, e.NumBytes()) }).Source
}

// Files of other tensors are refused, and so are numbers that cannot be weights.
func TestSoupRefuses(t *testing.T) {
	one := func(name string, d formats.DType, shape ...int64) *Source { return zeroed(t, name, d, shape...) }
	a := one("a", formats.F32, 4, 2)
	for what, of := range map[string][]*Source{
		"none": {}, "one": {a}, "17": {a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a},
		"another name": {a, one("b", formats.F32, 4, 2)}, "another shape": {a, one("a", formats.F32, 2, 4)},
		"another kind": {a, one("a", formats.I32, 4, 2)}, "doubles": {a, one("a", formats.F64, 4, 2)},
		"of 8 bits": {one("a", formats.F8E4M3, 4), one("a", formats.F8E4M3, 4)},
		"complex":   {one("a", formats.C64, 4), one("a", formats.C64, 4)},
	} {
		_, err := Mean(of)
		refused(t, what, err)
	}
	for what, weights := range map[string][]float64{
		"one weight": {1}, "three": {1, 2, 3}, "too large": {1e39, 1},
	} {
		_, err := Sum([]*Source{a, a}, weights)
		refused(t, what, err)
	}
}
