package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// chainGraph is the GRAPH.json of a chain of layers, a letter each; parameters are those of modelFile when
// params is set.
func chainGraph(layers string, params bool) []byte {
	var nodes []string
	for i, l := range layers {
		in, p := "", ""
		if i > 0 {
			in = fmt.Sprintf(`,"in":["n%d"]`, i-1)
		}
		if params {
			p = fmt.Sprintf(`,"params":["%c"]`, 'a'+i)
		}
		nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","op":"%c"%s%s}`, i, l, in, p))
	}
	return []byte(`{"v":1,"nodes":[` + strings.Join(nodes, ",") + `]}`)
}

// saveGraph makes a step with a checkpoint of as many tensors as layers, and a sidecar.
func (r *rig) saveGraph(step, layers string) {
	r.t.Helper()
	r.mkdir("runs/" + step)
	r.write("runs/"+step+"/arch.json", chainGraph(layers, true))
	r.save(step, "ABCDEFGH"[:len(layers)])
}

func (r *rig) match(o control.MatchOptions) *control.Match {
	r.t.Helper()
	a, err := r.Match(context.Background(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Match
}

// matched is the step that matches a chain best, and how long; "" for none.
func (r *rig) matched(layers string) string {
	r.t.Helper()
	m := r.match(control.MatchOptions{Graph: chainGraph(layers, true)})
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s %d", strings.TrimSuffix(strings.TrimPrefix(m.Path, "runs/"), "/m.safetensors"),
		m.Length)
}

func TestMatch(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xyw")
	r.saveGraph("b/1", "xqqq")
	r.save("plain/1", "AB")
	check := func(r *rig, when string, want ...string) {
		t.Helper()
		for i, layers := range []string{"xyzz", "xyw", "xqqx", "xy", "k"} {
			if got := r.matched(layers); got != want[i] {
				t.Errorf("%s: %s: %q, want %q", when, layers, got, want[i])
			}
		}
	}
	want := []string{"a/1 3", "a/2 3", "b/1 3", "a/2 2", ""}
	check(r, "saved", want...)
	m := r.match(control.MatchOptions{Graph: chainGraph("xyzz", true)})
	if !m.Exact || len(m.Pairs) != 3 || m.Pairs[2] != [2]string{"n2", "n2"} || len(m.Tensors) != 3 ||
		m.Tensors[1] != (control.TransferTensor{New: "b", Stored: "b", Bytes: 70 << 10}) ||
		m.Bytes != 3*70<<10 {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Like: "runs/a/1"}); m == nil || m.Path != "runs/a/2/m.safetensors" || m.Length != 2 {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("xyzz", true), ExcludeRun: "a"}); m == nil ||
		m.Path != "runs/b/1/m.safetensors" {
		t.Errorf("%+v", m)
	}
	plain := control.MatchOptions{Like: "runs/plain/1/m.safetensors"}
	if a, err := r.Match(context.Background(), plain); err != nil || a.GraphKind != "bag" || a.Match != nil {
		t.Errorf("%+v, %v", a, err)
	}
	// Quality decides between equals, also when it comes late.
	r.setMetric("runs/a/1", "quality", "0.5")
	if got := r.matched("xy"); got != "a/1 2" {
		t.Errorf("%q", got)
	}
	want[3] = "a/1 2"
	r.evictAll()
	r = r.reopen()
	check(r, "opened again", want...)
	r = r.withoutIndex()
	r.prune(now)
	check(r, "without its index", want...)
	r.prune(now)
	r = r.reopen()
	check(r, "swept", want...)
	// A sidecar that changes, and a model that goes.
	r.write("runs/a/1/arch.json", chainGraph("kkk", true))
	check(r, "another sidecar", "a/2 2", "a/2 3", "b/1 3", "a/2 2", "a/1 1")
	r.unlink("runs/a/2/arch.json")
	r.removeStep("runs/a/2")
	check(r, "retired", "b/1 1", "b/1 1", "b/1 3", "b/1 1", "a/1 1")
	r.unlink("runs/b/1/arch.json")
	check(r, "no sidecar", "", "", "", "", "a/1 1")
}

// Of many sidecars that are refused Status names some, and says how many there are besides.
func TestManyBadSidecars(t *testing.T) {
	r := newRig(t)
	for i := range maxSidecars + 3 {
		step := fmt.Sprintf("a/%d", i)
		r.saveGraph(step, "x")
		r.write("runs/"+step+"/arch.json", []byte("{"))
	}
	r.sync()
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != maxSidecars ||
		st.MoreSidecars != 3 {
		t.Errorf("%d named, %d more, %v", len(st.Sidecars), st.MoreSidecars, err)
	}
}

