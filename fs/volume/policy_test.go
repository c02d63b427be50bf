package volume

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// rule adds a rule to the store's policy.
func (r *rig) rule(pattern, rule string) {
	r.t.Helper()
	_, err := r.change(control.PolicyChange{Do: control.PolicyAdd, Pattern: pattern, Rule: rule})
	if err != nil {
		r.t.Fatal(err)
	}
}

// What a rule says is never packed stays plain, also as a copy of a packed file.
func TestPolicyPlain(t *testing.T) {
	r := newRig(t)
	r.rule("*.gguf", "plain")
	want := random(300<<10, 1)
	r.write("a.gguf", want)
	r.write("a.bin", want)
	r.sync()
	if a, b := r.state("a.gguf"), r.state("a.bin"); a != resident || b != both {
		t.Fatalf("a.gguf is %s, a.bin %s", a, b)
	}
	if _, err := r.change(control.PolicyChange{Do: "remove", Pattern: "*.gguf"}); err != nil {
		t.Fatal(err)
	}
	r.write("a.gguf", want)
	r.sync()
	r.want("a.gguf", both)
	r.sound()
}

// change changes the rules.
func (r *rig) change(c control.PolicyChange) (*control.Policy, error) {
	return policies{r.Volume}.ChangePolicy(r.test.Context(), c)
}

// A file that a rule holds is not evicted for the hot size, is hydrated when the rule comes, or when it is
// moved to where the rule is, and goes when the rule does.
func TestPolicyHydrated(t *testing.T) {
	const size = 100 << 10
	r := newRig(t, hotSize(0))
	r.hold.Start()
	r.mkdir("prod")
	for i, p := range []string{"prod/a", "b", "prod/c"} {
		r.write(p, random(size, uint64(i)))
	}
	r.sync()
	r.eventually("all are evicted", func() bool {
		return r.state("prod/a") == packed && r.state("b") == packed && r.state("prod/c") == packed
	})
	r.rule("prod/**", "hydrated")
	r.eventually("the rule's files are hydrated", func() bool {
		return r.state("prod/a") == both && r.state("prod/c") == both
	})
	r.want("b", packed)
	r.write("prod/d", random(size, 4))
	r.write("e", random(size, 5))
	r.sync()
	r.eventually("e is evicted", func() bool { return r.state("e") == packed })
	r.want("prod/d", both)
	s, err := r.Status(t.Context())
	if err != nil || s.PinnedFiles != 3 || s.PinnedBytes != 3*size || s.ResidentBytes != 0 {
		t.Errorf("%+v, %v", s.Ruled, err)
	}
	r.rename("b", "prod/b")
	r.eventually("what was moved there is hydrated", func() bool { return r.state("prod/b") == both })
	r.rename("prod/d", "d")
	r.eventually("what was moved away is evicted", func() bool { return r.state("d") == packed })

	// A user's word goes before the rule's.
	if m, err := r.Evict(t.Context(), "prod/a", nil); err != nil || m.Files != 1 {
		t.Fatal(m, err)
	}
	r.rename("prod/c", "prod/c2") // the next pass does not bring it back
	r.rename("e", "prod/e")
	r.eventually("e is hydrated", func() bool { return r.state("prod/e") == both })
	r.want("prod/a", packed)
	p, err := policies{r.Volume}.Policy(t.Context(), true)
	if err != nil || len(p.Rules) != 1 || *p.Rules[0].Covered != (control.Covered{Files: 4, Bytes: 4 * size,
		ResidentFiles: 3, ResidentBytes: 3 * size}) {
		t.Errorf("%+v %+v, %v", p, p.Rules[0].Covered, err)
	}

	if _, err := r.change(control.PolicyChange{Do: "remove", Pattern: "prod/**"}); err != nil {
		t.Fatal(err)
	}
	r.eventually("all are evicted", func() bool {
		return r.state("prod/b") == packed && r.state("prod/c2") == packed && r.state("prod/e") == packed
	})
	r.sound()
}

