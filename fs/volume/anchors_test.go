package volume

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

const (
	wide = 512 // columns of weights
	head = 64
)

// gauss are rows of a matrix, as numbers of bfloat16.
func gauss(seed uint64, rows int) (x []float32) {
	rng := rand.New(rand.NewPCG(seed, 77))
	for range rows * wide {
		x = append(x, half.FromBF16(half.ToBF16(math.Float32bits(float32(rng.NormFloat64()*0.02)))))
	}
	return x
}

// rowsOf are some rows of x, in order.
func rowsOf(x []float32, n int, row func(r int) int) (y []float32) {
	for r := range n {
		y = append(y, x[row(r)*wide:][:wide]...)
	}
	return y
}

// weightsFile is a file of tensors of a type, with rows of so many elements.
type weightsFile struct {
	dtype   formats.DType
	cols    int // 0: flat
	tensors map[string][]float32
}

func (f weightsFile) bytes(t testing.TB) []byte {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	var names []string
	for name := range f.tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		x := f.tensors[name]
		shape := []int64{int64(len(x))}
		if f.cols > 0 {
			shape = []int64{int64(len(x) / f.cols), int64(f.cols)}
		}
		entries = append(entries, safetensors.Entry{Name: name, DType: f.dtype, Shape: shape})
		for _, v := range x {
			switch bits := math.Float32bits(v); f.dtype {
			case formats.F32:
				data = binary.LittleEndian.AppendUint32(data, bits)
			case formats.F16:
				data = binary.LittleEndian.AppendUint16(data, half.ToF16(bits))
			default:
				data = binary.LittleEndian.AppendUint16(data, half.ToBF16(bits))
			}
		}
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// ggufOf is a file of one quantised tensor.
func ggufOf(t testing.TB, name string, format quant.Format, id uint32, x []float32) []byte {
	t.Helper()
	return ggufFile(name, id, len(x)/wide, blocksOf(t, format, x))
}

// blocksOf are numbers in a format.
func blocksOf(t testing.TB, format quant.Format, x []float32) []byte {
	t.Helper()
	q := quant.Quantiser{Format: format}
	blocks, err := q.Restore(nil, &quant.Streams{}, x)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// ggufFile is a file of one tensor of a type that GGUF has a number for.
func ggufFile(name string, id uint32, rows int, data []byte) []byte {
	return ggufFiles([]string{name}, id, rows, data)
}

// ggufFiles is a file of tensors of one type and as many rows each, whose bytes end at what GGUF aligns to.
func ggufFiles(names []string, id uint32, rows int, data ...[]byte) []byte {
	le := binary.LittleEndian
	p := le.AppendUint32([]byte("GGUF"), 3)
	p = le.AppendUint64(le.AppendUint64(p, uint64(len(names))), 0)
	at := 0
	for i, name := range names {
		p = append(le.AppendUint64(p, uint64(len(name))), name...)
		p = le.AppendUint64(le.AppendUint64(le.AppendUint32(p, 2), wide), uint64(rows))
		p = le.AppendUint64(le.AppendUint32(p, id), uint64(at))
		at += len(data[i])
	}
	p = append(p, make([]byte, (32-len(p)%32)%32)...)
	return append(p, slices.Concat(data...)...)
}

// otherwise are files made of the weights q, k and v, under other names, each with the share of its bytes
// that it takes at most.
func otherwise(t testing.TB, q, k, v []float32) (all []otherFile) {
	fused := slices.Concat(q, k, v)
	rows := len(q) / wide
	byHead := rowsOf(fused, 3*rows, func(r int) int { return r/head%3*rows + r/(3*head)*head + r%head })
	rope := rowsOf(q, rows, func(r int) int { return r/head*head + r%2*head/2 + r%head/2 })
	left := make([]float32, 0, len(v)/2)
	tuned := slices.Clone(k)
	rng := rand.New(rand.NewPCG(5, 6))
	for r := range rows {
		left = append(left, v[r*wide:][:wide/2]...)
	}
	for i := range tuned {
		tuned[i] += float32(rng.NormFloat64() * 2e-5)
	}
	flat := slices.Concat(q[1000:], k, v, make([]float32, 100_000))
	one := func(dtype formats.DType, cols int, x []float32) []byte {
		return weightsFile{dtype, cols, map[string][]float32{"w": x}}.bytes(t)
	}
	return []otherFile{
		{"joined", one(formats.BF16, wide, fused), 0.02},
		{"by head", one(formats.BF16, wide, byHead), 0.02},
		{"interleaved", one(formats.BF16, wide, rope), 0.02},
		{"binary16", one(formats.F16, wide, q), 0.03},
		{"columns", one(formats.F32, wide/2, left), 0.02},
		{"flat", one(formats.F32, 0, flat), 0.05},
		{"tuned", one(formats.BF16, wide, tuned), 0.6},
		{"Q8_0", ggufOf(t, "x", quant.Q8_0, 8, byHead), 0.03},
		{"Q4_K", ggufOf(t, "x", quant.Q4_K, 12, rope), 0.03},
	}
}

type otherFile struct {
	what  string
	bytes []byte
	most  float64
}

func (f otherFile) name(i int) string { return f.folder(i) + "/weights" }

// folder has no number, as that of a step would have.
func (f otherFile) folder(i int) string { return fmt.Sprintf("of%c", 'a'+i) }

// What was made of tensors takes little beside them, whatever it and its tensors are called, and though much
// was stored since; it reads back in all lives of a store, and when they are gone.
func TestAnchors(t *testing.T) {
	q, k, v := gauss(1, 1024), gauss(2, 1024), gauss(3, 1024)
	base := weightsFile{formats.BF16, wide, map[string][]float32{"q": q, "k": k, "v": v}}.bytes(t)
	r := newRig(t)
	r.write("m.safetensors", base)
	r.pack("m.safetensors")
	for i := range 40 { // other than the tensors looked for, and packed since
		p := fmt.Sprintf("other%d.safetensors", i)
		x := gauss(uint64(100+i), 64)
		r.write(p, weightsFile{formats.BF16, wide, map[string][]float32{"o" + p: x}}.bytes(t))
		r.pack(p)
	}
	r.close()
	r = openRig(t, r.dir)
	want := map[string][]byte{"m.safetensors": base}
	for i, f := range otherwise(t, q, k, v) {
		p := f.name(i)
		r.mkdir(f.folder(i))
		before := r.segmentBytes()
		r.write(p, f.bytes)
		r.pack(p)
		want[p] = f.bytes
		if took := r.segmentBytes() - before; float64(took) > f.most*float64(len(f.bytes)) {
			t.Errorf("%s takes %d of %d bytes", f.what, took, len(f.bytes))
		}
	}
	check := func() {
		t.Helper()
		r.evictAll()
		for p, b := range want {
			r.same(p, b)
		}
		r.sound()
	}
	check()
	r.unlink("m.safetensors")
	delete(want, "m.safetensors")
	r.prune(now)
	r = r.crashed()
	check()
	r = r.withoutIndex()
	check()
}

// A store that lost its anchors has them after a compaction, which then finds what is made of what.
func TestCompactAnchors(t *testing.T) {
	q, k, v := gauss(1, 1024), gauss(2, 1024), gauss(3, 1024)
	base := weightsFile{formats.BF16, wide, map[string][]float32{"q": q, "k": k, "v": v}}.bytes(t)
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	want := map[string][]byte{}
	sum := 0.0
	files := otherwise(t, q, k, v)
	for i := range slices.Backward(files) { // the quants before what they were made of
		f := files[i]
		p := f.name(i)
		r.mkdir(f.folder(i))
		r.write(p, f.bytes)
		r.pack(p)
		want[p] = f.bytes
		sum += f.most * float64(len(f.bytes))
		if i == 7 {
			r.write("m.safetensors", base)
			r.pack("m.safetensors")
			want["m.safetensors"] = base
		}
	}
	r.close()
	if err := os.RemoveAll(r.at(tree.AnchorsDir)); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, r.dir)
	r.compact(control.CompactOptions{})
	r.prune(now)
	if got := r.segmentBytes(); float64(got) > float64(len(base))+sum {
		t.Errorf("%d bytes, of a base of %d", got, len(base))
	}
	r.evictAll()
	for p, b := range want {
		r.same(p, b)
	}
	r.sound()
}