// A sidecar that is none is refused, with a line in the status, and has no effect on anything else.
func TestBadSidecars(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	for sidecar, word := range map[string]string{
		`{"v":1,"nodes":[`: "arch.json",
		`{"v":1,"nodes":[{"id":"x","op":"X","in":["y"]},{"id":"y","op":"Y","in":["x"]}]}`: "cycle",
		`{"v":1,"nodes":[{"id":"x","op":"X","params":["nothing"]}]}`:                      "nothing",
		strings.Repeat(" ", 16<<20+1):                                                     "at most",
		`{"v":9,"nodes":[]}`:                                                              "version",
		`{"v":1,"nodes":[{"id":"x","op":"X","op":"Y"}]}`:                                  "twice",
		`{"v":1,"nodes":[],"nodes":[]}`:                                                   "twice",
	} {
		r.write("runs/a/1/arch.json", []byte(sidecar))
		if got := r.matched("xyz"); got != "" {
			t.Errorf("%.40s: %q", sidecar, got)
		}
		st, err := r.Status(context.Background())
		if err != nil || len(st.Sidecars) != 1 || !strings.Contains(st.Sidecars[0], word) ||
			!strings.Contains(st.Sidecars[0], "runs/a/1") {
			t.Errorf("%.40s: %q, %v", sidecar, st.Sidecars, err)
		}
		r.same("runs/a/1/m.safetensors", modelFile(t, "ABC"))
		_, err = r.Match(context.Background(),
			control.MatchOptions{Graph: []byte(strings.TrimLeft(sidecar, " "))})
		if !errors.Is(err, unix.EINVAL) && word != "nothing" {
			t.Errorf("%.40s: as a query: %v", sidecar, err)
		}
	}
	r.write("runs/a/1/arch.json", chainGraph("xyz", true))
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("%q", got)
	}
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 0 {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
}

// An attribute of the model is a sidecar, and goes before the others. What is none is refused at once.
func TestGraphAttribute(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	const file = "runs/a/1/m.safetensors"
	set := func(graph []byte) error {
		n := r.find(file)
		defer r.forget(n)
		return r.SetXattr(n, "user.ckptfs.arch", graph, 0)
	}
	if err := set([]byte(`{"v":1,"nodes":[`)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no graph: %v", err)
	}
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 ||
		!strings.HasPrefix(st.Sidecars[0], file+" user.ckptfs.arch: ") {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
	if err := set(chainGraph("uvw", true)); err != nil {
		t.Fatal(err)
	}
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 0 {
		t.Errorf("a good one was set since: %q, %v", st.Sidecars, err)
	}
	for range 2 {
		if got := r.matched("uvw"); got != "a/1 3" {
			t.Errorf("%q", got)
		}
		if got := r.matched("xyz"); got != "" {
			t.Errorf("%q", got)
		}
		r.same(file, modelFile(t, "ABC"))
		r.sync()
		r.evictAll()
		r = r.reopen()
	}
	n := r.find(file)
	list := make([]byte, 1000)
	if k, err := r.ListXattr(n, list, false); err != nil || string(list[:k]) != "user.ckptfs.arch\x00" {
		t.Errorf("%q, %v", list[:k], err)
	}
	if err := r.RemoveXattr(n, "user.ckptfs.arch"); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("%q", got)
	}
	if err := set([]byte(`{"v":1,"nodes":[{"id":"u","op":"U","params":["nothing"]}]}`)); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("%q", got)
	}
	if st, err := r.Status(context.Background()); err != nil ||
		!strings.Contains(strings.Join(st.Sidecars, " "), "nothing") {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
}

