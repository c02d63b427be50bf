package numbers

import (
	"math"
	"sync"

	"ckptfs/formats"
)

// Summary describes numbers. The components of complex elements are numbers of their own.
type Summary struct {
	Count    int64
	NaN      int64
	Inf      int64   // of either sign
	Zero     int64   // also -0
	Min, Max float64 // of the finite ones; Min > Max when there is none

	sum float64 // of the finite ones
}

// NewSummary is that of no numbers.
func NewSummary() *Summary { return &Summary{Min: math.Inf(1), Max: math.Inf(-1)} }

// Finite is how many of the numbers are.
func (s *Summary) Finite() int64 { return s.Count - s.NaN - s.Inf }

// Mean is that of the finite numbers, NaN when there is none.
func (s *Summary) Mean() float64 { return s.sum / float64(s.Finite()) }

// Merge adds what another Summary counted.
func (s *Summary) Merge(o *Summary) {
	s.Count += o.Count
	s.NaN += o.NaN
	s.Inf += o.Inf
	s.Zero += o.Zero
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.sum += o.sum
}

// worthCounting is from how many bytes on elements of at most 16 bits are counted by value before they are
// decoded.
const worthCounting = 256 << 10

// Add adds elements of a type that is Known. Sums are taken of each call's elements by themselves first.
func (s *Summary) Add(d formats.DType, p []byte) {
	part := NewSummary()
	switch bits := d.Bits(); {
	case bits == 8:
		var n [256]int64
		for _, c := range p {
			n[c]++
		}
		part.counted(d, n[:])
	case bits == 16 && len(p) >= worthCounting:
		n := make([]int64, 1<<16)
		for ; len(p) >= 2; p = p[2:] {
			n[le.Uint16(p)]++
		}
		part.counted(d, n)
	case d == formats.F32 || d == formats.C64:
		for ; len(p) >= 4; p = p[4:] {
			part.add(float64(math.Float32frombits(le.Uint32(p))), 1)
		}
	case complexType(d):
		for ; len(p) >= 8; p = p[8:] {
			part.add(math.Float64frombits(le.Uint64(p)), 1)
		}
	default:
		read, width := decoders[d], bits/8
		for ; len(p) >= width; p = p[width:] {
			part.add(read(p), 1)
		}
	}
	s.Merge(part)
}

// values has, for types of at most 16 bits, each value by its bits.
var values sync.Map

func (s *Summary) counted(d formats.DType, n []int64) {
	v, ok := values.Load(d)
	if !ok {
		all := make([]float64, len(n))
		for i := range all {
			all[i] = decoders[d]([]byte{byte(i), byte(i >> 8)})
		}
		v, _ = values.LoadOrStore(d, all)
	}
	for i, x := range v.([]float64) {
		if n[i] > 0 {
			s.add(x, n[i])
		}
	}
}

// add adds a number n times.
func (s *Summary) add(x float64, n int64) {
	s.Count += n
	switch {
	case x-x != 0: // neither NaN nor infinity is itself less itself
		if x != x {
			s.NaN += n
		} else {
			s.Inf += n
		}
		return
	case x == 0:
		s.Zero += n
	}
	if x < s.Min {
		s.Min = x
	}
	if x > s.Max {
		s.Max = x
	}
	s.sum += x * float64(n)
}
