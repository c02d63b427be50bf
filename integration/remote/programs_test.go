package remote

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// fetched publishes all of one machine, and has others see it.
func fetched(from *mounttest.Mount, by ...*mounttest.Mount) {
	from.T.Helper()
	from.Run("sync", "--remote", from.Dir)
	for _, m := range by {
		m.Run("fetch", m.Dir)
	}
}

func noConflicts(m *mounttest.Mount) {
	m.T.Helper()
	if said := m.Run("remote", "conflicts", m.Dir); strings.Contains(said, "runs/") {
		m.T.Errorf("conflicts: %s", said)
	}
}

// The ranks of a training on two machines save one step of torch.distributed.checkpoint, each its own part
// into its own mount. Every machine loads the whole step, also one that joins later, also after it was saved
// over.
func TestRanksOfTwoMachines(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	const step = "runs/d/1"
	save := func(seed string) {
		t.Helper()
		mounttest.RunPython(t, "dcp_ranks.py", "save", seed, a.Path(step), b.Path(step))
		fetched(a, b)
		fetched(b, a)
	}
	save("1")
	c := joined(t, e, "team", "c")
	c.Run("fetch", c.Dir)
	folders := []string{a.Path(step), b.Path(step), c.Path(step)}
	mounttest.RunPython(t, "dcp_ranks.py", append([]string{"check", "1"}, folders...)...)
	for _, f := range []string{a.Path(step, "__1_0.distcp"), b.Path(step, "__0_0.distcp"),
		c.Path(step, "__0_0.distcp"), c.Path(step, "__1_0.distcp")} {
		if is := remoteState(f); is != "remote" {
			t.Errorf("%s is %s: the test sees nothing", f, is)
		}
	}
	save("2")
	c.Run("fetch", c.Dir)
	mounttest.RunPython(t, "dcp_ranks.py", append([]string{"check", "2"}, folders...)...)
	for _, m := range []*mounttest.Mount{a, b, c} {
		noConflicts(m)
	}
}

// sameFile fails unless two machines have the same bytes.
func sameFile(a, b *mounttest.Mount, name string) {
	a.T.Helper()
	want, err := os.ReadFile(a.Path(name))
	a.Must(err)
	b.Want(name, want)
}

// What a machine that never had the bytes answers is what the machine answers that saved them: views, tensors
// as files, and commands.
func TestAnswersOnStubs(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	for i, kind := range []string{"zoo", "zoo", "nested"} {
		dir := fmt.Sprintf("runs/x/%d", i+1)
		a.Must(os.MkdirAll(a.Path(dir), 0o755))
		mounttest.RunPython(t, "save.py", kind, fmt.Sprint(i), a.Path(dir, "model.pt"))
		a.Write(dir+"/metrics.json", fmt.Appendf(nil, `{"loss": %d}`, (i-1)*(i-1)))
	}
	a.Must(os.MkdirAll(a.Path("runs/tuned/1"), 0o755))
	a.Write("runs/tuned/1/lineage.json", []byte(`{"parent": "runs/x/2"}`))
	mounttest.RunPython(t, "save.py", "zoo", "1", a.Path("runs/tuned/1/model.safetensors"))
	for _, dir := range []string{"runs/y/1", "runs/y/2"} {
		a.Must(os.MkdirAll(a.Path(dir), 0o755))
		mounttest.RunPython(t, "save.py", "plain", "7", a.Path(dir, "model.safetensors"))
	}
	a.Sync()
	fetched(a, b)

	model := b.Path("runs/x/1/model.pt")
	if is := remoteState(model); is != "remote" {
		t.Fatalf("%s is %s", model, is)
	}
	// Of what is only seen nothing is read.
	for _, args := range [][]string{
		{"runs", "--json", ""}, {"show", "--json", "runs/x/1/model.pt"}, {"show", "--json", "runs/tuned/1/model.safetensors"},
		{"best", "--json", "runs/x", "loss", "--mode", "min"},
		{"lineage", "--json", "runs/tuned/1"}, {"lineage", "--json", "runs/y/2"},
		{"ancestor", "runs/tuned/1", "runs/x/2"},
		{"match", "--json", "--like", "runs/y/1"},
		{"find", "--json", "--like", "runs/x/2/model.pt:big"},
		{"diff", "--json", "runs/x/1", "runs/x/2"}, {"diff", "--json", "runs/x/2", "runs/tuned/1"},
		{"cat-tensor", "runs/x/1/model.pt", "big"}, {"log", "--json", "runs/x"},
	} {
		want, got := answers(a, args), answers(b, args)
		for i, line := range want {
			if i == len(got) || got[i] != line {
				t.Errorf("%v: line %d of %d is %.200q, want %.200q", args, i+1, len(want), got[i:min(i+1, len(got))], line)
				break
			}
		}
	}
	for _, name := range []string{"big", "bfloat16", "scalar", "strided"} {
		sameFile(a, b, ".ckptfs/tensors/runs/x/1/model.pt/"+name+".npy")
	}
	for _, step := range []string{"runs/x/1/", "runs/x/2/", "runs/x/3/"} {
		sameFile(a, b, step+"model.safetensors")
		mounttest.RunPython(t, "view.py", b.Path(step, "model.pt"), b.Path(step, "model.safetensors"))
	}
	mounttest.RunPython(t, "check.py", "zoo", "0", model, b.Path("runs/x/1/model.safetensors"))
}

