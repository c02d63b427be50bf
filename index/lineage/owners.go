package lineage

import (
	"encoding/binary"
	"slices"

	"ckptfs/cas"
)

// Tensor is a tensor of a model as far as ownership goes.
type Tensor struct {
	Name   string
	Digest cas.Hash // of type, shape and bytes: Digest
	// Tie: tensors with one number above 0 are names of the same elements of one storage; 0: no other name.
	Tie int
}

// Digest is what has to be equal for a tensor to be the same: BLAKE3 of "CKT1", dtype and its length, the
// number of dimensions, the dimensions (all numbers unsigned varints) and the hash of the bytes.
func Digest(dtype string, shape []int64, content cas.Hash) cas.Hash {
	p := append(make([]byte, 0, 128), "CKT1"...)
	p = binary.AppendUvarint(p, uint64(len(dtype)))
	p = append(p, dtype...)
	p = binary.AppendUvarint(p, uint64(len(shape)))
	for _, d := range shape {
		p = binary.AppendUvarint(p, uint64(d))
	}
	return cas.Sum(append(p, content[:]...))
}

// Parent is the parent's side of Inherit.
type Parent struct {
	Tensors []Tensor
	Owners  []uint64 // of each of Tensors

	// Read has, of the child's tensors, those for which a transfer read a tensor of another name, and which
	// of the parent's.
	Read map[string]string
}

// Inherit is the owner of each of a new model's tensors. A nil parent: the model owns them all.
func Inherit(seq uint64, tensors []Tensor, parent *Parent) []uint64 {
	out := make([]uint64, len(tensors))
	for i := range out {
		out[i] = seq
	}
	if parent == nil {
		return out
	}
	at := make(map[string]int, len(parent.Tensors))
	for i := range parent.Tensors {
		at[parent.Tensors[i].Name] = i
	}
	type tie struct {
		number int
		digest cas.Hash
	}
	tied := map[tie]uint64{}
	for i := range tensors {
		t := &tensors[i]
		j, ok := at[parent.Read[t.Name]]
		if !ok || parent.Tensors[j].Digest != t.Digest {
			j, ok = at[t.Name]
		}
		if ok && parent.Tensors[j].Digest == t.Digest {
			out[i] = parent.Owners[j]
			if t.Tie > 0 {
				k := tie{t.Tie, t.Digest}
				if o, ok := tied[k]; !ok || out[i] < o {
					tied[k] = out[i]
				}
			}
		}
	}
	for i := range tensors {
		if o, ok := tied[tie{tensors[i].Tie, tensors[i].Digest}]; ok {
			out[i] = o
		}
	}
	return out
}

// Shares sums up owners, with the bytes of each tensor.
func Shares(owners []uint64, bytes []int64) []Share {
	at := map[uint64]int{}
	var out []Share
	for i, o := range owners {
		n, ok := at[o]
		if !ok {
			n = len(out)
			at[o] = n
			out = append(out, Share{Owner: o})
		}
		out[n].Tensors++
		out[n].Bytes += bytes[i]
	}
	slices.SortFunc(out, func(a, b Share) int {
		if a.Owner < b.Owner {
			return -1
		}
		return 1
	})
	return out
}
