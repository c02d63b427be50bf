package plans

import (
	"io"
	"math"
	"slices"
	"sync"
	"unsafe"

	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
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
	of := []*Source{a, b}
	terms, err := termsOf(of)
	if err != nil {
		return nil, err
	}
	out := make([]output, len(terms))
	for k := range terms {
		e := &a.Layout.Tensors[k]
		out[k].Entry = safetensors.Entry{Name: e.Name, DType: e.DType, Shape: e.Shape}
		kept, err := keeps(e, terms[k])
		if err != nil {
			return nil, err
		}
		if kept {
			out[k].op = &copied{0, terms[k][0].base}
			continue
		}
		if terms[k][1].from != e.DType {
			return nil, none("tensor %q is of type %s and of type %s", e.Name, e.DType, terms[k][1].from)
		}
		n := int64(1)
		for _, d := range e.Shape {
			n *= d // safetensors.Parser has bounded it
		}
		out[k].op = &slerp{base: [2]int64{terms[k][0].base, terms[k][1].base}, of: e.DType, n: n, t: x}
	}
	return plan(out, a.Metadata)
}

// slerp is a tensor between one of each source.
type slerp struct {
	base [2]int64
	of   formats.DType
	n    int64
	t    float32

	mu    sync.Mutex // held while the factors are computed
	known bool
	by    [2]float32 // the tensors' factors
}

func (s *slerp) memory() int64 { return int64(unsafe.Sizeof(*s)) }

func (s *slerp) read(src []io.ReaderAt, p []byte, off int64) error {
	by, err := s.factors(src)
	if err != nil {
		return err
	}
	buf, x, y := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(buf)
	defer slabs.Put(x)
	defer slabs.Put(y)
	width := int64(s.of.Bits() / 8)
	return inSlabs(p, off, width, func(dst []byte, first int64) error {
		n := int64(len(dst)) / width
		if err := s.load(src, buf, x, 0, first, n); err != nil {
			return err
		}
		if err := s.load(src, buf, y, 1, first, n); err != nil {
			return err
		}
		scale(x[:4*n], by[0])
		scale(y[:4*n], by[1])
		add(x[:4*n], y[:4*n])
		narrow(dst, x[:4*n], s.of, 0xffff)
		return nil
	})
}

// load fills to with n numbers of one of the tensors, from the first on, as float32.
func (s *slerp) load(src []io.ReaderAt, buf, to *[8 * slab]byte, which int, first, n int64) error {
	width := int64(s.of.Bits() / 8)
	if err := readFull(src[which], buf[:n*width], s.base[which]+first*width); err != nil {
		return err
	}
	widen(to[:4*n], buf[:n*width], s.of)
	return nil
}

// factors are what the tensors are multiplied by. The first who needs them reads both tensors twice.
func (s *slerp) factors(src []io.ReaderAt) ([2]float32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return s.by, nil
	}
	dot, err := s.dot(src)
	if err != nil {
		return s.by, err
	}
	const straight = float32(0.9995)
	s.by = [2]float32{1 - s.t, s.t}
	if !(dot > straight || dot < -straight) {
		theta := float32(math.Acos(float64(dot)))
		sine := func(x float32) float32 { return float32(math.Sin(float64(x))) }
		s.by = [2]float32{sine((1-s.t)*theta) / sine(theta), sine(s.t*theta) / sine(theta)}
	}
	s.known = true
	return s.by, nil
}

// slerpPart is how many numbers mergekit takes at a time.
const slerpPart = 1 << 20

// dot is the product of the normalised tensors, from -1 to 1 or NaN.
func (s *slerp) dot(src []io.ReaderAt) (float32, error) {
	buf, x, y := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(buf)
	defer slabs.Put(x)
	defer slabs.Put(y)
	a, b := make([]float32, slab), make([]float32, slab)
	var norms [2]float32
	for which := range norms {
		var parts []float32
		for at := int64(0); at < s.n; at += slerpPart {
			var norm norm
			err := s.part(at, func(first, n int64) error {
				if err := s.load(src, buf, x, which, first, n); err != nil {
					return err
				}
				norm.add(numbers(a, x[:4*n]))
				return nil
			})
			if err != nil {
				return 0, err
			}
			parts = append(parts, norm.root())
		}
		var whole norm
		whole.add(parts)
		norms[which] = 1
		if r := whole.root(); r > 1e-8 {
			norms[which] = r
		}
	}
	var parts []float32
	for at := int64(0); at < s.n; at += slerpPart {
		total := total{few: min(slerpPart, s.n-at) < lanes}
		err := s.part(at, func(first, n int64) error {
			if err := s.load(src, buf, x, 0, first, n); err != nil {
				return err
			}
			if err := s.load(src, buf, y, 1, first, n); err != nil {
				return err
			}
			divide(x[:4*n], norms[0])
			divide(y[:4*n], norms[1])
			p := numbers(a, x[:4*n])
			for i, v := range numbers(b, y[:4*n]) {
				p[i] *= v
			}
			total.add(p)
			return nil
		})
		if err != nil {
			return 0, err
		}
		parts = append(parts, total.sum())
	}
	whole := total{few: len(parts) < lanes}
	whole.add(parts)
	return min(max(whole.sum(), -1), 1), nil
}

// part calls one with each slab of the part that begins at number at.
func (s *slerp) part(at int64, one func(first, n int64) error) error {
	end := min(at+slerpPart, s.n)
	for ; at < end; at += slab {
		if err := one(at, min(slab, end-at)); err != nil {
			return err
		}
	}
	return nil
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
	few   bool
	level [4][4 * lanes]float32
	n     int // groups of four vectors that were added
	rest  []float32
}

// add adds numbers. Only the last call's may be other than a multiple of four vectors.
func (s *total) add(x []float32) {
	if !s.few {
		for ; len(x) >= 4*lanes; x = x[4*lanes:] {
			s.group(x[:4*lanes])
		}
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
	if s.few {
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
