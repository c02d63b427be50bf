package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual"
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
	return fmt.Sprintf("%s %d", strings.TrimSuffix(strings.TrimPrefix(m.Path, "runs/"), "/m.safetensors"), m.Length)
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
	if !m.Exact || len(m.Pairs) != 3 || m.Pairs[2] != [2]string{"n2", "n2"} || len(m.Tensors) != 3 || m.Tensors[1] != (control.TransferTensor{New: "b", Stored: "b", Bytes: 70 << 10}) || m.Bytes != 3*70<<10 {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Like: "runs/a/1"}); m == nil || m.Path != "runs/a/2/m.safetensors" || m.Length != 2 {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("xyzz", true), ExcludeRun: "a"}); m == nil || m.Path != "runs/b/1/m.safetensors" {
		t.Errorf("%+v", m)
	}
	if a, err := r.Match(context.Background(), control.MatchOptions{Like: "runs/plain/1/m.safetensors"}); err != nil || a.GraphKind != "bag" || a.Match != nil {
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
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != maxSidecars || st.MoreSidecars != 3 {
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
		if err != nil || len(st.Sidecars) != 1 || !strings.Contains(st.Sidecars[0], word) || !strings.Contains(st.Sidecars[0], "runs/a/1") {
			t.Errorf("%.40s: %q, %v", sidecar, st.Sidecars, err)
		}
		r.same("runs/a/1/m.safetensors", modelFile(t, "ABC"))
		_, err = r.Match(context.Background(), control.MatchOptions{Graph: []byte(strings.TrimLeft(sidecar, " "))})
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
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 || !strings.HasPrefix(st.Sidecars[0], file+" user.ckptfs.arch: ") {
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
	if st, err := r.Status(context.Background()); err != nil || !strings.Contains(strings.Join(st.Sidecars, " "), "nothing") {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
}

// What a query answers is readable as long as the query has its name, though the model be removed and swept;
// and no other query answers it any more.
func TestPinned(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xqq")
	ask := func() (a control.MatchAnswer) {
		t.Helper()
		h := r.open(".ckptfs/query/new", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		r.writeAt(h, chainGraph("xyw", true), 0)
		if err := h.Answer(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.release(h)
		if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := ask()
	if a.Match == nil || a.Match.Path != "runs/a/1/m.safetensors" || a.Match.Pinned != ".ckptfs/query/new.safetensors" {
		t.Fatalf("%+v", a.Match)
	}
	want := r.read(a.Match.Pinned)
	r.evictAll()
	r.unlink("runs/a/1/arch.json")
	r.removeStep("runs/a/1")
	r.prune(now)
	if got := r.read(a.Match.Pinned); !bytes.Equal(got, want) || len(got) < 3*70<<10 {
		t.Errorf("%d bytes, %d before", len(got), len(want))
	}
	r.unlink(".ckptfs/query/new")
	if r.exists(a.Match.Pinned) {
		t.Error("there without its query")
	}
	if b := ask(); b.Match == nil || b.Match.Path != "runs/a/2/m.safetensors" || b.Match.Length != 1 {
		t.Errorf("%+v", b.Match)
	}
	r.unlink(".ckptfs/query/new")
	r.onlyRoot()
}

// Who asks by the control socket can have the answer pinned by a name, as who writes there has.
func TestPinnedByName(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xqq")
	m := r.match(control.MatchOptions{Graph: chainGraph("xyw", true), Pin: "new"})
	if m == nil || m.Path != "runs/a/1/m.safetensors" || m.Pinned != ".ckptfs/query/new.safetensors" {
		t.Fatalf("%+v", m)
	}
	var a control.MatchAnswer
	if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil || a.Match == nil || a.Match.Path != m.Path || a.Match.Pinned != m.Pinned {
		t.Errorf("%+v, %v", a, err)
	}
	want := r.read(m.Pinned)
	r.evictAll()
	r.unlink("runs/a/1/arch.json")
	r.removeStep("runs/a/1")
	r.prune(now)
	if got := r.read(m.Pinned); !bytes.Equal(got, want) || len(got) < 3*70<<10 {
		t.Errorf("%d bytes, %d before", len(got), len(want))
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("k", true), Pin: "new"}); m != nil || r.exists(".ckptfs/query/new.safetensors") {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("x", true), Pin: "new"}); m == nil || m.Path != "runs/a/2/m.safetensors" || !r.exists(m.Pinned) {
		t.Errorf("%+v", m)
	}
	for _, o := range []control.MatchOptions{{Pin: ".."}, {Pin: "a/b"}, {Pin: strings.Repeat("n", 250)}, {Pin: "bad", Graph: []byte("{")}} {
		if _, err := r.Match(context.Background(), o); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%q: %v", o.Pin, err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	r.unlink(".ckptfs/query/new")
	r.unlink(".ckptfs/query/bad")
	// A name that is removed while somebody has it open pins nothing.
	h := r.open(".ckptfs/query/late", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, chainGraph("x", true), 0)
	r.unlink(".ckptfs/query/late")
	if err := h.Answer(context.Background()); err != nil {
		t.Error(err)
	}
	r.release(h)
	r.onlyRoot()
	r = r.reopen(func(o *Options) { o.NoViews = true })
	if _, err := r.Match(context.Background(), control.MatchOptions{Graph: chainGraph("x", true), Pin: "new"}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// A graph that is written below .ckptfs/query is answered there.
func TestQueryFiles(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	ask := func(name string, graph []byte) error {
		t.Helper()
		h := r.open(".ckptfs/query/"+name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		for len(graph) > 0 { // in pieces, as programs do
			n := min(len(graph), 20)
			r.writeAt(h, graph[:n], int64(h.Node.Synth().Size()))
			graph = graph[n:]
		}
		err := h.Answer(context.Background())
		r.release(h)
		return err
	}
	for range 2 {
		if err := ask("new", chainGraph("xyw", true)); err != nil {
			t.Fatal(err)
		}
		var a control.MatchAnswer
		if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil || a.Match == nil || a.Match.Path != "runs/a/1/m.safetensors" || a.Match.Length != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != 1 || got[0] != "new" {
		t.Errorf("%q", got)
	}
	wantErr(t, "no graph", ask("bad", []byte(`{"v":1,"nodes":[{}]}`)), unix.EINVAL)
	_, err := r.openFile(".ckptfs/query/bad", unix.O_RDONLY)
	wantErr(t, "an answer to none", err, unix.EINVAL)
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 || !strings.Contains(st.Sidecars[0], "query/bad") {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
	h := r.open(".ckptfs/query/bad", unix.O_WRONLY|unix.O_TRUNC)
	if _, err := h.Write([]byte("x"), 16<<20); err != unix.EFBIG {
		t.Errorf("beyond what a graph may be: %v", err)
	}
	_, err = h.CopyRange(0, h, 0, 1, 0)
	wantErr(t, "copy_file_range", err, unix.EOPNOTSUPP)
	r.release(h)
	r.unlink(".ckptfs/query/bad")
	if r.exists(".ckptfs/query/bad") {
		t.Error("it was removed")
	}
	for i := range virtual.MaxQueries + 5 {
		if err := ask(fmt.Sprint(i), chainGraph("q", false)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != virtual.MaxQueries {
		t.Errorf("%d names", len(got))
	}
	r.onlyRoot()
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
		if n := r.models.Unsaved(); n != made {
			t.Errorf("%s: %d changes, want %d", when, n, made)
		}
	}
	check(r, "made", 3, "a/1 3", "a/2 3", "b/1 3")
	r = r.reopen()
	check(r, "restored", 0, "a/1 3", "a/2 3", "b/1 3")
	r.unlink("runs/a/2/arch.json")
	r.removeStep("runs/a/2")
	r.saveGraph("c/1", "xqqx")
	r.write("runs/a/1/arch.json", chainGraph("xqq", true))
	check(r, "changed", 4, "c/1 1", "c/1 1", "c/1 4")
	r.sync()
	r = r.crashed()
	check(r, "an old one", 4, "c/1 1", "c/1 1", "c/1 4")
	r.close()
	path := r.at(tree.CatalogueFile)
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string][]byte{"damaged": append(p[:len(p)-1:len(p)-1], p[len(p)-1]^1), "cut short": p[:50], "of a later version": append([]byte("CKP2"), p[4:]...), "none": nil} {
		if err := os.WriteFile(path, q, 0o600); err != nil {
			t.Fatal(err)
		}
		r = openRig(t, r.dir)
		check(r, what, 3, "c/1 1", "c/1 1", "c/1 4")
		r.close()
	}
	r = openRig(t, r.dir)
	check(r, "saved again", 0, "c/1 1", "c/1 1", "c/1 4")
}

// What did not change is not looked at again, and what did is.
func TestSettledOnce(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	looks := func() bool {
		t.Helper()
		looked, gen, err := r.models.Reconcile(context.Background())
		if err != nil || !looked && gen == 0 {
			t.Fatalf("looked %v, %v", looked, err)
		}
		return looked
	}
	for i, change := range []func(){
		func() {},
		func() { r.saveGraph("a/2", "xyw") },
		func() { r.saveGraph("b/1", "xy") },
		func() { r.write("runs/a/2/arch.json", chainGraph("xyu", true)) },
		func() { r.rename("runs/a/2", "runs/a/3") },
		func() { r.rename("runs/b", "runs/c") },
		func() { r.unlink("runs/c/1/arch.json") },
		func() { r.removeStep("runs/c/1") },
	} {
		change()
		n := 0
		for looks() {
			if n++; n > 3 {
				t.Fatalf("%d: no end", i)
			}
		}
		if n == 0 {
			t.Errorf("%d: nothing was looked at", i)
		}
	}
	if got := r.matched("xyu"); got != "a/3 3" {
		t.Errorf("%q", got)
	}
}