// On a disk that runs full the copies go that rules hold, with a warning; the files read as before.
func TestPolicyHeldOnFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 39)
	r := newRig(t, func(o *Options) {
		o.Disk = func() (int64, int64, error) { return 1 << 40, free.Load(), nil }
	})
	r.rule("a", "hydrated")
	want := random(100<<10, 1)
	r.write("a", want)
	r.sync()
	r.want("a", both)
	free.Store(1 << 20)
	r.hot.Wake()
	r.eventually("a is evicted", func() bool { return r.state("a") == packed })
	r.eventually("a warning", func() bool { return r.log.has("nearly full", "rule") })
	r.same("a", want)
	r.sound()
}

// KeepFree is of what a remote has: without one, a rule has its copies on a disk that has no more free.
func TestPolicyWithoutRemote(t *testing.T) {
	r := newRig(t, hotSize(0), func(o *Options) {
		o.KeepFree = 1 << 39
		o.Disk = func() (int64, int64, error) { return 1 << 40, 1 << 38, nil }
	})
	r.hold.Start()
	r.write("a", random(100<<10, 1))
	r.sync()
	r.eventually("a is evicted", func() bool { return r.state("a") == packed })
	r.rule("a", "hydrated")
	r.eventually("a is hydrated", func() bool { return r.state("a") == both })
	r.sound()
}

// A policy that cannot be read is told of, and no rule holds; the next start, with a mended file, has them.
func TestPolicyProblem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := openRig(t, dir)
	r.rule("/a\\ b", "hydrated")
	r.close()
	file := filepath.Join(dir, "policy")
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "/a\\ b\thydrated") {
		t.Fatalf("%q, %v", text, err)
	}
	if err := os.WriteFile(file, []byte("ckptfs policy 1\n*.pt packd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, dir)
	s, err := r.Status(t.Context())
	if err != nil || !strings.Contains(s.PolicyProblem, "line 2") ||
		!r.log.has("policy cannot be read", "line 2") {
		t.Errorf("%q, %v", s.PolicyProblem, err)
	}
	if err := os.WriteFile(file, []byte("ckptfs policy 1\n*.pt plain\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := r.change(control.PolicyChange{Do: control.PolicyLoad})
	if err != nil || p.Problem != "" || len(p.Rules) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// A file that a rule has stored alone needs no other's chunks, when it is packed and when the store is
// compacted.
func TestPolicyAlone(t *testing.T) {
	save := func(r *rig, dir string, model uint64) (deltas int64) {
		before := r.stats().Deltas
		r.mkdir(dir)
		for step := range uint64(3) {
			file := fmt.Sprintf("%s/%d.safetensors", dir, step)
			r.write(file, shardsOf(t, weightsOf(model, step), 1, "")[0])
			r.sync()
		}
		return r.stats().Deltas - before
	}
	one := func(o *Options) { o.PackWorkers = 1 } // several change the places of what they have at a time
	r := newRig(t, one)
	r.rule("serving", "alone")
	if n := save(r, "other", 1); n == 0 {
		t.Fatal("no deltas where no rule says so")
	}
	if n := save(r, "serving", 2); n != 0 {
		t.Errorf("%d deltas in a file that is to be stored alone", n)
	}
	inOrder := func(file string) {
		t.Helper()
		_, m := r.manifestOf(file)
		chunks, err := m.Chunks(r.store.Get)
		if err != nil || len(chunks) < baseTensors {
			t.Fatal(len(chunks), err)
		}
		hashes, locs := make([]cas.Hash, len(chunks)), make([]cas.Location, len(chunks))
		for i := range chunks {
			hashes[i] = chunks[i].Hash
		}
		if err := r.store.Locate(hashes, locs); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(locs, func(a, b cas.Location) int {
			return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Off, b.Off))
		}) {
			t.Errorf("%s is not stored in the order in which it is read: %v", file, locs)
		}
	}
	for step := range 3 {
		inOrder(fmt.Sprintf("serving/%d.safetensors", step))
	}
	before := r.stats().Deltas
	if _, err := r.Compact(t.Context(), control.CompactOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := r.stats().Deltas; n > before {
		t.Errorf("a compaction made %d deltas more", n-before)
	}
	r.sound()
}
