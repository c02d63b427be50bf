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
func Mean(of []*Source) (*Plan, error) { return soup(of, nil) }

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
	return soup(of, w)
}

func soup(of []*Source, weights []float32) (*Plan, error) {
	terms, err := termsOf(of)
	if err != nil {
		return nil, err
	}
	first := of[0].Layout.Tensors
	out := make([]output, len(first))
	for k := range first {
		t := &first[k]
		out[k].Entry = safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
		if kept, err := keeps(t, terms[k]); err != nil {
			return nil, err
		} else if kept {
			out[k].op = &copied{0, terms[k][0].base}
			continue
		}
		out[k].op = &sum{terms[k], weights, t.DType}
	}
	return plan(out, of[0].Metadata)
}

// termsOf are, of each tensor of the first file, those of that name of all files. It is an error if a file has
// other tensors, if they have other shapes, or if one is floating and another is not.
func termsOf(of []*Source) ([][]term, error) {
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
	return terms, nil
}

// keeps reports whether the tensor t of the first file stays as it is, and not a sum of these: that of integers
// does. It is an error if it can be neither.
func keeps(t *formats.Tensor, of []term) (bool, error) {
	switch t.DType {
	case formats.Bool, formats.U8, formats.I8, formats.I16, formats.U16, formats.I32, formats.U32, formats.I64,
		formats.U64:
		return true, nil
	}
	for _, x := range of {
		if x.from != formats.F32 && x.from != formats.F16 && x.from != formats.BF16 {
			return false, none("tensor %q is of type %s", t.Name, x.from)
		}
	}
	return false, nil
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

func add(to, x []byte) {
	for ; len(x) >= 4; to, x = to[4:], x[4:] {
		s := math.Float32frombits(le.Uint32(to)) + math.Float32frombits(le.Uint32(x))
		le.PutUint32(to, math.Float32bits(s))
	}
}