// own are lines of answers in which machines differ: what the store has of a file, its number there, and what
// only a model's bytes tell.
var own = []string{`"state":`, `"stored_bytes":`, `"seq":`, `"parent":`, `"tensors":`, `"owned_tensors":`,
	`"owned_bytes":`, "common owner"}

// answers is what a command prints about paths of a mount, wherever that is and whether the bytes are there.
func answers(m *mounttest.Mount, args []string) []string {
	m.T.Helper()
	args = slices.Clone(args)
	for i, a := range args {
		if i > 0 && (a == "" || strings.HasPrefix(a, "runs")) {
			args[i] = m.Path(a)
		}
	}
	out := strings.ReplaceAll(m.Run(args...), m.Dir, "MOUNT")
	var v any
	if slices.Contains(args, "--json") && json.Unmarshal([]byte(out), &v) == nil {
		without(v, "stored_as", "reproduced")
		b, err := json.MarshalIndent(v, "", "  ")
		m.Must(err)
		out = string(b)
	}
	said := strings.Split(out, "\n")
	return slices.DeleteFunc(said, func(line string) bool {
		return slices.ContainsFunc(own, func(o string) bool {
			return strings.HasPrefix(strings.TrimSpace(line), o)
		})
	})
}

// without takes keys out of JSON: what only the records of a file tell, which a stub does not have.
func without(v any, keys ...string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range keys {
			delete(v, key)
		}
		for _, x := range v {
			without(x, keys...)
		}
	case []any:
		for _, x := range v {
			without(x, keys...)
		}
	}
}

// A model that a program has mapped keeps its tensors while another machine replaces the file, and removes
// it. The name has the others.
func TestMappedWhileReplaced(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	const file = "runs/x/1/model.pt"
	save := func(seed string) {
		t.Helper()
		a.Must(os.MkdirAll(filepath.Dir(a.Path(file)), 0o755))
		mounttest.RunPython(t, "save.py", "zoo", seed, a.Path(file))
		fetched(a, b)
	}
	save("1")
	first := mounttest.StartSession(t, "hold_mapping.py", "zoo", "1", b.Path(file))
	first.Answer()
	save("2")
	second := mounttest.StartSession(t, "hold_mapping.py", "zoo", "2", b.Path(file))
	second.Answer()
	a.Must(os.Remove(a.Path(file)))
	fetched(a, b)
	for seed, s := range map[string]*mounttest.Session{"1": first, "2": second} {
		if said := s.Ask(); said != "same" {
			t.Errorf("mapped %s: %s", seed, said)
		}
	}
	if _, err := os.Stat(b.Path(file)); err == nil {
		t.Error("what was removed is there")
	}
}

// rsync copies a run out of a mount that never had the bytes, and into it. What came in the other machine
// has.
func TestRsync(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	rsync := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("rsync", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("rsync %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for i := range 3 {
		dir := fmt.Sprintf("runs/x/%d", i)
		a.Must(os.MkdirAll(a.Path(dir), 0o755))
		mounttest.RunPython(t, "save.py", "plain", fmt.Sprint(i), a.Path(dir, "model.safetensors"))
		a.Write(dir+"/notes.txt", []byte("notes"))
	}
	fetched(a, b)
	out := t.TempDir()
	rsync("-a", b.Path("runs/x")+"/", out)
	same := func(from, to string) {
		t.Helper()
		if said := rsync("-aicn", "--omit-dir-times", "--delete", from+"/", to); said != "" {
			t.Errorf("from %s to %s is left:\n%s", from, to, said)
		}
	}
	same(a.Path("runs/x"), out)
	same(b.Path("runs/x"), out)
	if err := os.Remove(filepath.Join(out, "0/notes.txt")); err != nil {
		t.Fatal(err)
	}
	mounttest.RunPython(t, "save.py", "plain", "9", filepath.Join(out, "2/model.safetensors"))
	rsync("-ac", "--delete", out+"/", b.Path("runs/x")) // by times it tells no two files of one second apart
	rsync("-a", "--inplace", "--no-whole-file", out+"/", b.Path("runs/y"))
	fetched(b, a)
	same(out, a.Path("runs/x"))
	same(out, a.Path("runs/y"))
	noConflicts(a)
	noConflicts(b)
}
