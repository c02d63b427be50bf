package pack

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/detect"
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
		src, err := safetensors.AppendHeader(nil, entries, nil)
		if err != nil {
			t.Fatal(err)
		}
		src = append(src, data...)
		l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
		if err != nil {
			t.Fatal(err)
		}
		batch := b.st.Begin()
		defer batch.Release()
		res, err := p.Layout(t.Context(), batch, bytes.NewReader(src), int64(len(src)), l,
			Related{Anchors: a})
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Commit(); err != nil {
			t.Fatal(err)
		}
		b.same(t, res, src)
		a.of[res.Hash] = res.Manifest
		if err := a.Note(res.Hash, res.Anchors); err != nil {
			t.Fatal(err)
		}
		return res
	}
	pack(false)
	if res := pack(true); res.FreshStored > tensors*rows*cols*2/200 {
		t.Errorf("%d of %d bytes", res.FreshStored, tensors*rows*cols*2)
	}
}
