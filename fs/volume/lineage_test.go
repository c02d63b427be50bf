package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/models"
	"ckptfs/fs/tree"
)

// modelFile is a checkpoint of four tensors, of which a letter says the content.
func modelFile(t testing.TB, contents string) []byte {
	names, data := []string{"a", "b", "c", "d"}, [][]byte{}
	for _, c := range []byte(contents) {
		data = append(data, random(70<<10, uint64(c)))
	}
	return weights(t, names[:len(contents)], data...)
}

// save makes a step with a checkpoint, packed.
func (r *rig) save(step, contents string) {
	r.t.Helper()
	r.mkdir("runs/" + step)
	r.write("runs/"+step+"/m.safetensors", modelFile(r.test, contents))
	r.sync()
}

func (r *rig) lineage(p string) control.ModelLineage {
	r.t.Helper()
	l, err := r.Lineage(context.Background(), p)
	if err != nil || len(l.Models) != 1 {
		r.t.Fatalf("%s: %+v, %v", p, l, err)
	}
	return l.Models[0]
}

// chain is a model's ancestors as text: path, how, tensors owned; "†" behind those retired.
func (r *rig) chain(p string) string {
	r.t.Helper()
	var out []string
	for _, a := range r.lineage(p).Chain {
		s := fmt.Sprintf("%s %s %d",
			strings.TrimSuffix(strings.TrimPrefix(a.Path, "runs/"), "/m.safetensors"), a.How, a.OwnedTensors)
		if a.Retired {
			s += "†"
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func (r *rig) wantChain(p, want string) {
	r.t.Helper()
	if got := r.chain(p); got != want {
		r.t.Errorf("%s: %s\nwant %s", p, got, want)
	}
}

func (r *rig) removeStep(p string) {
	r.t.Helper()
	r.unlink(p + "/m.safetensors")
	dir, name := r.dirOf(p)
	defer r.forget(dir)
	if err := r.Rmdir(dir, name); err != nil {
		r.t.Fatal(err)
	}
}

func TestLineage(t *testing.T) {
	r := newRig(t)
	r.save("base/1", "ABCD")
	r.save("a/1", "ABCE") // three of base's
	r.save("a/2", "ABXE")
	r.mkdir("runs/a/3")
	r.write("runs/a/3/lineage.json", []byte(`{"parent": "runs/a/1", "merged_from": ["../2"]}`))
	r.save("a/3", "ABCF")
	r.mkdir("runs/b/1")
	n := r.find("runs/b/1")
	if err := r.SetXattr(n, "user.parent", []byte("runs/a/2/m.safetensors"), 0); err != nil {
		t.Fatal(err)
	}
	r.forget(n)
	r.save("b/1", "ABXG")
	r.save("other/1", "WXYZ")

	want := map[string]string{
		"runs/base/1":            "base/1 none 4",
		"runs/a/1":               "a/1 inferred 1; base/1 none 3",
		"runs/a/2":               "a/2 previous step 1; a/1 inferred 1; base/1 none 2",
		"runs/a/3/m.safetensors": "a/3 declared 1; a/1 inferred 0; base/1 none 3",
		"runs/b/1":               "b/1 declared 1; a/2 previous step 1; a/1 inferred 0; base/1 none 2",
		"runs/other/1":           "other/1 none 4", // one of four, X of a/2, makes no parent
	}
	check := func(r *rig, when string) {
		t.Helper()
		for p, w := range want {
			if got := r.chain(p); got != w {
				t.Errorf("%s: %s: %s\nwant %s", when, p, got, w)
			}
		}
		if l := r.lineage("runs/a/3"); len(l.Merged) != 1 || l.Merged[0].Path != "runs/a/2/m.safetensors" {
			t.Errorf("%s: %+v", when, l.Merged)
		}
		c, err := r.Ancestor(context.Background(), "runs/a/3", "runs/b/1")
		if err != nil || c.Ancestor == nil || c.Ancestor.Path != "runs/a/1/m.safetensors" || c.Owner == nil || c.Owner.Path != "runs/base/1/m.safetensors" {
			t.Errorf("%s: %+v, %v", when, c, err)
		}
		o, err := r.Owner(context.Background(), "runs/b/1", "c")
		if err != nil || o.Owner.Path != "runs/a/2/m.safetensors" {
			t.Errorf("%s: %+v, %v", when, o, err)
		}
	}
	check(r, "written")
	r.evictAll()
	r = r.reopen()
	check(r, "opened again")
	r = r.withoutIndex()
	check(r, "without its index")
	r.prune(control.PruneOptions{MaxUnused: 0.5})
	check(r, "swept")
	r.prune(control.PruneOptions{MaxUnused: 0.5})
	check(r.reopen(), "swept, and opened again")
	for _, p := range []string{"runs/none", "runs/a/9", "elsewhere"} {
		if l, err := r.Lineage(context.Background(), p); err == nil {
			t.Errorf("%s: %+v", p, l)
		}
	}
}

// Retired models stay in the chain as long as a model comes from them. The tensors that descendants share
// with them can be read.
func TestRetire(t *testing.T) {
	r := newRig(t)
	for i, c := range []string{"ABCD", "ABCE", "ABFE"} {
		r.save(fmt.Sprintf("a/%d", i+1), c)
	}
	want := "a/3 previous step 1; a/2 previous step 1; a/1 none 2"
	r.wantChain("runs/a/3", want)
	ctx := context.Background()
	if _, err := r.Retire(ctx, "runs/a/1"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("retired while it is there: %v", err)
	}
	r.removeStep("runs/a/1")
	r.removeStep("runs/a/2")
	for range 2 {
		if out, err := r.Retire(ctx, "runs/a/1"); err != nil || len(out.Models) != 1 ||
			!out.Models[0].Retired {
			t.Errorf("%+v, %v", out, err)
		}
	}
	want = "a/3 previous step 1; a/2 previous step 1†; a/1 none 2†"
	r.wantChain("runs/a/3", want)
	r.wantChain("runs/a/1", "a/1 none 0†")
	r.evictAll()
	r.prune(control.PruneOptions{MaxUnused: 0.5})
	r.wantChain("runs/a/3", want)
	r = r.reopen()
	r.wantChain("runs/a/3", want)
	r.same("runs/a/3/m.safetensors", modelFile(t, "ABFE"))
	r = r.withoutIndex()
	r.wantChain("runs/a/3", want)
	// A child of a retired parent, by name.
	r.mkdir("runs/b/1")
	r.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/2"}`))
	r.save("b/1", "ABCQ")
	if got := r.chain("runs/b/1"); !strings.HasPrefix(got, "b/1 declared ") || !strings.Contains(got, "; a/2 previous step ") {
		t.Errorf("%s", got)
	}
	// When the last is gone nothing is left.
	r.removeStep("runs/a/3")
	r.unlink("runs/b/1/lineage.json")
	r.removeStep("runs/b/1")
	if _, err := r.Retire(ctx, "runs/a/3"); err != nil {
		t.Error(err)
	}
	r.prune(control.PruneOptions{MaxUnused: 0.5})
	r.prune(control.PruneOptions{MaxUnused: 0.5})
	r = r.reopen()
	if l, err := r.Lineage(ctx, "runs/a/3"); err == nil {
		t.Errorf("%+v", l)
	}
	if n, err := maintenance.Allocated(r.Folder(), tree.SegmentsDir); err != nil || n > 64<<10 {
		t.Errorf("%d bytes are left, %v", n, err)
	}
	if out, err := r.Retire(ctx, "runs/a/3"); err != nil || len(out.Models) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// A file that is written again is another model, whose parent is what it was.
func TestRewrittenModel(t *testing.T) {
	r := newRig(t)
	r.save("a/last", "ABCD")
	r.wantChain("runs/a/last", "a/last none 4")
	r.write("runs/a/last/m.safetensors", modelFile(t, "ABCE"))
	r.sync()
	r.wantChain("runs/a/last", "a/last previous step 1; a/last none 3†")
	// A rename moves it, with what is above it.
	r.rename("runs/a", "runs/z")
	r.wantChain("runs/z/last", "z/last previous step 1; a/last none 3†")
	r = r.reopen()
	r.wantChain("runs/z/last", "z/last previous step 1; a/last none 3†")
	// Written to a new name and renamed over, as careful savers do.
	r.write("runs/z/last/tmp", modelFile(t, "ABCF"))
	r.rename("runs/z/last/tmp", "runs/z/last/m.safetensors")
	r.sync()
	if got := r.chain("runs/z/last"); !strings.HasPrefix(got, "z/last ") ||
		!strings.HasSuffix(got, "a/last none 3†") {
		t.Errorf("%s", got)
	}
	r.write("runs/z/last/m.safetensors", modelFile(t, "ABCG"))
	r.sync()
	if got := r.chain("runs/z/last"); !strings.HasPrefix(got, "z/last previous step 1; ") || !strings.HasSuffix(got, "a/last none 3†") {
		t.Errorf("%s", got)
	}
}

// A sidecar that comes late, and what is wrong with others.
// TestLineageOfRun: an answer about many models grows with their number, and not with their chains: each has
// its parent, those that own something of it, and the first.
func TestLineageOfRun(t *testing.T) {
	r := newRig(t)
	const steps = 12
	owner := func(i int) int { return i / 5 * 5 } // of b; a is another's in each step
	for i := range steps {
		r.save(fmt.Sprintf("a/%d", i), string([]byte{byte(i), byte(100 + owner(i))}))
	}
	l, err := r.Lineage(t.Context(), "runs/a")
	if err != nil || len(l.Models) != steps {
		t.Fatalf("%+v, %v", l, err)
	}
	for i, m := range l.Models {
		var got, want []string
		left := 0
		for _, a := range m.Chain {
			got = append(got, fmt.Sprintf("%s %d", a.Path, a.OwnedTensors))
			left += a.Skipped
		}
		for k := i; k >= 0; k-- {
			owns := 0
			if k == i {
				owns++
			}
			if k == owner(i) {
				owns++
			}
			if owns > 0 || k == i-1 || k == 0 {
				want = append(want, fmt.Sprintf("runs/a/%d/m.safetensors %d", k, owns))
			}
		}
		if !slices.Equal(got, want) || left != i+1-len(want) {
			t.Errorf("%s: %q, %d left out; want %q", m.Path, got, left, want)
		}
	}
	if c := r.lineage(fmt.Sprintf("runs/a/%d", steps-1)).Chain; len(c) != steps || c[steps-1].Skipped != 0 {
		t.Errorf("the chain of one model: %+v", c)
	}
}

func TestLateLineage(t *testing.T) {
	r := newRig(t)
	r.save("x/1", "ABCD")
	r.save("y/1", "ABCE")
	r.save("y/2", "ABFE")
	r.wantChain("runs/y/2", "y/2 previous step 1; y/1 inferred 1; x/1 none 2")
	r.write("runs/y/2/lineage.json", []byte(`{"parent": "runs/x/1"}`))
	r.wantChain("runs/y/2", "y/2 declared 2; x/1 none 2")
	r.write("runs/y/2/lineage.json", []byte(`{"parent": "runs/x/1", "merged_from": ["../1"]}`))
	for range 2 {
		r.wantChain("runs/y/2", "y/2 declared 2; x/1 none 2")
		if l := r.lineage("runs/y/2"); len(l.Merged) != 1 || l.Merged[0].Path != "runs/y/1/m.safetensors" {
			t.Errorf("merged from %+v", l.Merged)
		}
		r.sync()
		r = r.reopen()
	}
	for sidecar, word := range map[string]string{
		`{"parent": "runs/y/3"}`:       "no model",
		`{"parent": "runs/y/2"}`:       "no other step",
		`{"parent": 5}`:                "lineage.json",
		`{"parent": "/etc"}`:           "outside",
		strings.Repeat(" ", 17<<20):    "at most",
		`{"merged_from": ["runs/q/1"]`: "lineage.json",
	} {
		r.write("runs/y/2/lineage.json", []byte(sidecar))
		l, err := r.Lineage(context.Background(), "runs/y/2")
		if err != nil || !strings.Contains(l.Problem, word) {
			t.Errorf("%.30s: problem %q, %v", sidecar, l.Problem, err)
		}
		r.wantChain("runs/y/2", "y/2 declared 2; x/1 none 2")
	}
	r.same("runs/y/2/m.safetensors", modelFile(t, "ABFE"))
	// A parent that was saved after its child is none.
	r.write("runs/x/1/lineage.json", []byte(`{"parent": "runs/y/1"}`))
	if l, err := r.Lineage(context.Background(), "runs/x/1"); err != nil ||
		!strings.Contains(l.Problem, "after its child") {
		t.Errorf("%+v, %v", l, err)
	}
}

// Events that a crash took are made again from the tree, parents first, and copies of a store are recognised.
func TestLineageAfterCrash(t *testing.T) {
	r := newRig(t)
	fail := errors.New("cut off")
	r.Volume.content.Step = func(what string) error {
		if what == "models: record" {
			return fail
		}
		return nil
	}
	r.save("a/1", "ABCD")
	r.save("a/2", "ABCE")
	r.mkdir("runs/b/1")
	r.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/2"}`))
	r.save("b/1", "ABFE")
	want := "b/1 declared 1; a/2 previous step 1; a/1 none 2"
	r.wantChain("runs/b/1", want)
	c := r.crashed()
	c.wantChain("runs/b/1", want)
	c.sync()
	c = c.reopen()
	c.wantChain("runs/b/1", want)

	r.Volume.content.Step = func(string) error { return nil }
	r.sync()
	r.eventually("the events are recorded", func() bool {
		r.models.Keep(context.Background())
		return !r.models.Stale()
	})
	r.removeStep("runs/a/1")
	c = r.crashed() // whose inodes are others
	c.wantChain("runs/b/1", want+"†")
	seqs := map[string]uint64{}
	for _, e := range c.models.Entries("") {
		seqs[e.Path] = e.Seq
	}
	if len(seqs) != 3 || seqs["runs/a/1/m.safetensors"] != 1 || seqs["runs/b/1/m.safetensors"] != 3 {
		t.Errorf("%v", seqs)
	}
}

// Nothing that is being written is a model yet, and a sweep does not take what was not read yet.
func TestLineageWaits(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "AB")
	r = r.reopen()
	r.prune(control.PruneOptions{MaxUnused: 0.5}) // before a program asked
	r.wantChain("runs/a/1", "a/1 none 2")
	r.mkdir("runs/a/2")
	r.write("runs/a/2/m.safetensors", modelFile(t, "AC"))
	h := r.open("runs/a/2/opt", unix.O_WRONLY|unix.O_CREAT)
	r.eventually("the file is packed", func() bool { return r.state("runs/a/2/m.safetensors") == both })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if l, err := r.Lineage(ctx, "runs/a/2"); err == nil {
		t.Errorf("%+v", l)
	}
	r.release(h)
	r.sync()
	r.wantChain("runs/a/2", "a/2 previous step 1; a/1 none 1")
}

// What a step says of others is looked at again when these come or go, and the status says what is so now.
func TestProblemsOfNow(t *testing.T) {
	r := newRig(t)
	status := func() string {
		t.Helper()
		st, err := r.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(st.Sidecars, "\n")
	}
	declare := func(step, parent string) {
		t.Helper()
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/lineage.json", []byte(`{"parent":"`+parent+`"}`))
	}
	declare("child/1", "runs/late/1")
	r.save("child/1", "AB")
	r.sync()
	r.wantChain("runs/child/1", "child/1 none 2")
	if got := status(); !strings.Contains(got, `runs/child/1: parent "runs/late/1"`) {
		t.Errorf("not there: %q", got)
	}
	r.save("late/1", "AB")
	r.sync()
	if got := status(); !strings.Contains(got, "after its child") {
		t.Errorf("later than the child: %q", got)
	}
	r.removeStep("runs/late/1")
	if got := status(); !strings.Contains(got, "after its child") { // a tombstone of it is left
		t.Errorf("gone: %q", got)
	}
	// A cycle is refused, until one of the two says something else.
	declare("a/1", "runs/b/1")
	declare("b/1", "runs/a/1")
	r.save("a/1", "CD")
	r.save("b/1", "CE")
	r.sync()
	if got := status(); !strings.Contains(got, "runs/a/1: ") && !strings.Contains(got, "runs/b/1: ") {
		t.Errorf("a cycle: %q", got)
	}
	r.unlink("runs/a/1/lineage.json")
	r.unlink("runs/child/1/lineage.json")
	if got := status(); got != "" {
		t.Errorf("all is well: %q", got)
	}
}

// As many models are known as there is memory for. What is written again stays one; what came later becomes
// one where there is more.
func TestMostModels(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Most.Models = 2 })
	for _, step := range []string{"a/1", "a/2", "a/3", "a/4"} {
		r.save(step, "AB")
	}
	r.wantChain("runs/a/2", "a/2 previous step 0; a/1 none 2")
	if l, err := r.Lineage(context.Background(), "runs/a/4"); err == nil {
		t.Errorf("of a model that there is no room for: %+v", l)
	}
	st, err := r.Status(context.Background())
	if err != nil || len(st.Sidecars) != 1 || !strings.Contains(st.Sidecars[0], ": files that came later") {
		t.Errorf("%+v, %v", st, err)
	}
	looked := 0
	o := modelsOptions(r.Volume, Options{Most: Most{Models: 2}})
	o.Files = countedFiles{o.Files, &looked}
	if _, _, err := models.New(o).Reconcile(context.Background()); err != nil || looked != 2 {
		t.Errorf("%d files were looked at of the two that there is room for: %v", looked, err)
	}
	r.save("a/2", "AC")
	r.wantChain("runs/a/2", "a/2 previous step 1; a/2 previous step 0†; a/1 none 1")
	// A model that is a new file, as in a copy of the store, is looked for in all.
	r.close()
	copied := r.at("tree", "runs/a/1/copied")
	was := r.at("tree", "runs/a/1/m.safetensors")
	if out, err := exec.Command("cp", "-a", was, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(copied, was); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, r.dir, func(o *Options) { o.Most.Models = 2 })
	r.wantChain("runs/a/2", "a/2 previous step 1; a/2 previous step 0†; a/1 none 1")
	r = r.reopen()
	r.wantChain("runs/a/4",
		"a/4 previous step 0; a/3 previous step 1; a/2 previous step 0; a/2 previous step 0†; a/1 none 1")
}

// Each metric that is none is named.
func TestProblemsOfMetrics(t *testing.T) {
	r := newRig(t)
	r.mkdir("elsewhere")
	n := r.find("elsewhere")
	for _, name := range []string{"user.metric.acc", "user.metric.loss"} {
		if err := r.SetXattr(n, name, []byte("good"), 0); err != nil {
			t.Fatal(err)
		}
	}
	r.forget(n)
	r.write("elsewhere/m.safetensors", modelFile(t, "AC"))
	r.mkdir("runs/a")
	r.rename("elsewhere", "runs/a/2")
	l, err := r.Steps(context.Background(), "runs/a")
	if err != nil || len(l.Steps) != 1 || !strings.Contains(l.Steps[0].Problem, "user.metric.acc") ||
		!strings.Contains(l.Steps[0].Problem, "user.metric.loss") {
		t.Errorf("%+v, %v", l, err)
	}
}

// The error of a request right after a save names what is missing.
func TestLineageNotPacked(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	r.withoutPacking()
	r.mkdir("runs/b")
	r.mkdir("runs/b/1")
	r.write("runs/b/1/m.safetensors", modelFile(t, "ABCE"))
	ctx := context.Background()
	for _, p := range []string{"runs/b/1", "runs/b/1/m.safetensors", "runs/b"} {
		for op, err := range map[string]error{
			"lineage": func() error { _, err := r.Lineage(ctx, p); return err }(),
			"owner":   func() error { _, err := r.Owner(ctx, p, "a"); return err }(),
			"match":   func() error { _, err := r.Match(ctx, control.MatchOptions{Like: p}); return err }(),
		} {
			if !errors.Is(err, unix.ENODATA) ||
				!strings.Contains(err.Error(), "runs/b/1/m.safetensors is not packed") ||
				!strings.Contains(err.Error(), "ckptfs sync") {
				t.Errorf("%s %s: %v", op, p, err)
			}
		}
	}
	r.write("runs/a/1/m.safetensors", modelFile(t, "ABCF"))
	if l, err := r.Lineage(ctx, "runs/a"); err != nil || len(l.Models) != 1 || !strings.Contains(l.Problem, "runs/a/1/m.safetensors is not packed") {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.Lineage(ctx, "runs/c"); err == nil || strings.Contains(err.Error(), "sync") {
		t.Error(err)
	}
	r.queue.Start()
	r.sync()
	if l, err := r.Lineage(ctx, "runs/a"); err != nil || l.Problem != "" {
		t.Errorf("%+v, %v", l, err)
	}
	if got := r.chain("runs/b/1"); !strings.HasPrefix(got, "b/1 inferred 1; ") {
		t.Error(got)
	}
}
