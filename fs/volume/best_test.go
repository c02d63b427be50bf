package volume

import (
	"path"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A step is no best, and shows no metric, to users who may not read its metrics; nor is any to those who may
// not list its run.
func TestBestOfPrivateSteps(t *testing.T) {
	r := newRig(t)
	for step, metrics := range map[string]string{"1": `{"loss": 3}`, "2": `{"loss": 2, "secret": 1}`, "3": `{"loss": 1, "secret": 2}`} {
		r.mkdir("runs/a/" + step)
		r.write("runs/a/"+step+"/metrics.json", []byte(metrics))
	}
	chmod := func(p string, mode uint32) {
		t.Helper()
		r.setattr(p, &tree.SetAttr{Mode: &mode})
	}
	stranger := visitor{r, person{"stranger", 3000, []uint32{3000}}, tree.Caller{UID: 3000, GID: 3000}}
	wantOf := func(v visitor, target string, names ...string) {
		t.Helper()
		all, err := v.list(".ckptfs/best/a")
		var got []string
		for _, e := range all {
			got = append(got, e.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q, %v", v.what, got, names, err)
		}
		if to, err := v.get(".ckptfs/best/a/loss.min"); target != "" && (err != nil || path.Base(to) != target) ||
			target == "" && err == nil {
			t.Errorf("%s: %s, %v; want %s", v.what, to, err, target)
		}
	}
	want := func(target string, names ...string) {
		t.Helper()
		wantOf(stranger, target, names...)
		wantOf(visitor{r, person{what: "root"}, tree.Caller{}}, "3",
			"loss.max", "loss.min", "secret.max", "secret.min")
	}
	want("3", "loss.max", "loss.min", "secret.max", "secret.min")
	chmod("runs/a/3", 0o700)
	want("2", "loss.max", "loss.min", "secret.max", "secret.min")
	chmod("runs/a/2/metrics.json", 0o600)
	want("1", "loss.max", "loss.min")
	if got := r.best("runs/a", "loss", "min"); got != "3" { // a request to the daemon may see all
		t.Errorf("best is %s", got)
	}
	for _, mode := range []uint32{0o700, 0o711, 0o744} {
		chmod("runs/a", mode)
		want("")
	}
	chmod("runs/a", 0o755)
	chmod("runs/a/3", 0o711)
	chmod("runs/a/2/metrics.json", 0o644)
	want("2", "loss.max", "loss.min", "secret.max", "secret.min")
}

// Who may not look into runs/, or into a run, learns nothing of it below best.
func TestBestPermissions(t *testing.T) {
	r := newRig(t)
	if a := r.stat(".ckptfs/best"); a.Mode != unix.S_IFDIR|0o555 {
		t.Errorf("without runs: mode %o", a.Mode)
	}
	r.mkdir("runs/a/1")
	r.write("runs/a/1/metrics.json", []byte(`{"loss": 1}`))
	for _, c := range []struct{ runs, run uint32 }{{0o755, 0o755}, {0o700, 0o755}, {0o755, 0o700},
		{0o751, 0o710}} {
		for p, mode := range map[string]uint32{"runs": c.runs, "runs/a": c.run} {
			n := r.find(p)
			if _, err := r.Setattr(n, &tree.SetAttr{Mode: &mode}); err != nil {
				t.Fatal(err)
			}
			r.forget(n)
		}
		for p, mode := range map[string]uint32{".ckptfs/best": c.runs, ".ckptfs/best/a": c.run} {
			if a := r.stat(p); a.Mode != unix.S_IFDIR|mode&0o555 {
				t.Errorf("%o/%o: %s has mode %o", c.runs, c.run, p, a.Mode)
			}
		}
		if got := r.listing(".ckptfs/best/a"); !slices.Equal(got, []string{"loss.max", "loss.min"}) &&
			!slices.Equal(got, []string{"loss.min", "loss.max"}) {
			t.Errorf("%q", got)
		}
	}
	r.onlyRoot()
}
