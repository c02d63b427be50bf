package volume

import (
	"context"
	"os"
	"testing"

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
		if p != *want.LastPrune || c != *want.LastCheck {
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
