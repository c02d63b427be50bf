package safetensors

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"

	"ckptfs/formats"
)

// table is the tensors of a header, in its order. Names and dimensions lie one after the other: a header may
// have a million tensors, and a string and a slice for each take more than what is in them.
type table struct {
	rows  []row
	names strings.Builder
	dims  []int64 // as uint64 has them
}

// row is one tensor as the header states it.
type row struct {
	start, end    uint64
	name, nameLen uint32 // in names
	dims, rank    uint32 // in dims
	dtype         uint8  // in dtypes
	replaced      bool   // by a later one of its name
}

func (t *table) add(name []byte, e *entry) {
	r := row{start: e.start, end: e.end, name: uint32(t.names.Len()), nameLen: uint32(len(name)),
		dims: uint32(len(t.dims)), rank: uint32(len(e.shape)), dtype: e.dtype}
	t.names.Write(name)
	for _, d := range e.shape {
		t.dims = append(t.dims, int64(d))
	}
	t.rows = append(t.rows, r)
}

func (t *table) name(r *row) string { return t.names.String()[r.name : r.name+r.nameLen] }

func (t *table) shape(r *row) []int64 { return t.dims[r.dims : r.dims+r.rank : r.dims+r.rank] }

// unite makes the rows of each name one, which has the place of the first and the values of the last.
func (t *table) unite() {
	type named struct {
		hash uint64
		row  int32
	}
	seed := maphash.MakeSeed()
	byName := make([]named, len(t.rows))
	for i := range t.rows {
		byName[i] = named{maphash.String(seed, t.name(&t.rows[i])), int32(i)}
	}
	slices.SortFunc(byName, func(a, b named) int {
		if c := cmp.Compare(a.hash, b.hash); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(t.name(&t.rows[a.row]), t.name(&t.rows[b.row])), cmp.Compare(a.row, b.row))
	})
	first, replaced := 0, false
	for k := 1; k < len(byName); k++ {
		a, b := &t.rows[byName[first].row], &t.rows[byName[k].row]
		if byName[first].hash != byName[k].hash || t.name(a) != t.name(b) {
			first = k
			continue
		}
		*a = *b
		b.replaced, replaced = true, true
	}
	if replaced {
		t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return r.replaced })
	}
}

// byOffset is the order of the data.
func (t *table) byOffset() []int32 {
	order := make([]int32, len(t.rows))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int {
		a, b := &t.rows[i], &t.rows[j]
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	return order
}

// numBytes is the size by rule 6 of a tensor of such a shape, whose dimensions are those of uint64.
func numBytes[D int64 | uint64](shape []D, dtype formats.DType) (uint64, error) {
	n := uint64(1)
	times := func(d uint64) (over bool) {
		hi, lo := bits.Mul64(n, d)
		n = lo
		return hi != 0
	}
	for _, d := range shape {
		if times(uint64(d)) {
			return 0, fmt.Errorf("validation overflow: shape of %d dimensions of %s", len(shape), dtype)
		}
	}
	if times(uint64(dtype.Bits())) {
		return 0, fmt.Errorf("validation overflow: shape of %d dimensions of %s", len(shape), dtype)
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("misaligned slice: %d bits", n)
	}
	return n / 8, nil
}
