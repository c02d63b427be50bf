package plans

import (
	"io"
	"math"
	"slices"
	"sync"
	"unsafe"

	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// Slerp plans the spherical interpolation of two files, t of the way from a to b:
//
//	for k, x in a.items():
//	    out[k] = slerp(torch.tensor([t]), x[None], b[k][None])[0] if x.is_floating_point() else x
//
// with slerp of mergekit 0.1.5 (merge_methods/slerp.py), on one thread (mergekit-yaml --num-threads 1), with
// torch's kernels for AVX2 (ATEN_CPU_CAPABILITY=avx2), and with the angle and the three sines rounded from
// double precision:
//
//	torch.acos = lambda x, f=torch.acos: f(x.double()).float()
//
// So mergekit itself has other bits: its two factors of a tensor come from MKL, whose sines are off by up to
// 0.6 of the last place and arc cosines by up to 0.8, otherwise from one processor to another. On several
// threads the sums are formed otherwise too.
//
// Tensors are F32, F16 and BF16, and of the same type in both files.
func Slerp(a, b *Source, t float64) (*Plan, error) {
	x := float32(t)
	if math.IsInf(float64(x), 0) || x != x {
		return nil, none("the way is %v", t)
	}
	return soup([]*Source{a, b}, func(e *formats.Tensor, of []term) (op, error) {
		if of[1].from != e.DType {
			return nil, none("tensor %q is of type %s and of type %s", e.Name, e.DType, of[1].from)
		}
		return &slerp{terms: of, n: e.NumElements(), t: x}, nil
	})
}

// slerp is a tensor between one of each source: their sum, each times a factor that comes from both.
type slerp struct {
	terms []term // of one type
	n     int64
	t     float32

	mu  sync.Mutex // held while the factors are computed
	sum *sum       // nil: they are not known
}

func (s *slerp) memory() int64 {
	return int64(unsafe.Sizeof(*s)+unsafe.Sizeof(*s.sum)) + int64(len(s.terms))*int64(unsafe.Sizeof(term{})+4)
}

func (s *slerp) read(src []io.ReaderAt, p []byte, off int64) error {
	sum, err := s.weigh(src)
	if err != nil {
		return err
	}
	return sum.read(src, p, off)
}

// load fills to with n numbers of one of the tensors, from the first on, as float32.
func (s *slerp) load(src []io.ReaderAt, buf, to *[8 * slab]byte, which int, first, n int64) error {
	t := &s.terms[which]
	width := int64(t.from.Bits() / 8)
	if err := readFull(src[which], buf[:n*width], t.base+first*width); err != nil {
		return err
	}
	widen(to[:4*n], buf[:n*width], t.from)
	return nil
}

// weigh finds the factors. The first who needs them reads both tensors twice.
func (s *slerp) weigh(src []io.ReaderAt) (*sum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum != nil {
		return s.sum, nil
	}
	dot, err := s.dot(src)
	if err != nil {
		return nil, err
	}
	const straight = float32(0.9995)
	by := []float32{1 - s.t, s.t}
	if !(dot > straight || dot < -straight) {
		theta := float32(math.Acos(float64(dot)))
		sine := func(x float32) float32 { return float32(math.Sin(float64(x))) }
		by = []float32{sine(by[0]*theta) / sine(theta), sine(by[1]*theta) / sine(theta)}
	}
	s.sum = &sum{s.terms, by, s.terms[0].from}
	return s.sum, nil
}

// slerpPart is how many numbers mergekit takes at a time, a multiple of slab.
const slerpPart = 1 << 20

// dot is the product of the normalised tensors, from -1 to 1 or NaN.
func (s *slerp) dot(src []io.ReaderAt) (float32, error) {
	buf, x, y := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(buf)
	defer slabs.Put(x)
	defer slabs.Put(y)
	room := make([]float32, slab)
	var norms [2]float32
	for which := range norms {
		var part, whole norm
		parts, err := s.parts(func(first, n int64) error {
			if err := s.load(src, buf, x, which, first, n); err != nil {
				return err
			}
			part.add(numbers(room, x[:4*n]))
			return nil
		}, func() float32 {
			defer func() { part = norm{} }()
			return part.root()
		})
		if err != nil {
			return 0, err
		}
		whole.add(parts)
		norms[which] = 1
		if r := whole.root(); r > 1e-8 {
			norms[which] = r
		}
	}
	var part, whole total
	parts, err := s.parts(func(first, n int64) error {
		if err := s.load(src, buf, x, 0, first, n); err != nil {
			return err
		}
		if err := s.load(src, buf, y, 1, first, n); err != nil {
			return err
		}
		divide(x[:4*n], norms[0])
		divide(y[:4*n], norms[1])
		multiply(x[:4*n], y[:4*n])
		part.add(numbers(room, x[:4*n]))
		return nil
	}, func() float32 {
		defer func() { part = total{} }()
		return part.sum()
	})
	if err != nil {
		return 0, err
	}
	whole.add(parts)
	return min(max(whole.sum(), -1), 1), nil
}

// parts calls one with each slab of the tensors, and end behind each part, which says what that comes to.
func (s *slerp) parts(one func(first, n int64) error, end func() float32) (all []float32, err error) {
	for first := int64(0); first < s.n; first += slab {
		if err := one(first, min(slab, s.n-first)); err != nil {
			return nil, err
		}
		if next := first + slab; next%slerpPart == 0 || next >= s.n {
			all = append(all, end())
		}
	}
	return all, nil
}

// numbers are those of x, in to.
func numbers(to []float32, x []byte) []float32 {
	to = to[:len(x)/4]
	for i := range to {
		to[i] = math.Float32frombits(le.Uint32(x[4*i:]))
	}
	return to
}

// lanes is how many float32 a vector of AVX2 has.
const lanes = 8

// norm is torch.linalg.vector_norm of numbers along the last dimension. Each lane of a vector sums squares, and
// the lanes are summed in their order. Of the numbers behind the last whole vector, the squares of the first
// four are rounded if there are four, and those of the others are not.
type norm struct {
	lane [lanes]float32
	rest []float32
}

// add adds numbers. Only the last call's may be other than a multiple of lanes.
func (s *norm) add(x []float32) {
	for ; len(x) >= lanes; x = x[lanes:] {
		for i, v := range x[:lanes] {
			s.lane[i] += float32(v * v)
		}
	}
	s.rest = slices.Clone(x)
}

func (s *norm) root() float32 {
	sum := s.lane[0]
	for _, v := range s.lane[1:] {
		sum += v
	}
	for i, v := range s.rest {
		if i < len(s.rest)&^3 {
			sum += float32(v * v)
		} else {
			sum = quant.FMA(v, v, sum)
		}
	}
	return float32(math.Sqrt(float64(sum)))
}

// total is torch.sum of numbers along the last dimension: four vectors at a time are summed in cascades, the
// numbers of 16 and more in one of 16 times as many. There are four levels. Fewer numbers than a vector has
// are taken as four vectors of one lane.
type total struct {
	level [4][4 * lanes]float32
	n     int // groups of four vectors that were added
	rest  []float32
}

// add adds numbers. Only the last call's may be other than a multiple of four vectors.
func (s *total) add(x []float32) {
	for ; len(x) >= 4*lanes; x = x[4*lanes:] {
		s.group(x[:4*lanes])
	}
	s.rest = slices.Clone(x)
}

func (s *total) group(x []float32) {
	for i, v := range x[:4*lanes] {
		s.level[0][i] += v
	}
	s.n++
	for j, step := 1, 16; j < len(s.level) && s.n%step == 0; j, step = j+1, step*16 {
		for i, v := range &s.level[j-1] {
			s.level[j][i] += v
		}
		s.level[j-1] = [4 * lanes]float32{}
	}
}

func (s *total) sum() float32 {
	if s.n == 0 && len(s.rest) < lanes {
		var four [4]float32
		rest := s.rest
		if len(rest) >= 4 {
			rest = rest[copy(four[:], rest):]
		}
		for _, v := range rest {
			four[0] += v
		}
		return four[0] + four[1] + four[2] + four[3]
	}
	all := s.level[0]
	for j := 1; j < len(s.level); j++ {
		for i, v := range &s.level[j] {
			all[i] += v
		}
	}
	rest := s.rest
	for ; len(rest) >= lanes; rest = rest[lanes:] {
		for i, v := range rest[:lanes] {
			all[i] += v
		}
	}
	for i := lanes; i < len(all); i++ {
		all[i%lanes] += all[i]
	}
	var sum float32
	for _, v := range rest {
		sum += v
	}
	for _, v := range all[:lanes] {
		sum += v
	}
	return sum
}
