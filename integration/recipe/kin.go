package recipe

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// A model has matrices of so many columns. Their rows belong to heads.
const (
	kinCols = 256
	kinHead = 64
	minKin  = 64 << 10 // bytes of the smallest model
)

// The matrices of a model, as Hugging Face and as llama.cpp call them.
var kinNames = [][2]string{
	{"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
	{"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
}

// kin is a file of a model of the size that is the next power of two below r's.
func (r Recipe) kin() []byte {
	size := max(minKin, int(1)<<bits.Len(uint(r.Size))>>1)
	rows := size / 2 / len(kinNames) / kinCols
	var ts []tensor
	for i, name := range kinNames {
		seed := r.Seed*10 + uint64(i)
		switch r.Kind {
		case Half:
			ts = append(ts, halfTensor(name[0], tune(seed, r.Step%3, rows)))
		case Merge:
			a, b := tune(seed, 1, rows), tune(seed, 2, rows)
			for j := range a {
				x, y := float32(0.7)*a[j], float32(0.3)*b[j]
				a[j] = x + y
			}
			ts = append(ts, halfTensor(name[0], a))
		case Quant:
			x := tune(seed, r.Step/3%3, rows)
			if i == 0 {
				x = turned(x)
			}
			ts = append(ts, quantTensor(name[1], r.Step%3, x))
		}
	}
	if r.Kind == Quant {
		return ggufFile(ts)
	}
	return safetensors(ts)
}

// tune are the numbers of a matrix, as bfloat16 has them: the model's, which is fine-tune 0, or those of a
// fine-tune of it.
func tune(seed, which uint64, rows int) []float32 {
	x := make([]float32, rows*kinCols)
	base, change := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2+which))
	for i := range x {
		x[i] = asBF16(float32(base.NormFloat64() * 0.02))
		if which > 0 {
			x[i] = asBF16(x[i] + float32(change.NormFloat64()*2e-4))
		}
	}
	return x
}

func asBF16(x float32) float32 { return half.FromBF16(half.ToBF16(math.Float32bits(x))) }

// turned are the rows of heads in the order in which GGUF has them.
func turned(x []float32) (y []float32) {
	for r := range len(x) / kinCols {
		from := r/kinHead*kinHead + r%2*kinHead/2 + r%kinHead/2
		y = append(y, x[from*kinCols:][:kinCols]...)
	}
	return y
}

func halfTensor(name string, x []float32) tensor {
	p := make([]byte, 0, 2*len(x))
	for _, v := range x {
		p = binary.LittleEndian.AppendUint16(p, half.ToBF16(math.Float32bits(v)))
	}
	return tensor{name, p, "BF16", []int{len(x) / kinCols, kinCols}}
}

// quantTensor is a tensor of a GGUF file, whose type is one of three.
func quantTensor(name string, which uint64, x []float32) tensor {
	if which == 2 {
		return halfTensor(name, x)
	}
	q, dtype := quant.Quantiser{Format: quant.Q8_0}, "Q8_0"
	if which == 1 {
		q, dtype = quant.Quantiser{Format: quant.Q4_K}, "Q4_K"
	}
	var s quant.Streams
	p, err := q.Restore(nil, &s, x)
	if err != nil {
		panic(err) // whole blocks
	}
	return tensor{name, p, dtype, []int{len(x) / kinCols, kinCols}}
}

// ggufFile is a GGUF file without keys.
func ggufFile(ts []tensor) []byte {
	const align = 32
	types := map[string]uint32{"Q8_0": 8, "Q4_K": 12, "BF16": 30}
	le := binary.LittleEndian
	p := le.AppendUint32([]byte("GGUF"), 3)
	p = le.AppendUint64(le.AppendUint64(p, uint64(len(ts))), 0)
	pad := func(n int) int { return (align - n%align) % align }
	off := 0
	for _, t := range ts {
		p = append(le.AppendUint64(p, uint64(len(t.name))), t.name...)
		p = le.AppendUint32(p, 2) // dimensions, the innermost first
		p = le.AppendUint64(le.AppendUint64(p, uint64(t.shape[1])), uint64(t.shape[0]))
		p = le.AppendUint64(le.AppendUint32(p, types[t.dtype]), uint64(off))
		off += len(t.data) + pad(len(t.data))
	}
	p = append(p, make([]byte, pad(len(p)))...)
	for _, t := range ts {
		p = append(append(p, t.data...), make([]byte, pad(len(t.data)))...)
	}
	return p
}
