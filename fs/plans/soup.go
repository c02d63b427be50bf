package plans

import (
	"io"
	"math"
	"slices"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// MaxSources bounds of how many files one is made.
const MaxSources = 16

// Mean plans the mean of files, a, b and so on, that have the same tensors:
//
//	for k, t in a.items():
//	    if t.is_floating_point():
//	        s = t.float(); s = s + b[k].float(); …; out[k] = (s / n).to(t.dtype)
//	    else: out[k] = t
//
// Tensors are F32, F16 and BF16, in one file perhaps otherwise than in another. Those of integers are the
// first file's.
func Mean(of []*Source) (*Plan, error) { return soup(of, weighed(nil)) }

// Sum plans the sum of files, each times its weight, as Mean:
//
//	s = t.float() * w[0]; s = s + b[k].float() * w[1]; …; out[k] = s.to(t.dtype)
func Sum(of []*Source, weights []float64) (*Plan, error) {
	if len(weights) != len(of) {
		return nil, none("%d weights of %d files", len(weights), len(of))
	}
	w := make([]float32, len(weights))
	for i, x := range weights {
		if w[i] = float32(x); math.IsInf(float64(w[i]), 0) || w[i] != w[i] {
			return nil, none("a weight of %v", x)
		}
	}
	return soup(of, weighed(w))
}

// weighed sums tensors times these weights; nil: it takes their mean.
func weighed(weights []float32) func(t *formats.Tensor, of []term) (op, error) {
	return func(t *formats.Tensor, of []term) (op, error) { return &sum{of, weights, t.DType}, nil }
}

// soup plans a file of what how makes of each tensor of the first file that is of floating numbers, and of
// those of its name in the others.
func soup(of []*Source, how func(t *formats.Tensor, of []term) (op, error)) (*Plan, error) {
	if len(of) < 2 || len(of) > MaxSources {
		return nil, none("of %d files; it takes 2 to %d", len(of), MaxSources)
	}
	first := of[0].Layout.Tensors
	terms := make([][]term, len(first))
	for i, s := range of {
		byName := s.byName()
		if len(byName) != len(first) {
			return nil, none("file %d has %d tensors, and the first one %d", i+1, len(byName), len(first))
		}
		for k := range first {
			t, ok := byName[first[k].Name]
			if !ok || !slices.Equal(t.Shape, first[k].Shape) || floating(t.DType) != floating(first[k].DType) {
				return nil, none("tensor %q of the first file is in file %d of another shape, or not at all",
					first[k].Name, i+1)
			}
			terms[k] = append(terms[k], term{s.base(t), t.DType})
		}
	}
	out := make([]output, len(first))
	for k := range first {
		t := &first[k]
		out[k].Entry = safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
		if !floating(t.DType) {
			switch t.DType {
			case formats.Bool, formats.U8, formats.I8, formats.I16, formats.U16, formats.I32, formats.U32,
				formats.I64, formats.U64:
				out[k].op = &copied{0, terms[k][0].base}
				continue
			}
		}
		for _, x := range terms[k] {
			if x.from != formats.F32 && x.from != formats.F16 && x.from != formats.BF16 {
				return nil, none("tensor %q is of type %s", t.Name, x.from)
			}
		}
		var err error
		if out[k].op, err = how(t, terms[k]); err != nil {
			return nil, err
		}
	}
	return plan(out, of[0].Metadata)
}

// term is a tensor of one of the sources.
type term struct {
	base int64
	from formats.DType
}

// sum is the sum of a tensor of each source, each times its weight. Without weights it is their mean.
type sum struct {
	terms   []term
	weights []float32
	to      formats.DType
}

func (s *sum) memory() int64 {
	return int64(unsafe.Sizeof(*s)) + int64(cap(s.terms))*int64(unsafe.Sizeof(term{}))
}

func (s *sum) read(src []io.ReaderAt, p []byte, off int64) error {
	in, mid, acc := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(in)
	defer slabs.Put(mid)
	defer slabs.Put(acc)
	to := int64(s.to.Bits() / 8)
	return inSlabs(p, off, to, func(dst []byte, first int64) error {
		n := int64(len(dst)) / to
		total := acc[:4*n]
		for i := range s.terms {
			t := &s.terms[i]
			from := int64(t.from.Bits() / 8)
			if err := readFull(src[i], in[:n*from], t.base+first*from); err != nil {
				return err
			}
			x := mid[:4*n]
			if i == 0 {
				x = total
			}
			widen(x, in[:n*from], t.from)
			if s.weights != nil {
				scale(x, s.weights[i])
			}
			if i > 0 {
				add(total, x)
			}
		}
		if s.weights == nil {
			divide(total, float32(len(s.terms)))
		}
		narrow(dst, total, s.to, 0xffff)
		return nil
	})
}

// The numbers of these are float32, and each operation is rounded by itself.

func scale(x []byte, by float32) {
	for ; len(x) >= 4; x = x[4:] {
		le.PutUint32(x, math.Float32bits(math.Float32frombits(le.Uint32(x))*by))
	}
}

func divide(x []byte, by float32) {
	for ; len(x) >= 4; x = x[4:] {
		le.PutUint32(x, math.Float32bits(math.Float32frombits(le.Uint32(x))/by))
	}
}

func multiply(to, x []byte) {
	for ; len(x) >= 4; to, x = to[4:], x[4:] {
		p := math.Float32frombits(le.Uint32(to)) * math.Float32frombits(le.Uint32(x))
		le.PutUint32(to, math.Float32bits(p))
	}
}

func add(to, x []byte) {
	for ; len(x) >= 4; to, x = to[4:], x[4:] {
		s := math.Float32frombits(le.Uint32(to)) + math.Float32frombits(le.Uint32(x))
		le.PutUint32(to, math.Float32bits(s))
	}
}
