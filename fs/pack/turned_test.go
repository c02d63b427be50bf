package pack

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// TestSeekTurned: a tensor that is another one's transpose is stored as that, whatever it is called.
func TestSeekTurned(t *testing.T) {
	b := memBench(t)
	p := New(b.st, Options{})
	a := newMarked(t)
	rng := rand.New(rand.NewPCG(23, 24))
	const tensors, rows, cols = 3, 768, 1024
	var x [tensors][rows * cols]uint16
	for i := range x {
		for k := range x[i] {
			x[i][k] = uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16)
		}
	}
	pack := func(turned bool) *Result {
		var entries []safetensors.Entry
		var data []byte
		for i := range x {
			shape, name := []int64{rows, cols}, "a"
			if turned {
				shape, name = []int64{cols, rows}, "b"
			}
			entries = append(entries, safetensors.Entry{Name: name + string(rune('0'+i)), DType: formats.BF16,
				Shape: shape})
			for k := range rows * cols {
				at := k
				if turned {
					at = k%rows*cols + k/rows
				}
				data = binary.LittleEndian.AppendUint16(data, x[i][at])
			}
		}
		return a.pack(t, b, p, entries, data, a)
	}
	pack(false)
	if res := pack(true); res.FreshStored > tensors*rows*cols*2/200 {
		t.Errorf("%d of %d bytes", res.FreshStored, tensors*rows*cols*2)
	}
}
