package pack

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// TestFineSteps: scales are cut into short chunks, and all bytes of a packed file are found by where they
// are, whatever they lie in.
func TestFineSteps(t *testing.T) {
	b := memBench(t)
	r := rand.New(rand.NewPCG(5, 6))
	entries := []safetensors.Entry{
		{Name: "a.weight", DType: formats.U8, Shape: []int64{300_000, 1}},
		{Name: "a.weight.absmax", DType: formats.F32, Shape: []int64{20_000}},
		{Name: "b.weight_packed", DType: formats.I32, Shape: []int64{100, 1000}},
		{Name: "b.weight_scale", DType: formats.BF16, Shape: []int64{900, 10}},
		{Name: "b.weight_shape", DType: formats.I64, Shape: []int64{2}},
		{Name: "c.bias", DType: formats.F32, Shape: []int64{7}},
	}
	file, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range entries {
		tensor := formats.Tensor{DType: x.DType, Shape: x.Shape}
		for range tensor.NumBytes() {
			file = append(file, byte(r.Uint32()))
		}
	}
	m := b.related(t, file, Related{}).Manifest
	e := newEarlier(b.st, m)
	steps := map[string]int64{"a.weight.absmax": 32 << 10, "b.weight_scale": 16 << 10}
	for i := range m.Tensors {
		tensor := &m.Tensors[i]
		region := &m.Regions[tensor.Region]
		step := steps[tensor.Name]
		if step == 0 {
			continue
		}
		spans := e.stepped(region, step)
		if n := (region.Len + step - 1) / step; int64(len(spans)) != n || n < 2 || e.grid(region) != nil {
			t.Errorf("%s has %d chunks, want %d; on the grid: %v", tensor.Name, len(spans), n, e.grid(region))
		}
	}
	for range 200 {
		off := r.IntN(len(file))
		n := r.IntN(min(len(file)-off, 200_000) + 1)
		if p := e.at(int64(off), n); !bytes.Equal(p, file[off:off+n]) {
			t.Fatalf("%d bytes at %d differ", n, off)
		}
	}
	if e.at(int64(len(file))-5, 6) != nil || e.at(int64(len(file))+5, 1) != nil {
		t.Error("more bytes than there are")
	}
}