// BenchmarkMatch is a query as the control socket has it, of a hundred layers.
func BenchmarkMatch(b *testing.B) {
	r := newRig(b)
	layers := strings.Repeat("xyzuv", 20)
	r.mkdir("runs/a/1")
	r.write("runs/a/1/arch.json", chainGraph(layers, false))
	r.save("a/1", "ABC")
	o := control.MatchOptions{Graph: chainGraph(layers, false), AsKnown: true}
	if a, err := r.Match(context.Background(), o); err != nil || a.Match == nil || a.Match.Length != 100 {
		b.Fatalf("%+v, %v", a, err)
	}
	for b.Loop() {
		if _, err := r.Match(context.Background(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// A file that is no model, and has the inode that a model had, is not that model.
func TestInodeOfAnother(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("%q", got)
	}
	r.rename("runs/a/1/m.safetensors", "runs/a/1/notes")
	r.write("runs/a/1/notes", []byte("none"))
	if got := r.matched("xyz"); got != "" {
		t.Errorf("%q", got)
	}
}

// A snapshot of the catalogue spares the next start to make it again, and says nothing that the ledger does
// not.
func TestCatalogueSnapshot(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xyw")
	r.saveGraph("b/1", "xqqq")
	check := func(r *rig, when string, made int, want ...string) {
		t.Helper()
		for i, layers := range []string{"xyzz", "xyw", "xqqx"} {
			if got := r.matched(layers); got != want[i] {
				t.Errorf("%s: %s: %q, want %q", when, layers, got, want[i])
			}
		}
		if n := r.models.Changes(); n != made {
			t.Errorf("%s: %d changes, want %d", when, n, made)
		}
	}
	check(r, "made", 3, "a/1 3", "a/2 3", "b/1 3")
	r = r.reopen()
	path := func(r *rig) string { return r.at(tree.CatalogueFile) }
	old, err := os.ReadFile(path(r))
	if err != nil {
		t.Fatal(err)
	}
	check(r, "restored", 0, "a/1 3", "a/2 3", "b/1 3")
	r.unlink("runs/a/2/arch.json")
	r.removeStep("runs/a/2")
	r.saveGraph("c/1", "xqqx")
	r.write("runs/a/1/arch.json", chainGraph("xqq", true))
	check(r, "changed", 4, "c/1 1", "c/1 1", "c/1 4")
	r.sync()
	dir := r.copyStore()
	if err := os.WriteFile(filepath.Join(dir, tree.CatalogueFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, dir)
	check(r, "an old one", 4, "c/1 1", "c/1 1", "c/1 4")
	r.close()
	p, err := os.ReadFile(path(r))
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string][]byte{"damaged": append(p[:len(p)-1:len(p)-1], p[len(p)-1]^1),
		"cut short": p[:50], "of a later version": append([]byte("CKC4"), p[4:]...), "none": nil} {
		if err := os.WriteFile(path(r), q, 0o600); err != nil {
			t.Fatal(err)
		}
		r = openRig(t, r.dir)
		check(r, what, 3, "c/1 1", "c/1 1", "c/1 4")
		r.close()
	}
	r = openRig(t, r.dir)
	check(r, "saved again", 0, "c/1 1", "c/1 1", "c/1 4")
}

// A link in the place of the file that the catalogue is written to leads nowhere.
func TestCatalogueThroughLink(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	other := filepath.Join(t.TempDir(), "other")
	err := os.WriteFile(other, []byte("not ours"), 0o600)
	for _, name := range []string{tree.CatalogueFile, tree.CatalogueFile + ".new"} {
		err = errors.Join(err, os.RemoveAll(r.at(name)), os.Symlink(other, r.at(name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("matched %q", got)
	}
	r.close()
	if p, err := os.ReadFile(other); err != nil || string(p) != "not ours" {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	if st, err := os.Lstat(r.at(tree.CatalogueFile)); err != nil || !st.Mode().IsRegular() {
		t.Errorf("no catalogue was made: %v, %v", st, err)
	}
}

// What changed is looked at once: by a sync, which packs it, or else by the next who asks.
func TestSettledOnce(t *testing.T) {
	r := newRig(t)
	var h *Handle
	for i, c := range []struct {
		change func()
		looks  int
	}{
		{func() { r.saveGraph("a/1", "xyz") }, 0},
		{func() { r.saveGraph("a/2", "xyw") }, 0},
		{func() { r.saveGraph("b/1", "xy") }, 0},
		{func() { r.write("runs/a/2/arch.json", chainGraph("xyu", true)) }, 1},
		{func() { r.rename("runs/a/2", "runs/a/3") }, 1},
		{func() { r.rename("runs/b", "runs/c") }, 1},
		{func() { r.unlink("runs/c/1/arch.json") }, 1},
		{func() { r.removeStep("runs/c/1") }, 1},
		{func() {
			r.mkdir("runs/a/4")
			h = r.open("runs/a/4/m.safetensors", unix.O_WRONLY|unix.O_CREAT)
		}, 1},
		{func() { r.writeAt(h, modelFile(t, "ABCD"), 0) }, 0},
		{func() { r.release(h); r.sync() }, 0},
	} {
		c.change()
		n := 0
		for looked := true; looked && n < 5; {
			var gen uint64
			var err error
			looked, gen, err = r.models.Reconcile(context.Background())
			if err != nil || !looked && gen == 0 {
				t.Fatalf("%d: looked %v, %v", i, looked, err)
			} else if looked {
				n++
			}
		}
		if n != c.looks {
			t.Errorf("%d: looked at %d times, want %d", i, n, c.looks)
		}
	}
	if got := r.matched("xyu"); got != "a/3 3" {
		t.Errorf("%q", got)
	}
	r.wantChain("runs/a/4", "a/4 previous step 1; a/3 previous step 0; a/1 none 3")
}
