package volume

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/bases"
)

// trained is a safetensors file of a model after some steps of slow training.
func trained(t testing.TB, model, steps int) []byte {
	t.Helper()
	const n = 40_000
	r := rand.New(rand.NewPCG(uint64(model), 2))
	w := make([]float64, 2*n)
	for i := range w {
		w[i] = r.NormFloat64()
	}
	for s := range steps {
		r := rand.New(rand.NewPCG(uint64(model), uint64(100+s)))
		for i := range w {
			w[i] *= 1 + 1e-6*r.NormFloat64()
		}
	}
	p, err := safetensors.AppendHeader(nil, []safetensors.Entry{
		{Name: "a", DType: formats.DType("F32"), Shape: []int64{n}},
		{Name: "b", DType: formats.DType("F32"), Shape: []int64{n}},
	}, map[string]string{"model": fmt.Sprint(model), "step": fmt.Sprint(steps)})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range w {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(x)))
	}
	return p
}

// forgetBases has nothing known of what files may be stored against, but what the tree says.
func (r *rig) forgetBases() {
	r.bases = bases.New(bases.Options{Store: nothingLately{manifests{r.Volume}}, Root: r.names.RootFd(),
		Parents: r.parents})
}

// nothingLately is a store that does not know what was packed last.
type nothingLately struct{ manifests }

func (nothingLately) Latest(int) []cas.Hash { return nil }

// What is saved as whatever users call their steps is stored against the step before.
func TestVersionBefore(t *testing.T) {
	for name, files := range map[string][]string{
		"step dirs":         {"runs/r/100/model.safetensors", "runs/r/200/model.safetensors"},
		"checkpoint dirs":   {"out/checkpoint-9/model.safetensors", "out/checkpoint-10/model.safetensors"},
		"files":             {"step=00900.safetensors", "step=01000.safetensors"},
		"both":              {"run/step_100/m_100.safetensors", "run/step_200/m_200.safetensors"},
		"deeper":            {"run/global_step5/state/a1.safetensors", "run/global_step6/state/a1.safetensors"},
		"under other names": {"base.safetensors", "tuned/model.safetensors"},
		"overwritten":       {"latest.safetensors", "latest.safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for i, p := range files {
				for k := range strings.Count(p, "/") {
					if dir := strings.Join(strings.Split(p, "/")[:k+1], "/"); !r.exists(dir) {
						r.mkdir(dir)
					}
				}
				if i == 1 && name != "under other names" {
					// Unlike ones that lie nearby, and what comes later.
					r.write(path.Join(path.Dir(p), "other-150.safetensors"), trained(t, 9, 0))
					r.sync()
					r.forgetBases()
				}
				r.write(p, trained(t, 1, i))
				r.pack(p)
			}
			if n := r.deltas(files[1]); n < 2 {
				t.Errorf("%d deltas", n)
			}
			if name == "overwritten" { // what is still known after a start
				r = r.reopen()
				r.write(files[1], trained(t, 1, 2))
				r.pack(files[1])
				if n := r.deltas(files[1]); n < 2 {
					t.Errorf("after a start: %d deltas", n)
				}
				r.same(files[1], trained(t, 1, 2))
				return
			}
			r.evictAll()
			for i, p := range files {
				r.same(p, trained(t, 1, i))
			}
		})
	}
}

// A run whose steps come and go: what is left is there, evicted, pruned, checked, after a crash and without
// its index.
func TestDeltasOfARun(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	step := func(i int) string { return fmt.Sprintf("runs/%d.safetensors", 10*i) }
	const steps = 11
	live := map[int]bool{}
	same := func(what string) {
		t.Helper()
		r.evictAll()
		for i := range live {
			r.want(step(i), packed)
			r.same(step(i), trained(t, 1, i))
		}
		if r.sound(); t.Failed() {
			t.Fatal(what)
		}
	}
	for i := range steps {
		r.write(step(i), trained(t, 1, i))
		r.pack(step(i))
		live[i] = true
		if want := 2; i%8 != 0 && r.deltas(step(i)) < want {
			t.Errorf("step %d: %d deltas", i, r.deltas(step(i)))
		}
	}
	raw := int64(steps * len(trained(t, 1, 0)))
	if got := r.segmentBytes(); got > raw/2 {
		t.Errorf("%d bytes of %d", got, raw)
	}
	same("saved")
	for _, gone := range [][]int{{0, 3}, {1, 4, 5}, {8}, {2, 6, 9}} {
		for _, i := range gone {
			r.unlink(step(i))
			delete(live, i)
		}
		r.prune(now)
		same(fmt.Sprint("without ", gone))
		// What is kept as a base alone is not called dead: no prune would free it.
		st, err := r.Stats(t.Context())
		if err != nil || st.Deltas == 0 || st.BaseBytes == 0 || st.DeltaBytes > st.DeltaRawBytes/2 ||
			st.DeadBytes > 200<<10 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	r = r.crashed()
	same("after a crash")
	r = r.withoutIndex()
	same("without index")
	// Saved again, among them what was a base all the time.
	for i := range steps {
		r.write(step(i), trained(t, 1, i))
		live[i] = true
	}
	r.sync()
	same("saved again")
	for i := range live {
		r.unlink(step(i))
		delete(live, i)
	}
	r.wantNothing()
}

// A damaged chunk is damage of every file whose chunks were written against it, and of no other.
func TestDamagedBase(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		p := fmt.Sprintf("m%d.safetensors", i)
		r.write(p, trained(t, 1, i))
		r.pack(p)
	}
	r.evictAll()
	_, m := r.manifestOf("m2.safetensors") // the base of m3
	var bad cas.Hash
	for _, o := range m.Objects {
		if o.Len == 160_000 {
			bad = o.Digest
		}
	}
	r.damage(bad)
	named := func() (paths []string) {
		c := r.check()
		for _, p := range c.Problems {
			if p.Path != "" {
				paths = append(paths, p.Path)
				if p.TensorCount != 1 || p.Tensors[0] != "b" {
					t.Errorf("%+v", p)
				}
			}
		}
		slices.Sort(paths)
		return paths
	}
	if got := named(); !slices.Equal(got, []string{"m2.safetensors", "m3.safetensors"}) {
		t.Errorf("damaged: %v", got)
	}
	if _, err := r.tryRead("m3.safetensors"); err == nil {
		t.Error("m3 can be read")
	}
	r.same("m1.safetensors", trained(t, 1, 1))
	r, _ = r.repair(RepairSegments)
	if got := named(); !slices.Equal(got, []string{"m2.safetensors", "m3.safetensors"}) {
		t.Errorf("damaged after the repair: %v", got)
	}
	r, _ = r.repair(RepairTree)
	if r.exists("m3.safetensors") || !r.exists("m1.safetensors") {
		t.Error("the wrong files were moved aside")
	}
	// Whoever has the file still saves it again, and what is written against it is whole again.
	r.write("m2.safetensors", trained(t, 1, 2))
	r.pack("m2.safetensors")
	r.write("m3.safetensors", trained(t, 1, 3))
	r.pack("m3.safetensors")
	r.evictAll()
	for i := range 4 {
		r.same(fmt.Sprintf("m%d.safetensors", i), trained(t, 1, i))
	}
	if got := named(); len(got) > 0 {
		t.Errorf("damaged: %v", got)
	}
}

func TestNoDelta(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	for i := range 2 {
		r.write("m.safetensors", trained(t, 1, i))
		r.pack("m.safetensors")
	}
	if n := r.deltas("m.safetensors"); n > 0 {
		t.Errorf("%d deltas", n)
	}
}
