package pack

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/assemble"
)

// boosted is a model of n trees, as XGBoost's JSON has them.
func boosted(n int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"learner":{"attributes":{},"gradient_booster":{"model":{"num_trees":"%d","iteration_indptr":[0`, n)
	for i := range n {
		fmt.Fprintf(&b, ",%d", i+1)
	}
	b.WriteString(`],"trees":[`)
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		fmt.Fprintf(&b, `{"id":%d,"split_conditions":[`, i)
		for range 60 {
			fmt.Fprintf(&b, "%.6f,", r.NormFloat64())
		}
		b.WriteString("0]},")
	}
	b.WriteString(`{}]}},"version":[3,1,1]}`)
	return []byte(b.String())
}

// TestGrowingModel: a save costs its new trees and a few KiB, whatever there was before, and its manifest
// stays small.
func TestGrowingModel(t *testing.T) {
	b := memBench(t)
	step := len(boosted(110)) - len(boosted(100))
	for _, n := range []int{500, 1000, 3000} {
		b.file(t, boosted(n))
		src := boosted(n + 10)
		res := b.file(t, src)
		if res.Manifest.Format != "xgboost-json" {
			t.Fatalf("format %q", res.Manifest.Format)
		}
		enc, err := res.Manifest.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if res.FreshStored > int64(step)+20<<10 || len(enc) > 64+len(src)/1024 {
			t.Errorf("%d trees, %d bytes: %d bytes new for 10 trees of %d, manifest of %d", n, len(src), res.FreshStored, step, len(enc))
		}
		t.Logf("%d trees: %d new, manifest %d of %d objects", n, res.FreshStored, len(enc), len(res.Manifest.Objects))
	}
}

// TestGrowingModelAgainst: against the version before, a save costs its new trees alone.
func TestGrowingModelAgainst(t *testing.T) {
	step := len(boosted(110)) - len(boosted(100))
	for _, n := range []int{500, 3000} {
		b := memBench(t)
		before := b.file(t, boosted(n))
		src := boosted(n + 10)
		l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
		if err != nil {
			t.Fatal(err)
		}
		batch := b.st.Begin()
		defer batch.Release()
		reads, _ := b.st.Reads()
		res, err := b.p.Layout(t.Context(), batch, bytes.NewReader(src), int64(len(src)), l,
			Related{Before: known(before.Manifest)})
		if err == nil {
			err = batch.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := b.st.Reads(); now-reads > 2*res.Fresh {
			t.Errorf("%d trees: %d records were read for %d that are new: the lists were known", n, now-reads, res.Fresh)
		}
		b.same(t, res, src)
		if alone := memBench(t).file(t, src); !bytes.Equal(encoded(t, res), encoded(t, alone)) {
			t.Errorf("%d trees: what was before changes where the file is cut", n)
		}
		if res.Deltas == 0 || res.FreshStored > int64(step)+2<<10 {
			t.Errorf("%d trees: %d bytes new in %d records for 10 trees of %d, %d deltas", n, res.FreshStored, res.Fresh, step, res.Deltas)
		}
	}
}

func encoded(t *testing.T, res *Result) []byte {
	enc, err := res.Manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

// TestFollowing: whatever became of a document, what comes before does not tell where it is cut, and it is
// read back.
func TestFollowing(t *testing.T) {
	src := boosted(1500)
	ends := bytes.LastIndexByte(src, ',')
	edit := func(f func(p []byte) []byte) []byte { return f(bytes.Clone(src)) }
	for name, now := range map[string][]byte{
		"same": src,
		"inserted": edit(func(p []byte) []byte {
			return append(p[:ends/2:ends/2],
				append([]byte("9"), src[ends/2:]...)...)
		}),
		"removed": edit(func(p []byte) []byte { return append(p[:ends/2:ends/2], src[ends/2+5000:]...) }),
		"moved": edit(func(p []byte) []byte {
			return append(append(p[:1000:1000], src[ends/2:ends]...),
				src[1000:ends/2]...)
		}),
		"changed": edit(func(p []byte) []byte {
			for i := 2000; i < ends; i += 50_000 {
				p[i] ^= 1
			}
			return p
		}),
		"cut":     edit(func(p []byte) []byte { return append(p[:300_000], '}') }),
		"another": edit(func(p []byte) []byte { return bytes.ReplaceAll(p, []byte("1"), []byte("7")) }),
	} {
		now[len(now)-1] = '}'
		alone := encoded(t, memBench(t).file(t, now))
		for how, lost := range map[string]bereft{
			"": {}, ", half lost": {kind: cas.Chunk, one: 2}, ", lost": {kind: cas.Chunk, one: 1},
			", lists lost": {kind: cas.List, one: 1},
		} {
			t.Run(name+how, func(t *testing.T) {
				b := memBench(t)
				before := b.file(t, src)
				l, err := detect.Detect(bytes.NewReader(now), int64(len(now)))
				if err != nil || !l.Fine {
					t.Fatalf("%+v, %v", l, err)
				}
				batch := b.st.Begin()
				defer batch.Release()
				lost.Batch, lost.t, lost.b = batch, t, b
				res, err := b.p.Layout(t.Context(), &lost, bytes.NewReader(now), int64(len(now)), l,
					Related{Before: known(before.Manifest)})
				if err == nil {
					err = batch.Commit()
				}
				if err != nil {
					t.Fatal(err)
				}
				b.same(t, res, now)
				if !bytes.Equal(encoded(t, res), alone) {
					t.Error("the cuts are others than without what was before")
				}
			})
		}
	}
}

// TestPresumed: a layout is presumed of what has grown, and of nothing else.
func TestPresumed(t *testing.T) {
	src, other := boosted(3000), bytes.ReplaceAll(boosted(3000), []byte("1"), []byte("7"))
	half := len(src) / 2
	for name, c := range map[string]struct {
		now  []byte
		want error
	}{
		"same":            {src, nil},
		"grown":           {boosted(3010), nil},
		"another":         {other, ErrPresumed},
		"half of another": {append(bytes.Clone(src[:half]), other[half:]...), ErrPresumed},
		"grown by half":   {boosted(4500), ErrPresumed},
		"less":            {append(bytes.Clone(src[:half]), '}'), nil},
	} {
		b := memBench(t)
		before := b.file(t, src)
		l := formats.BlobLayout(int64(len(c.now)))
		l.Format, l.Fine = before.Manifest.Format, true
		batch := b.st.Begin()
		res, err := b.p.Layout(t.Context(), batch, bytes.NewReader(c.now), int64(len(c.now)), l,
			Related{Before: known(before.Manifest), Presumed: true})
		if !errors.Is(err, c.want) || len(b.p.slots) > 0 {
			t.Errorf("%s: %v, %d workers left", name, err, len(b.p.slots))
		}
		if err == nil {
			if err := batch.Commit(); err != nil {
				t.Fatal(err)
			}
			b.same(t, res, c.now)
		}
		batch.Release()
	}
}

// bereft is a batch of a store that loses one in so many of the records of a kind, just before they are put
// again.
type bereft struct {
	Batch
	t    *testing.T
	b    *bench
	kind cas.Kind
	one  int
}

func (f *bereft) PutHeld(kind cas.Kind, hashes []cas.Hash, held []bool) error {
	locs := make([]cas.Location, len(hashes))
	if err := f.b.db.Locate(hashes, locs); err != nil {
		f.t.Error(err)
	}
	var lost []cas.Entry
	for i := 0; i < len(hashes) && kind == f.kind; i += f.one {
		lost = append(lost, cas.Entry{Hash: hashes[i], Location: locs[i]})
	}
	if err := f.b.db.Remove(lost); err != nil {
		f.t.Error(err)
	}
	f.b.asm.Close() // it has them in memory
	f.b.asm = assemble.New(f.b.st, assemble.Options{})
	return f.Batch.PutHeld(kind, hashes, held)
}
