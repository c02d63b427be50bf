package volume

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// When a store was pruned and checked last is known after a restart, in order or not. A file about that which
// is damaged says nothing and is replaced; one of a later version stays as it is.
func TestUpkeepIsRemembered(t *testing.T) {
	r := newRig(t)
	upkeep := func(r *rig) control.Upkeep {
		t.Helper()
		st, err := r.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return st.Upkeep
	}
	if u := upkeep(r); u.LastPrune != nil || u.LastCheck != nil {
		t.Errorf("of a new store: %+v", u)
	}
	r.write("f", random(1<<20, 1))
	r.sync()
	r.prune(now)
	if _, err := r.Prune(context.Background(), control.PruneOptions{DryRun: true}, nil); err != nil {
		t.Error(err)
	}
	r.check()
	want := upkeep(r)
	same := func(how string, r *rig) {
		t.Helper()
		u := upkeep(r)
		if u.LastPrune == nil || u.LastCheck == nil {
			t.Fatalf("%s: %+v", how, u)
		}
		p, c := *u.LastPrune, *u.LastCheck
		if !p.At.Equal(want.LastPrune.At) || !c.At.Equal(want.LastCheck.At) {
			t.Errorf("%s: pruned %v and checked %v, not %v and %v", how, p.At, c.At, want.LastPrune.At,
				want.LastCheck.At)
		}
		p.At, c.At = want.LastPrune.At, want.LastCheck.At
		if p != *want.LastPrune || !reflect.DeepEqual(c, *want.LastCheck) {
			t.Errorf("%s: %+v, %+v", how, p, c)
		}
	}
	same("after a kill", r.crashed())
	r = r.reopen()
	same("after an end in order", r)

	for _, c := range []struct {
		holds       string
		told, stays bool
	}{
		{"", true, false},
		{"{", true, false},
		{`{"version":0}`, true, false},
		{`{"version":1,"prune":7}`, true, false},
		{`{"version":2,"prune":7}`, false, true},
		{`{"version":2,"pruned":{}}`, false, true},
	} {
		r.close()
		if err := os.WriteFile(r.at(tree.UpkeepFile), []byte(c.holds), 0o600); err != nil {
			t.Fatal(err)
		}
		r = r.reopen()
		if u := upkeep(r); u.LastPrune != nil || u.LastCheck != nil {
			t.Errorf("%q: %+v", c.holds, u)
		}
		if told := r.log.has("is not known", "upkeep"); told != c.told {
			t.Errorf("%q: told %v", c.holds, told)
		}
		r.prune(now)
		has, err := os.ReadFile(r.at(tree.UpkeepFile))
		if stays := string(has) == c.holds; err != nil || stays != c.stays {
			t.Errorf("%q became %q, %v", c.holds, has, err)
		}
		if u := upkeep(r); u.LastPrune == nil {
			t.Errorf("%q: the prune is not known", c.holds)
		}
	}
}

