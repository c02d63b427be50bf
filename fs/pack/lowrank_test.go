package pack

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/index/manifest"
)

// matrix is one of a model's, in bfloat16, into which adapters of some rank were merged.
type matrix struct {
	name       string
	rows, cols int
	seed       uint64
	rank       int     // 0: none was
	noise      float64 // that was added to what is not of low rank, in units of the last place
}

// bytes are the matrix, of elements that a step more of training, or another adapter, would give another seed
// to.
func (m matrix) bytes(adapter uint64) (p []byte) {
	base, up, down := rand.New(rand.NewPCG(m.seed, 1)), rand.New(rand.NewPCG(m.seed, adapter)),
		rand.New(rand.NewPCG(m.seed, adapter+1))
	a := make([]float64, m.rank*m.cols)
	for i := range a {
		a[i] = down.NormFloat64()
	}
	u := make([]float64, m.rank)
	for range m.rows {
		for i := range u {
			u[i] = up.NormFloat64() * 4e-4
		}
		for k := range m.cols {
			w := bf16(base.NormFloat64() * 0.02)
			for i, x := range u {
				w += x * a[i*m.cols+k]
			}
			w *= 1 + m.noise/256*up.NormFloat64()
			p = binary.LittleEndian.AppendUint16(p, uint16(math.Float32bits(float32(bf16(w)))>>16))
		}
	}
	return p
}

// bf16 rounds.
func bf16(x float64) float64 {
	b := math.Float32bits(float32(x))
	return float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
}

