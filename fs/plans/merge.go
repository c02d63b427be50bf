package plans

import (
	"io"
	"math"
	"unsafe"

	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// The shapes of products whose sums the BLAS of torch forms in the order of the rank: see Merge.
const (
	maxRank = 128
	minEdge = 16
)

// Merge plans a base model's file with an adapter of PEFT merged into it:
//
//	base = AutoModelForCausalLM.from_pretrained(…, dtype="auto")
//	m = PeftModel.from_pretrained(base, adapter); m.base_model.scale_layer(scale); m = m.merge_and_unload()
//	out = {k: m.state_dict()[k] for k in load_file(source)}
//
// as PEFT 0.21 merges LoRA. So a weight W with the matrices B and A becomes, with s = lora_alpha/r times scale,
//
//	(W.float() + (B.float() @ A.float()) * s).to(W.dtype)
//
// config is the adapter's adapter_config.json. W is F32, F16 or BF16. Of GPT-2 (fan_in_fan_out) the product is
// transposed. part says that the file has only some of the model's tensors; else it has to have all weights
// that the adapter has matrices of.
//
// # The product
//
// An element of B @ A is a chain of fused multiplications and additions in single precision, from the first
// rank to the last, each rounded once:
//
//	c = 0; for k in range(r): c = fma(B[i, k], A[k, j], c)
//
// The BLAS of torch (MKL) computes it so, with AVX2 and AVX-512, on 1 to 8 threads, where r is 192 at most and
// B has 16 rows, and A 16 columns, or more. Larger ranks are summed in parts, and narrow products otherwise.
// These are refused, from r > 128 and edges below 16 on.
//
// What PEFT merges otherwise is refused: DoRA, patterns of ranks, embeddings, biases, modules_to_save, and
// what initialises A and B of the base.
//
// Matrices that were read are kept in cache, until the plan is dropped.
func Merge(base, lora *Source, config []byte, scale float64, part bool, cache *Factors) (*Plan, error) {
	a, err := adapterOf(config, scale)
	if err != nil {
		return nil, err
	}
	if s := float32(a.scaling); s != s || math.IsInf(float64(s), 0) {
		return nil, none("the scale is %v", a.scaling)
	}
	pairs, err := a.pairs(lora)
	if err != nil {
		return nil, err
	}
	out := make([]output, 0, len(base.Layout.Tensors))
	var all []*merge
	for i := range base.Layout.Tensors {
		t := &base.Layout.Tensors[i]
		e := safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
		p, ok := pairs[t.Name]
		if !ok {
			out = append(out, output{e, &copied{0, base.base(t)}})
			continue
		}
		op, err := a.merge(base, lora, t, p)
		if err != nil {
			return nil, err
		}
		op.cache = cache
		all = append(all, op)
		out = append(out, output{e, op})
	}
	if len(all) < len(pairs) && !part {
		for name := range pairs {
			if _, ok := base.byName()[name]; !ok {
				return nil, none("the adapter has matrices of %q, which the file has not", name)
			}
		}
	}
	p, err := plan(out, base.Metadata)
	if err == nil {
		p.drop = func() { cache.drop(all) }
	}
	return p, err
}

func (a *adapter) merge(base, lora *Source, t *formats.Tensor, p pair) (*merge, error) {
	rows, cols := p.b.Shape[0], p.a.Shape[1] // of the product
	m := &merge{base: base.base(t), to: t.DType, rank: a.rank, scaling: float32(a.scaling)}
	m.left = factor{lora.base(p.b), p.b.DType, rows, false}
	m.right = factor{lora.base(p.a), p.a.DType, cols, true}
	if a.transposed {
		m.left, m.right = m.right, m.left
	}
	switch {
	case t.DType != formats.F32 && t.DType != formats.F16 && t.DType != formats.BF16:
		return nil, none("tensor %q is of type %s", t.Name, t.DType)
	case len(t.Shape) != 2 || t.Shape[0] != m.left.n || t.Shape[1] != m.right.n:
		return nil, none("tensor %q has the shape %v, and the adapter's product %v", t.Name, t.Shape,
			[]int64{m.left.n, m.right.n})
	case rows < minEdge || cols < minEdge:
		return nil, none("tensor %q: PyTorch adds a product of %d by %d in an order that depends on the machine", t.Name, rows, cols)
	case m.bytes() > maxFactors:
		return nil, none("tensor %q: its matrices take %d bytes of memory", t.Name, m.bytes())
	}
	return m, nil
}

// factor is one of the matrices of a product of two: n by rank, or rank by n if that is how it lies.
type factor struct {
	base   int64
	from   formats.DType
	n      int64
	ranked bool // rank by n
}

// merge is a tensor of the first source, plus a product of two of the second.
type merge struct {
	base        int64
	to          formats.DType
	rank        int64
	scaling     float32
	left, right factor // of the rows, of the columns
	cache       *Factors
}

func (m *merge) memory() int64 { return int64(unsafe.Sizeof(*m)) }

// bytes is what the matrices take, as float32.
func (m *merge) bytes() int64 { return 4 * m.rank * (m.left.n + m.right.n) }

func (m *merge) read(src []io.ReaderAt, p []byte, off int64) error {
	f, err := m.cache.get(src[1], m)
	if err != nil {
		return err
	}
	in, mid := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(in)
	defer slabs.Put(mid)
	width, cols := int64(m.to.Bits()/8), m.right.n
	sums := make([]float32, min(cols, slab))
	return inSlabs(p, off, width, func(dst []byte, first int64) error {
		n := int64(len(dst)) / width
		if err := readFull(src[0], in[:n*width], m.base+first*width); err != nil {
			return err
		}
		wide := mid[:4*n]
		widen(wide, in[:n*width], m.to)
		for q := wide; len(q) > 0; {
			i, j := first/cols, first%cols
			k := min(cols-j, int64(len(q)/4), int64(len(sums)))
			f.product(sums[:k], i, j)
			for e, s := range sums[:k] {
				w := math.Float32frombits(le.Uint32(q[4*e:])) + float32(s*m.scaling)
				le.PutUint32(q[4*e:], math.Float32bits(w))
			}
			q, first = q[4*k:], first+k
		}
		narrow(dst, wide, m.to, 0xffff)
		return nil
	})
}

// factors are the matrices of a product: left has rank numbers for each row, right columns for each rank.
type factors struct {
	rank, cols  int64
	left, right []float32
}

// product sets sums to row i of the product, from column j on.
func (f *factors) product(sums []float32, i, j int64) {
	clear(sums)
	for k := range f.rank {
		fmaRow(sums, f.right[k*f.cols+j:], f.left[i*f.rank+k])
	}
}

// fmaRow adds to each sum x times by, rounded once. The sum in double precision is rounded again only where
// that cannot make a difference: it is none that lies in the middle between two numbers of single precision,
// and not too small for one that is normal.
func fmaRow(sums, x []float32, by float32) {
	const half, low, least = 1 << 28, 1<<29 - 1, 0x3810000000000000 // 2^-126
	b := float64(by)
	x = x[:len(sums)]
	for j, c := range sums {
		s := float64(b*float64(x[j])) + float64(c)
		if u := math.Float64bits(s); u&low == half || u&^(1<<63) < least {
			sums[j] = quant.FMA(x[j], by, c)
		} else {
			sums[j] = float32(s)
		}
	}
}

// load reads the matrices.
func (m *merge) load(src io.ReaderAt) (*factors, error) {
	f := &factors{rank: m.rank, cols: m.right.n}
	var err error
	if f.left, err = m.left.load(src, m.rank, false); err == nil {
		f.right, err = m.right.load(src, m.rank, true)
	}
	return f, err
}

// load reads the matrix, as rank by n if ranked, else n by rank.
func (f *factor) load(src io.ReaderAt, rank int64, ranked bool) ([]float32, error) {
	n := f.n * rank
	width := int64(f.from.Bits() / 8)
	out := make([]float32, n)
	raw, wide := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(raw)
	defer slabs.Put(wide)
	minor := rank // the length of a row, as the matrix lies
	if f.ranked {
		minor = f.n
	}
	for at := int64(0); at < n; {
		k := min(slab, n-at)
		if err := readFull(src, raw[:k*width], f.base+at*width); err != nil {
			return nil, err
		}
		widen(wide[:4*k], raw[:k*width], f.from)
		for e := range k {
			to := at + e
			if f.ranked != ranked {
				to = to%minor*(n/minor) + to/minor
			}
			out[to] = math.Float32frombits(le.Uint32(wide[4*e:]))
		}
		at += k
	}
	return out, nil
}
