package volume

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

// matrix is one of a model's.
type matrix struct {
	name       string
	dtype      formats.DType
	rows, cols int
}

const adapterRank = 4

// merged is a model of matrices into which an adapter was merged; 0: none was.
func merged(t testing.TB, adapter uint64, all ...matrix) []byte {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for i, m := range all {
		entries = append(entries,
			safetensors.Entry{Name: m.name, DType: m.dtype, Shape: []int64{int64(m.rows), int64(m.cols)}})
		base, r := rand.New(rand.NewPCG(uint64(i), 3)), rand.New(rand.NewPCG(uint64(i), 100+adapter))
		a, u := make([]float64, adapterRank*m.cols), make([]float64, adapterRank)
		for k := range a {
			a[k] = r.NormFloat64() * 4e-4
		}
		for range m.rows {
			for k := range u {
				if u[k] = 0; adapter > 0 {
					u[k] = r.NormFloat64()
				}
			}
			for k := range m.cols {
				w := roundedTo(m.dtype, base.NormFloat64()*0.02)
				for i, x := range u {
					w += float32(x * a[i*m.cols+k])
				}
				bits := math.Float32bits(roundedTo(m.dtype, float64(w)))
				if m.dtype == "BF16" {
					data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
				} else {
					data = binary.LittleEndian.AppendUint32(data, bits)
				}
			}
		}
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, data...)
}

// roundedTo rounds to a type.
func roundedTo(d formats.DType, x float64) float32 {
	b := math.Float32bits(float32(x))
	if d == "BF16" {
		b = (b + 0x7fff + b>>16&1) &^ 0xffff
	}
	return math.Float32frombits(b)
}

// lowRanks counts the chunks of a file that are stored with the help of columns, and these.
func (r *rig) lowRanks(p string) (n, columns int) {
	r.t.Helper()
	_, m := r.manifestOf(p)
	own, seen := map[cas.Hash]bool{}, map[cas.Hash]bool{}
	for _, o := range m.Objects {
		spans, err := o.Spans(r.store.Get)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, s := range spans {
			own[s.Hash] = true
		}
	}
	for h := range own {
		var loc [1]cas.Location
		if err := r.store.Locate([]cas.Hash{h}, loc[:]); err != nil {
			r.t.Fatal(err)
		}
		links, err := r.store.Bases(h, loc[0])
		if err != nil {
			r.t.Fatal(err)
		}
		if len(links) == 0 || links[len(links)-1].Loc.Raw >= loc[0].Raw/4 || links[len(links)-1].Loc.Delta {
			continue
		}
		n++
		if last := links[len(links)-1].Hash; !seen[last] {
			seen[last] = true
			columns++
		}
	}
	return n, columns
}

var adaptedModel = []matrix{{"a.w", "BF16", 1024, 512}, {"b.w", "F32", 512, 512}, {"c.w", "BF16", 512, 256}}

// A model into which an adapter was merged takes little beside the one before, wherever that is found, and
// reads back in all lives of a store: the one before may go.
func TestLowRank(t *testing.T) {
	base, tuned, other := merged(t, 0, adaptedModel...), merged(t, 1, adaptedModel...),
		merged(t, 2, adaptedModel...)
	for name, to := range map[string][3]string{
		"in steps":        {"runs/r/1/m.safetensors", "runs/r/2/m.safetensors", "runs/r/3/m.safetensors"},
		"by a parent":     {"base/m.safetensors", "runs/r/1/tuned.safetensors", "runs/r/2/tuned.safetensors"},
		"alike elsewhere": {"models/base.safetensors", "a/b/adapted.safetensors", "c/d/adapted.safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			want := map[string][]byte{to[0]: base, to[1]: tuned, to[2]: other}
			var sizes [3]int64
			for i, p := range to {
				for k, c := range p {
					if dir := p[:k]; c == '/' && !r.exists(dir) {
						r.mkdir(dir)
					}
				}
				if name == "by a parent" && i > 0 {
					r.write(path.Join(path.Dir(p), "lineage.json"), []byte(`{"parent": "base"}`))
				}
				before := r.segmentBytes()
				r.write(p, want[p])
				r.pack(p)
				sizes[i] = r.segmentBytes() - before
				t.Logf("%s: %d of %d bytes", p, sizes[i], len(want[p]))
			}
			for i, p := range to[1:] {
				n, columns := r.lowRanks(p)
				if n != 9 || columns != 3 {
					t.Errorf("%s: %d chunks are of low rank, with %d columns", p, n, columns)
				}
				if sizes[i+1] > int64(len(base))/4 {
					t.Errorf("%s takes %d bytes", p, sizes[i+1])
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
			r.compact(control.CompactOptions{})
			check()
			r.unlink(to[0])
			delete(want, to[0])
			r.prune(now)
			check()
			r.unlink(to[1])
			delete(want, to[1])
			r.prune(now)
			r = r.crashed()
			check()
			r = r.withoutIndex()
			check()
			r.prune(now)
			check()
			if used := r.segmentBytes(); used > int64(len(base)+len(base)/4) {
				t.Errorf("%d bytes left", used)
			}
		})
	}
}

// What was saved without deltas is made smaller by a compaction as if it had been saved with them.
func TestCompactLowRank(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	files := map[string][]byte{"10.safetensors": merged(t, 0, adaptedModel...),
		"20.safetensors": merged(t, 1, adaptedModel...), "30.safetensors": merged(t, 2, adaptedModel...)}
	for _, p := range []string{"10.safetensors", "20.safetensors", "30.safetensors"} {
		r.write(p, files[p])
		r.pack(p)
		if n, _ := r.lowRanks(p); n != 0 {
			t.Errorf("%s: %d chunks are of low rank", p, n)
		}
	}
	r.close()
	r = openRig(t, r.dir)
	before := r.segmentBytes()
	dry := r.compact(control.CompactOptions{DryRun: true})
	c := r.compact(control.CompactOptions{})
	t.Logf("%d bytes, %d then: %+v, %+v", before, r.segmentBytes(), c, dry)
	// Of a dry run the last is against the one before it, which is alone there.
	if dry.Chunks != c.Chunks || dry.BytesBefore != c.BytesBefore || dry.BytesAfter > 2*c.BytesAfter ||
		dry.BytesAfter < c.BytesAfter {
		t.Errorf("%+v, in a dry run %+v", c, dry)
	}
	for _, p := range []string{"20.safetensors", "30.safetensors"} {
		if n, columns := r.lowRanks(p); n != 9 || columns != 3 {
			t.Errorf("%s: %d chunks are of low rank, with %d columns", p, n, columns)
		}
	}
	if used := r.segmentBytes(); used > before/3+before/4 {
		t.Errorf("%d bytes, %d before", used, before)
	}
	if again := r.compact(control.CompactOptions{}); again.Chunks != 0 {
		t.Errorf("again: %+v", again)
	}
	for range 2 {
		r.evictAll()
		for p, b := range files {
			r.same(p, b)
		}
		r.sound()
		r = r.withoutIndex()
	}
}
