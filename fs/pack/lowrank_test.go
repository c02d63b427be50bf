package pack

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
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

// bytes are the matrix, of elements that a step more of training, or another adapter, would give another seed to.
func (m matrix) bytes(adapter uint64) (p []byte) {
	base, up, down := rand.New(rand.NewPCG(m.seed, 1)), rand.New(rand.NewPCG(m.seed, adapter)), rand.New(rand.NewPCG(m.seed, adapter+1))
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
		entries = append(entries, safetensors.Entry{Name: m.name, DType: formats.DType("BF16"), Shape: []int64{int64(m.rows), int64(m.cols)}})
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
	plain := []matrix{{name: "a.w", rows: 1024, cols: 1024, seed: 1}, {name: "b.w", rows: 300, cols: 512, seed: 2}, {name: "c.w", rows: 16, cols: 4096, seed: 3}, {name: "d.w", rows: 512, cols: 512, seed: 4}}
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
