package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/formats/detect"
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

// TestGrowingModel: a save costs its new trees and a few KiB, whatever there was before, and its manifest stays small.
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
		res, err := b.p.Layout(t.Context(), batch, bytes.NewReader(src), int64(len(src)), l, Related{Before: before.Manifest})
		if err == nil {
			err = batch.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.same(t, res, src)
		if res.Deltas == 0 || res.FreshStored > int64(step)+2<<10 {
			t.Errorf("%d trees: %d bytes new in %d records for 10 trees of %d, %d deltas", n, res.FreshStored, res.Fresh, step, res.Deltas)
		}
	}
}
