// Package recipe describes files in few words, so that the bytes of a file can be made again from a line of a
// log: checkpoints laid out as torch.save and safetensors lay them out, noise, text, zeros, and what was done
// to them later.
package recipe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Kind says what a file was when it was made.
type Kind string

const (
	Torch       Kind = "torch"       // a zip as torch.save writes it
	Safetensors Kind = "safetensors" //
	Noise       Kind = "noise"       // does not compress
	Text        Kind = "text"        // compresses well
	Zeros       Kind = "zeros"       //

	// What is made of one model, so that a store can compute the one from the other (kin.go).
	Half  Kind = "half"  // the model, and fine-tunes of it, in bfloat16 as safetensors
	Quant Kind = "quant" // one of these as GGUF, quantised or with rows in llama.cpp's order
	Merge Kind = "merge" // two fine-tunes, merged
)

// Kinds are all of them.
var Kinds = []Kind{Torch, Safetensors, Noise, Text, Zeros, Half, Quant, Merge}

// Recipe is a file. Checkpoints of the same Seed share most of their tensors' bytes; those of another Step
// differ in the rest. Of kin, Step tells which fine-tune and which quant it is; only those of about the same
// Size are made of each other.
type Recipe struct {
	Kind  Kind   `json:"kind"`
	Seed  uint64 `json:"seed"`
	Step  uint64 `json:"step,omitempty"`
	Size  int    `json:"size"` // bytes; of a checkpoint, those of its tensors, about
	Edits []Edit `json:"edits,omitempty"`
}

// Edit is a change: N bytes of noise from Seed at Off, and zeros before them if the file ends earlier; or,
// with Cut, the file's length set to Off.
type Edit struct {
	Off  int    `json:"off"`
	N    int    `json:"n,omitempty"`
	Seed uint64 `json:"seed,omitempty"`
	Cut  bool   `json:"cut,omitempty"`
}

// With is the recipe with one more edit. It shares nothing with r.
func (r Recipe) With(e Edit) Recipe {
	r.Edits = append(append([]Edit(nil), r.Edits...), e)
	return r
}

// Bytes makes the file.
func (r Recipe) Bytes() []byte {
	p := r.base()
	for _, e := range r.Edits {
		p = e.Apply(p)
	}
	return p
}

// Apply does what e says; it may change p.
func (e Edit) Apply(p []byte) []byte {
	if e.Cut {
		return resized(p, e.Off)
	}
	if end := e.Off + e.N; end > len(p) {
		p = resized(p, end)
	}
	copy(p[e.Off:], e.Data())
	return p
}

// Data are the bytes that e writes.
func (e Edit) Data() []byte { return noise(e.Seed, e.N) }

func resized(p []byte, n int) []byte {
	if n <= len(p) {
		return p[:n:n]
	}
	q := make([]byte, n)
	copy(q, p)
	return q
}

func (r Recipe) base() []byte {
	switch r.Kind {
	case Torch:
		return torch(r.tensors())
	case Safetensors:
		return safetensors(r.tensors())
	case Half, Quant, Merge:
		return r.kin()
	case Noise:
		return noise(r.Seed, r.Size)
	case Zeros:
		return make([]byte, r.Size)
	case Text:
		var p []byte
		for i := r.Seed; len(p) < r.Size; i++ {
			p = fmt.Appendf(p, "step %d loss %.4f lr 0.0003 grad_norm %d\n", i, 1/float64(i%997+1), i%13)
		}
		return p[:r.Size:r.Size]
	}
	panic("no such kind: " + r.Kind)
}

// tensor is a vector of 32-bit floats, or of another type a matrix.
type tensor struct {
	name  string
	data  []byte
	dtype string // "": F32
	shape []int  // nil: a vector
}

const tensorsEach = 6

func (r Recipe) tensors() []tensor {
	ts := make([]tensor, tensorsEach)
	n := r.Size / tensorsEach &^ 3
	for i := range ts {
		seed := r.Seed*1000 + uint64(i)
		if i >= tensorsEach-2 { // trained on
			seed += r.Step * 1_000_000_007
		}
		ts[i] = tensor{name: fmt.Sprintf("layers.%d.weight", i), data: floats(seed, n)}
	}
	return ts
}

func noise(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

// floats are numbers as weights have them: random signs and fractions, few exponents.
func floats(seed uint64, n int) []byte {
	p := noise(seed, n)
	for i := 3; i < n; i += 4 {
		p[i] = p[i]&0x81 | 0x3c
	}
	return p
}
