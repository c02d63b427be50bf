package plans

import (
	"fmt"
	"io"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// Benchmark computes files in memory, by reads as the kernel makes them.
func Benchmark(b *testing.B) {
	weights := func(name string, d formats.DType, shape ...int64) file {
		s := spec{Entry: safetensors.Entry{Name: name, DType: d, Shape: shape}, pattern: "weights", seed: 1}
		return build(b, []safetensors.Entry{s.Entry}, nil, func(int) []byte { return s.data() })
	}
	single, bf, half := weights("w.weight", formats.F32, 1024, 2048), weights("w.weight", formats.BF16, 1024, 2048),
		weights("w.weight", formats.F16, 1024, 2048)
	read := func(name string, p *Plan, err error, files ...file) {
		if err != nil {
			b.Fatal(err)
		}
		a := over(p, files...)
		buf := make([]byte, 1<<20)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(p.Size())
			for range b.N {
				for off := int64(0); off < p.Size(); off += int64(len(buf)) {
					if _, err := a.ReadAt(buf, off); err != nil && err != io.EOF {
						b.Fatal(err)
					}
				}
			}
		})
	}
	for _, x := range []struct {
		from file
		to   formats.DType
	}{{single, formats.BF16}, {single, formats.F16}, {bf, formats.F32}, {half, formats.BF16}, {bf, formats.F16}} {
		p, err := Cast(x.from.Source, x.to)
		read(fmt.Sprintf("%s to %s", x.from.Layout.Tensors[0].DType, x.to), p, err, x.from)
	}
	p, err := Mean([]*Source{bf.Source, bf.Source, bf.Source})
	read("mean of 3", p, err, bf, bf, bf)
	other := spec{Entry: safetensors.Entry{Name: "w.weight", DType: formats.BF16, Shape: []int64{1024, 2048}},
		pattern: "weights", seed: 2}
	p, err = Slerp(bf.Source, build(b, []safetensors.Entry{other.Entry}, nil, func(int) []byte {
		return other.data()
	}).Source, 0.4)
	read("slerp", p, err, bf, bf)
	b.Run("slerp, before the first byte", func(b *testing.B) {
		b.SetBytes(p.Size())
		for range b.N {
			s := p.tensors[0].op.(*slerp)
			s.sum = nil
			if _, err := s.weigh(over(p, bf, bf).src); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, rank := range []int64{8, 64} {
		entries := []safetensors.Entry{
			{Name: "base_model.model.w.lora_A.weight", DType: formats.F32, Shape: []int64{rank, 2048}},
			{Name: "base_model.model.w.lora_B.weight", DType: formats.F32, Shape: []int64{1024, rank}}}
		lora := build(b, entries, nil, func(i int) []byte {
			s := spec{Entry: entries[i], pattern: "weights", seed: uint64(i)}
			return s.data()
		})
		config := fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": 16}`, rank)
		p, err := Merge(bf.Source, lora.Source, []byte(config), 1, false, NewFactors(1<<20))
		read(fmt.Sprintf("merge of rank %d", rank), p, err, bf, lora)
	}
}