// What a check saw of data stays known through checks that read less, and restarts, until one
// that reads all data finds it whole.
func TestDamageStaysKnown(t *testing.T) {
	r := newRig(t)
	r.write("hurt", random(700<<10, 1))
	r.write("copy", random(700<<10, 2))
	r.write("fine", random(700<<10, 3))
	r.sync()
	r.evictAll()
	r.hydrateFile("copy")
	if err := os.WriteFile(r.at(tree.TreeDir, "copy"), random(700<<10, 4), 0o600); err != nil {
		t.Fatal(err)
	}
	chunk := func(p string) cas.Hash {
		t.Helper()
		_, m := r.manifestOf(p)
		spans, err := m.Objects[0].Spans(r.store.Get)
		if err != nil {
			t.Fatal(err)
		}
		return spans[0].Hash
	}
	r.damage(chunk("hurt"))
	last := func() *control.LastCheck {
		t.Helper()
		st, err := r.Status(t.Context())
		if err != nil || st.LastCheck == nil {
			t.Fatalf("%+v, %v", st, err)
		}
		return st.LastCheck
	}
	quick := func(o control.CheckOptions) *control.Checked {
		t.Helper()
		c, err := r.Check(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	known := func(how string, problems int64, paths ...string) {
		t.Helper()
		l := last()
		var has []string
		for _, p := range l.Found {
			if p.Path != "" {
				has = append(has, p.Path)
			}
		}
		if l.Problems != problems || l.Data != problems || !slices.Equal(has, paths) ||
			(l.DataAt == nil) != (problems == 0) {
			t.Errorf("%s: %+v", how, l)
		}
	}
	// The segment, the file that needs it, and the copy.
	if c := r.check(); c.Damaged != 3 || c.Data != 3 || c.Unseen != 0 {
		t.Errorf("%+v", c)
	}
	known("after a check of all data", 3, "copy", "hurt")
	if c := quick(control.CheckOptions{}); c.Damaged != 0 || c.Unseen != 3 {
		t.Errorf("%+v", c)
	}
	known("after one of no data", 3, "copy", "hurt")
	quick(control.CheckOptions{ReadData: true, Subset: 1e-9})
	known("after one of a share", 3, "copy", "hurt")
	r = r.reopen()
	known("after an end", 3, "copy", "hurt")

	r.evictAll()
	quick(control.CheckOptions{})
	known("without the copy", 2, "hurt")

	r, _ = r.repair(RepairSegments)
	known("after a repair", 2, "hurt")
	if c := quick(control.CheckOptions{}); c.Damaged != 1 || c.Data != 0 || c.Unseen != 1 {
		t.Errorf("%+v", c)
	}
	r.write("hurt", random(700<<10, 1))
	r.sync()
	r.check()
	known("written again", 0)

	r.write("again", random(700<<10, 5))
	r.sync()
	r.evictAll()
	h := chunk("again")
	r.damage(h)
	r.check()
	known("damaged again", 2, "again")
	r.damage(h) // the bit is as it was
	quick(control.CheckOptions{})
	known("whole, but not read", 2, "again")
	r.check()
	known("read and whole", 0)
}

// Very many problems are counted and not all named.
func TestDamageIsBounded(t *testing.T) {
	r := newRig(t)
	for i := range 100 {
		r.write(fmt.Sprintf("f%03d", i), random(70<<10, uint64(i)))
	}
	r.sync()
	for i := range 100 {
		copied := r.at(tree.TreeDir, fmt.Sprintf("f%03d", i))
		if err := os.WriteFile(copied, random(70<<10, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.check()
	for range 3 {
		if _, err := r.Check(t.Context(), control.CheckOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		st, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := st.LastCheck; l.Problems != 100 || l.Data != 100 || len(l.Found) != 64 {
			t.Errorf("%+v", l)
		}
		r = r.reopen()
	}
}

// What a check of a store that is only read finds is known afterwards, also beside another reader. A reader
// that is to change nothing says that it keeps nothing.
func TestChecksOfReadersAreKept(t *testing.T) {
	r := newRig(t)
	r.write("hurt", random(700<<10, 1))
	r.sync()
	r.evictAll()
	r.check()
	_, m := r.manifestOf("hurt")
	spans, err := m.Objects[0].Spans(r.store.Get)
	if err != nil {
		t.Fatal(err)
	}
	r.damage(spans[0].Hash)
	problems := func(r *rig) int64 {
		t.Helper()
		st, err := r.Status(t.Context())
		if err != nil || st.LastCheck == nil {
			t.Fatalf("%+v, %v", st, err)
		}
		return st.LastCheck.Problems
	}
	reads := func(o *Options) { o.ReadOnly, o.Create = true, false }
	r = r.reopen(reads)
	before := r.upkeep()
	if c := r.check(); c.Damaged != 2 || c.NotKept == "" || r.upkeep() != before {
		t.Errorf("read only: %+v, %s became %s", c, before, r.upkeep())
	}
	r = r.reopen(reads)
	KeepChecks(r.Volume)
	beside := openRig(t, r.dir, reads)
	KeepChecks(beside.Volume)
	if n := problems(beside); n != 0 {
		t.Errorf("a check that is not kept told of %d problems", n)
	}
	if c := r.check(); c.Damaged != 2 || c.NotKept != "" {
		t.Errorf("%+v", c)
	}
	if n := problems(beside); n != 2 {
		t.Errorf("beside it: %d problems are known", n)
	}
	quick, err := beside.Check(t.Context(), control.CheckOptions{}, nil)
	if err != nil || quick.Unseen != 2 {
		t.Errorf("%+v, %v", quick, err)
	}
	beside.close()
	if r = r.reopen(); problems(r) != 2 {
		t.Errorf("when it is opened again: %d problems are known", problems(r))
	}
}

// upkeep is what tree.UpkeepFile has.
func (r *rig) upkeep() string {
	r.t.Helper()
	p, err := os.ReadFile(r.at(tree.UpkeepFile))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(p)
}
