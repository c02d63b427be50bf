package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/cas/disk/disktest"
	"ckptfs/fs/control"
	"ckptfs/fs/models"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// like is the step that is most like the model of another.
func (r *rig) like(step string) string {
	r.t.Helper()
	m := r.match(control.MatchOptions{Like: "runs/" + step})
	if m == nil {
		return ""
	}
	run, step, _ := steps.In(m.Path)
	return fmt.Sprintf("%s/%s %d", run, step, m.Length)
}

// left is a store with four models that was asked, and ended in order.
func left(t *testing.T) *rig {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xyw")
	r.saveGraph("b/1", "xqqq")
	r.saveGraph("b/2", "xyzw")
	if got := r.like("a/1"); got != "b/2 3" {
		t.Fatalf("like a/1 is %q", got)
	}
	return r.reopen()
}

// TestMatchAsLeft: after an end in order a match is answered from what the last process knew, and nothing is
// looked at. Once anything changed, what changed counts.
func TestMatchAsLeft(t *testing.T) {
	want := func(r *rig, when string, looked bool, step string) {
		t.Helper()
		if got := r.like("a/1"); got != step {
			t.Errorf("%s: like a/1 is %q, want %q", when, got, step)
		}
		if known := r.steps.Known() > 0; known != looked {
			t.Errorf("%s: looked %v", when, known)
		}
	}
	r := left(t)
	r = r.reopen().reopen() // nobody asked anything meanwhile
	want(r, "reopened", false, "b/2 3")
	if got := r.matched("xyw"); got != "a/2 3" {
		t.Errorf("matched %q", got)
	}
	want(r.reopen(), "again", false, "b/2 3")

	for _, c := range []struct {
		when   string
		change func(r *rig) *rig
		step   string
	}{
		{"saved", func(r *rig) *rig { r.saveGraph("c/1", "xyzz"); return r }, "c/1 3"},
		{"removed", func(r *rig) *rig {
			r.unlink("runs/b/2/arch.json")
			r.removeStep("runs/b/2")
			return r
		}, "a/2 2"},
		{"better", func(r *rig) *rig {
			r.saveGraph("c/1", "xyzq")
			r.write("runs/b/2/metrics.json", []byte(`{"quality": 7}`))
			return r
		}, "b/2 3"},
		{"another sidecar", func(r *rig) *rig {
			r.write("runs/a/2/arch.json", chainGraph("xyz", true))
			r.write("runs/b/2/arch.json", chainGraph("xxx", true))
			return r
		}, "a/2 3"},
		{"moved", func(r *rig) *rig {
			r.mkdir("runs/c")
			r.rename("runs/b/2", "runs/c/7")
			return r
		}, "c/7 3"},
		{"a run moved", func(r *rig) *rig { r.rename("runs/b", "runs/d"); return r }, "d/2 3"},
		{"a file removed", func(r *rig) *rig { r.unlink("runs/b/2/m.safetensors"); return r }, "a/2 2"},
		{"written again", func(r *rig) *rig {
			r.write("runs/a/2/arch.json", chainGraph("xyz", true))
			r.write("runs/a/2/m.safetensors", modelFile(t, "QRS"))
			r.sync()
			return r
		}, "a/2 3"},
		{"killed", func(r *rig) *rig { return r.crashed() }, "b/2 3"},
		{"copied", func(r *rig) *rig {
			r.close()
			return openRig(t, r.copyStore())
		}, "b/2 3"},
		{"another catalogue", func(r *rig) *rig {
			r.close()
			p, err := os.ReadFile(r.at(tree.CatalogueFile))
			if err == nil {
				p[len(p)-1] ^= 1
				err = os.WriteFile(r.at(tree.CatalogueFile), p, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return openRig(t, r.dir)
		}, "b/2 3"},
	} {
		r := left(t)
		want(r, "before", false, "b/2 3")
		r = c.change(r)
		want(r, c.when, true, c.step)
		lineage := r.allLineage()
		r = r.reopen()
		want(r, c.when+", and reopened", false, c.step)
		r.close()
		if err := os.Remove(r.at(tree.CatalogueFile)); err != nil {
			t.Fatal(err)
		}
		if r = r.reopen(); !reflect.DeepEqual(r.allLineage(), lineage) {
			t.Errorf("%s: lineage %+v\nby a whole look %+v", c.when, lineage, r.allLineage())
		}
	}
}

func (r *rig) allLineage() *control.Lineage {
	r.t.Helper()
	l, err := r.Lineage(context.Background(), "runs")
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// TestPresumed: the first look passes over what was not touched since an end in order, which is seen by a
// change behind the daemon's back. Without a catalogue everything is looked at.
func TestPresumed(t *testing.T) {
	r := left(t)
	r.close()
	sidecar := r.at("tree/runs/b/2/arch.json")
	if err := os.WriteFile(sidecar, chainGraph("xxx", true), 0o600); err != nil {
		t.Fatal(err)
	}
	r = r.reopen()
	r.saveGraph("c/1", "q")
	if got := r.like("a/1"); got != "b/2 3" || r.steps.Known() == 0 {
		t.Errorf("like a/1 is %q, %d runs looked at", got, r.steps.Known())
	}
	r.close()
	if err := os.Remove(r.at(tree.CatalogueFile)); err != nil {
		t.Fatal(err)
	}
	r = r.reopen()
	if got := r.like("a/1"); got != "a/2 2" {
		t.Errorf("without a catalogue like a/1 is %q", got)
	}
}

// countedFiles counts the records that are read.
type countedFiles struct {
	models.Files
	records *int
}

func (f countedFiles) Record(path string, ino uint64) (models.Record, error) {
	*f.records++
	return f.Files.Record(path, ino)
}

// TestKilled: after a kill the first look passes over the steps that are as the catalogue knows them, and
// over no other, whatever changed them.
func TestKilled(t *testing.T) {
	sidecar := func(layers string) []byte { return chainGraph(layers, true) }
	meanwhile := func(change func(r *rig) error) func(r *rig) *rig {
		return func(r *rig) *rig {
			r.close()
			if err := change(r); err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	for _, c := range []struct {
		when   string
		change func(r *rig) *rig // the catalogue stays as it was
		step   string            // that is most like a/1
		files  int               // that are looked at; -1: all
	}{
		{"killed", func(r *rig) *rig { return r }, "b/2 3", 0},
		{"saved", func(r *rig) *rig { r.saveGraph("c/1", "xyzz"); return r }, "c/1 3", 2},
		{"another sidecar", func(r *rig) *rig {
			r.write("runs/b/2/arch.json", sidecar("xxxx"))
			return r
		}, "a/2 2", 2},
		{"better", func(r *rig) *rig {
			r.write("runs/a/2/metrics.json", []byte(`{"quality": 7}`))
			r.write("runs/a/2/arch.json", sidecar("xyz"))
			return r
		}, "a/2 3", 3},
		{"removed", func(r *rig) *rig { r.unlink("runs/b/2/m.safetensors"); return r }, "a/2 2", 1},
		{"moved while nothing was mounted", meanwhile(func(r *rig) error {
			return os.Rename(r.at("tree/runs/b/2"), r.at("tree/runs/a/7"))
		}), "a/7 3", 2},
		{"a run moved while nothing was mounted", meanwhile(func(r *rig) error {
			return os.Rename(r.at("tree/runs/b"), r.at("tree/runs/d"))
		}), "d/2 3", 4},
		{"written while nothing was mounted", meanwhile(func(r *rig) error {
			return os.WriteFile(r.at("tree/runs/b/2/arch.json"), sidecar("qqqq"), 0o600)
		}), "a/2 2", 2},
		{"the host went down", meanwhile(func(r *rig) error {
			replace(t, r.at("lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
			return nil
		}), "b/2 3", 8},
	} {
		r := left(t)
		// The look of a second process comes after all changes.
		disktest.WaitTick(t)
		r = r.reopenUnclean()
		r.like("a/1")
		r.close()
		saved, err := os.ReadFile(r.at(tree.CatalogueFile))
		if err != nil {
			t.Fatal(err)
		}
		r = c.change(openRig(t, r.dir))
		r.close()
		if err := os.WriteFile(r.at(tree.CatalogueFile), saved, 0o600); err != nil {
			t.Fatal(err)
		}
		disktest.WaitTick(t)
		r = r.reopenUnclean()
		records := 0
		o := modelsOptions(r.Volume, Options{})
		o.Files = countedFiles{o.Files, &records}
		r.models = models.New(o)
		if got := r.like("a/1"); got != c.step || records != c.files {
			t.Errorf("%s: like a/1 is %q, %d files looked at; want %q, %d", c.when, got, records, c.step, c.files)
		}
		lineage := r.allLineage()
		r.close()
		if err := os.Remove(r.at(tree.CatalogueFile)); err != nil {
			t.Fatal(err)
		}
		if r = r.reopen(); !reflect.DeepEqual(r.allLineage(), lineage) {
			t.Errorf("%s: lineage %+v\nby a whole look %+v", c.when, lineage, r.allLineage())
		}
	}
}

// TestMovedMeanwhile: what came into the tree, or left it, while nothing was mounted is known to a match,
// also once something else changed.
func TestMovedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to string // below runs/; to is "" for what is removed
		want     string
	}{
		{"a step into a new run", "b/2", "c/7", "c/7 3"},
		{"a step into another run", "b/2", "a/7", "a/7 3"},
		{"a run", "b", "d", "d/2 3"},
		{"a step out of the tree", "b/2", "", "a/2 2"},
		{"a run out of the tree", "b", "", "a/2 2"},
	} {
		for _, touched := range []bool{false, true} {
			r := left(t)
			r.close()
			from, to := r.at("tree/runs", c.from), filepath.Join(t.TempDir(), "out")
			if c.to != "" {
				to = r.at("tree/runs", c.to)
				if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
			r = r.reopen()
			if touched {
				r.saveGraph("z/1", "q")
			}
			if got := r.like("a/1"); got != c.want {
				t.Errorf("%s, touched %v: like a/1 is %q, want %q", c.name, touched, got, c.want)
			}
		}
	}
}

// TestMovedBack: what was out of the tree for as long as a process lived is a model again.
func TestMovedBack(t *testing.T) {
	r := left(t)
	in, out := r.at("tree/runs/b/2"), filepath.Join(t.TempDir(), "out")
	move := func(from, to string) {
		t.Helper()
		r.close()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		r = r.reopen()
	}
	want := func(step string) {
		t.Helper()
		r.saveGraph("z/"+step[:1]+step[2:3], "q") // something changes, somewhere else
		if got := r.like("a/1"); got != step {
			t.Errorf("like a/1 is %q, want %q", got, step)
		}
	}
	move(in, out)
	want("a/2 2")
	move(out, in)
	want("b/2 3")
}

// TestLeftUnasked: what a process saved that nobody asked is known to the next one, too.
func TestLeftUnasked(t *testing.T) {
	r := left(t)
	r.saveGraph("c/1", "xyzz")
	r = r.reopen()
	r.write("runs/c/1/metrics.json", []byte(`{"loss": 3}`)) // nothing that is packed
	r = r.reopen()
	if got := r.like("a/1"); got != "c/1 3" || r.steps.Known() > 0 {
		t.Errorf("like a/1 is %q, %d runs looked at", got, r.steps.Known())
	}
}

// TestProblemsLeft: what is wrong with a step is told by the next process, too.
func TestProblemsLeft(t *testing.T) {
	r := left(t)
	r.write("runs/a/2/lineage.json", []byte(`{"parent": "runs/none/1"}`))
	for range 3 {
		r.saveGraph("c/1", "xy")
		l, err := r.Lineage(t.Context(), "runs/a/2")
		if err != nil || !strings.Contains(l.Problem, "runs/none/1") {
			t.Errorf("%+v, %v", l, err)
		}
		r.like("a/1")
		r = r.reopen()
	}
}

// again ends a volume as kill -9 does, and opens the store where it lies.
func (r *rig) again() *rig {
	r.t.Helper()
	r.Abandon()
	return openRig(r.test, r.dir)
}

// rested is left, saved to and asked since, in which nothing changed for a while.
func rested(t *testing.T) *rig {
	r := left(t)
	r.saveGraph("c/1", "xyzz")
	if got := r.like("a/1"); got != "c/1 3" {
		t.Fatalf("like a/1 is %q", got)
	}
	r.rest()
	return r
}

func (r *rig) rest() {
	for range 2 {
		r.models.Rest(context.Background())
	}
}

// TestMatchAfterKill: what was known when the tree came to rest is known after a kill, and nothing is looked
// at. Once anything changed, or was about to, it is looked at.
func TestMatchAfterKill(t *testing.T) {
	want := func(r *rig, when string, looked bool, step string) {
		t.Helper()
		if got := r.like("a/1"); got != step {
			t.Errorf("%s: like a/1 is %q, want %q", when, got, step)
		}
		if known := r.steps.Known() > 0; known != looked {
			t.Errorf("%s: looked %v", when, known)
		}
	}
	r := rested(t).again()
	want(r, "killed", false, "c/1 3")
	want(r.again(), "killed twice", false, "c/1 3")

	for _, c := range []struct {
		when   string
		change func(r *rig)
		step   string
	}{
		{"saved", func(r *rig) { r.saveGraph("d/1", "xyzz") }, "d/1 3"},
		{"removed", func(r *rig) { r.unlink("runs/c/1/m.safetensors") }, "b/2 3"},
		{"moved", func(r *rig) { r.rename("runs/c/1", "runs/b/3") }, "b/3 3"},
		{"an attribute", func(r *rig) {
			if err := r.setXattr("runs/b/2", "user.metric.quality", []byte("7")); err != nil {
				t.Fatal(err)
			}
		}, "b/2 3"},
		{"another sidecar", func(r *rig) { r.write("runs/c/1/arch.json", chainGraph("x", true)) }, "b/2 3"},
		{"begun", func(r *rig) { r.steps.Alter() }, "c/1 3"},
		{"came to rest while something changed", func(r *rig) {
			r.steps.Alter()
			r.write("runs/b/2/metrics.json", []byte(`{"quality": 7}`))
			r.rest()
		}, "b/2 3"},
	} {
		r := rested(t)
		c.change(r)
		want(r.again(), c.when, true, c.step)
	}

	r = rested(t)
	r.write("runs/b/2/metrics.json", []byte(`{"quality": 7}`))
	r = r.again()
	want(r, "looked", true, "b/2 3")
	r.models.Keep(context.Background())
	want(r.again(), "looked, and killed", false, "b/2 3")

	r = rested(t)
	r.saveGraph("d/1", "xyzz")
	want(r, "saved", true, "d/1 3")
	r.rest()
	want(r.again(), "saved, and came to rest", false, "d/1 3")
}

// countSmall counts which small files of steps are read.
type countSmall struct {
	steps.Files
	read *sync.Map
}

func (f countSmall) ReadSmall(p string, most int64) ([]byte, error) {
	f.read.Store(p, true)
	return f.Files.ReadSmall(p, most)
}

// TestMetricsAfterKill: after a kill amid changes the metrics of steps that did not change are known, and not
// read again.
func TestMetricsAfterKill(t *testing.T) {
	r := newRig(t)
	for step, quality := range map[string]string{"a/1": "1", "a/2": "9", "b/1": "3", "b/2": "5"} {
		r.saveGraph(step, "xyz")
		r.write("runs/"+step+"/metrics.json", []byte(`{"quality": `+quality+`}`))
	}
	r.sync() // what is packed behind a look is recorded, and has no print for a while
	disktest.WaitTick(t)
	r = r.reopen()
	if got := r.like("a/1"); got != "a/2 3" {
		t.Fatalf("like a/1 is %q", got)
	}
	r.models.Keep(t.Context()) // soon after a look
	r.write("runs/b/1/metrics.json", []byte(`{"quality": 12}`))
	r = r.again()
	var read sync.Map
	r.steps.Files = countSmall{r.steps.Files, &read}
	if got := r.like("a/1"); got != "b/1 3" {
		t.Errorf("like a/1 is %q", got)
	}
	var all []string
	for p := range read.Range {
		all = append(all, p.(string))
	}
	if !slices.Equal(all, []string{"runs/b/1/metrics.json"}) {
		t.Errorf("read %v", all)
	}
	log := r.runLog("runs/a")
	if a, b := log["1"].Metrics["quality"], log["2"].Metrics["quality"]; a != 1 || b != 9 {
		t.Errorf("qualities %v and %v", a, b)
	}
}
