package quant

import (
	"math"
	"slices"
)

// A codeTable is of a format whose codes stand for any numbers between -1 and 1.
type codeTable struct {
	values [16]float32 // rising
	codes  [16]byte    // of these
	place  [16]byte    // of a code among them
	bounds [16]int64   // between a value and the next, in the order of all numbers; behind the last none
	from   [4 * cells]byte
}

// cells is how many parts the numbers from 0 to 1 are cut into. from has for each of them the place of the
// least number in the one before it: what is counted from may have been rounded up. In two of them there is
// one bound at most.
const cells = 1024

// all sets codes to those of the numbers that are nearest to v, of two as near the lower one; of what is none
// to that of the least.
func (t *codeTable) all(codes []byte, v []float32) {
	v = v[:len(codes)]
	for i, v := range v {
		v = clamp(v, -1, 1) // also what is none
		n := t.from[uint32(int32((v+1)*cells))&(4*cells-1)] & 15
		n += byte(uint64(t.bounds[n]-inOrder(v)) >> 63)
		codes[i] = t.codes[n&15]
	}
}

// inOrder is a whole number for v: less for what is less.
func inOrder(v float32) int64 {
	b := int32(bits(v))
	return int64(b ^ b>>31&math.MaxInt32)
}

func newTable(values [16]float32, order func(a, b int) int) *codeTable {
	t := new(codeTable)
	at := make([]int, 16)
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, order)
	for i, code := range at {
		t.values[i], t.codes[i], t.place[code] = values[code], byte(code), byte(i)
	}
	for i := range 15 {
		t.bounds[i] = inOrder((t.values[i] + t.values[i+1]) / 2)
	}
	t.bounds[15] = math.MaxInt64
	for i := range t.from {
		edge := inOrder(float32(i-1-cells) / cells)
		for t.from[i] < 15 && t.bounds[t.from[i]] < edge {
			t.from[i]++
		}
	}
	return t
}

// nf4 are the numbers of NF4 in bitsandbytes (QLoRA, appendix E), fp4 those of its FP4.
var (
	nf4 = [16]float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
		-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534,
		0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434,
		0.5626170039176941, 0.7229568362236023, 1}
	fp4 = [16]float32{0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5,
		0.1666666716337204, 0.25, 0, -0.0052083334885537624, -0.6666666865348816, -1,
		-0.3333333432674408, -0.5, -0.1666666716337204, -0.25}
)

// The tables. The two codes of FP4 that stand for 0 are those of what is a little less and a little more, in
// this order or the other one.
var (
	tableNF4 = newTable(nf4, byValue(nf4))
	tablesFP = [2]*codeTable{newTable(fp4, byValue(fp4)), newTable(fp4, func(a, b int) int {
		if fp4[a] == fp4[b] {
			return b - a
		}
		return byValue(fp4)(a, b)
	})}
)

func byValue(values [16]float32) func(a, b int) int {
	return func(a, b int) int {
		switch {
		case values[a] < values[b]:
			return -1
		case values[a] > values[b]:
			return 1
		}
		return 0
	}
}

func tableOf(f Format, variant uint8) *codeTable {
	if f == NF4 {
		return tableNF4
	}
	return tablesFP[variant&1]
}