// merged is a file of matrices.
func merged(t testing.TB, adapter uint64, all ...matrix) []byte {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for _, m := range all {
		entries = append(entries, safetensors.Entry{Name: m.name, DType: formats.DType("BF16"),
			Shape: []int64{int64(m.rows), int64(m.cols)}})
		data = append(data, m.bytes(adapter)...)
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// lowRanks counts the chunks of tensors that are stored with the help of columns, and lists these.
func (b *bench) lowRanks(t testing.TB, m *manifest.Manifest) (n int, columns map[cas.Hash]int) {
	t.Helper()
	columns = map[cas.Hash]int{}
	e := newEarlier(b.st, m)
	for i := range m.Regions {
		for _, s := range e.grid(&m.Regions[i]) {
			var loc [1]cas.Location
			if err := b.st.Locate([]cas.Hash{s.Hash}, loc[:]); err != nil {
				t.Fatal(err)
			}
			if links, err := b.st.Bases(s.Hash, loc[0]); err != nil {
				t.Fatal(err)
			} else if len(links) == 2 {
				n++
				columns[links[1].Hash]++
			}
		}
	}
	return n, columns
}

func TestLowRank(t *testing.T) {
	b := memBench(t)
	plain := []matrix{{name: "a.w", rows: 1024, cols: 1024, seed: 1},
		{name: "b.w", rows: 300, cols: 512, seed: 2}, {name: "c.w", rows: 16, cols: 4096, seed: 3},
		{name: "d.w", rows: 512, cols: 512, seed: 4}}
	base := merged(t, 9, plain...)
	before := b.related(t, base, Related{}).Manifest
	tuned := make([]matrix, len(plain))
	for i, m := range plain {
		m.rank = 8
		tuned[i] = m
	}
	tuned[3].rank, tuned[3].noise = 0, 2
	src := merged(t, 9, tuned...)
	res := b.related(t, src, Related{Before: known(before)})
	n, columns := b.lowRanks(t, res.Manifest)
	t.Logf("%d bytes, %d stored, %d chunks of low rank, %d columns", len(src), res.FreshStored, n, len(columns))
	if n != 10 || len(columns) != 2 { // not c.w, which has few rows, and not d.w
		t.Errorf("%d chunks are of low rank, with %d columns", n, len(columns))
	}
}

// counted counts what is read of the store in packing.
type counted struct {
	*store.Store
	gets atomic.Int64
}

func (c *counted) Get(h cas.Hash, dst []byte) ([]byte, error) {
	c.gets.Add(1)
	return c.Store.Get(h, dst)
}

// Of a tensor that is not of low rank few chunks are looked at, whose bases are read: here two, and the first
// that is new; of one that did not change, none; of a file of many such, few tensors.
func TestNotLowRank(t *testing.T) {
	const n = 40
	all := make([]matrix, n)
	for i := range all {
		// three chunks
		all[i] = matrix{name: fmt.Sprintf("layers.%02d.w", i), rows: 512, cols: 768, seed: uint64(i)}
	}
	b := memBench(t)
	c := &counted{Store: b.st}
	b.p = New(c, Options{Workers: 2})
	before := b.related(t, merged(t, 9, all...), Related{}).Manifest
	one := slices.Clone(all)
	one[3].noise = 2
	c.gets.Store(0)
	b.related(t, merged(t, 9, one...), Related{Before: known(before)})
	if got := c.gets.Load(); got < 1 || got > 3 {
		t.Errorf("of one tensor %d chunks were read", got)
	}
	for i := range all {
		all[i].noise = 2
	}
	b = memBench(t)
	c = &counted{Store: b.st}
	b.p = New(c, Options{Workers: 2})
	before = b.related(t, merged(t, 9, one...), Related{}).Manifest
	c.gets.Store(0)
	res := b.related(t, merged(t, 7, all...), Related{Before: known(before)})
	if got := c.gets.Load(); got > 3*(8+n/8) {
		t.Errorf("%d chunks were read", got)
	}
	if low, _ := b.lowRanks(t, res.Manifest); low > 0 || b.deltas(t, res.Manifest) != 3*n {
		t.Errorf("%d chunks are deltas, %d of low rank", b.deltas(t, res.Manifest), low)
	}
}

// An adapter that is trained on, merged at each step, is stored in little each time: against what all of them
// were merged into.
func TestLowRankSeries(t *testing.T) {
	b := memBench(t)
	m := matrix{name: "a.w", rows: 1024, cols: 512, seed: 1}
	before := b.related(t, merged(t, 0, m), Related{}).Manifest
	m.rank = 4
	for step := range 9 {
		src := merged(t, uint64(10*step+10), m)
		res := b.related(t, src, Related{Before: known(before)})
		before = res.Manifest
		t.Logf("step %d: %d of %d bytes", step+1, res.FreshStored, len(src))
		if res.FreshStored > int64(len(src))/30 {
			t.Errorf("step %d takes %d bytes", step+1, res.FreshStored)
		}
	}
}

func TestLineOf(t *testing.T) {
	for _, c := range []struct {
		dtype  formats.DType
		shape  []int64
		stride []int64
		want   int64
	}{
		{"BF16", []int64{256, 128}, nil, 128},
		{"F32", []int64{64, 16, 3, 3, 4}, nil, 16 * 36},
		{"F16", []int64{256, 128}, []int64{1, 256}, 256}, // transposed
		{"F16", []int64{256, 128}, []int64{256, 2}, 0},
		{"F64", []int64{256, 128}, nil, 0},
		{"I32", []int64{256, 128}, nil, 0},
		{"F32", []int64{1 << 16}, nil, 0},
		{"F32", []int64{1 << 12, 8}, nil, 0},
		{"F32", []int64{8, 1 << 12}, nil, 0},
		{"BF16", []int64{32, 1 << 15}, nil, 1 << 15},
		{"F32", []int64{32, 1 << 15}, nil, 0},
		{"BF16", []int64{127, 128}, nil, 0},
	} {
		tensor := formats.Tensor{DType: c.dtype, Shape: c.shape, Stride: c.stride}
		r := formats.Region{Kind: formats.Data, Len: tensor.NumBytes()}
		if got := lineOf(&tensor, &r); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		r.Len++
		if got := lineOf(&tensor, &r); got != 0 {
			t.Errorf("%+v, a byte longer: %d", c, got)
		}
	}
}
