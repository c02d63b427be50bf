package commands

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

type lineageModel struct {
	Path  string
	Chain []struct {
		Path    string
		How     string
		Retired bool
		Owned   int64 `json:"owned_tensors"`
	}
	Merged []struct{ Path string }
}

// chain is what `ckptfs lineage` says of the one model at a path: ancestors, how each was learnt, how many
// tensors they own; "†" behind those retired.
func chainOf(m *mounttest.Mount, p string) string {
	m.T.Helper()
	var l struct{ Models []lineageModel }
	m.JSON(&l, "lineage", "--json", p)
	if len(l.Models) != 1 {
		m.T.Fatalf("%s: %+v", p, l)
	}
	var out []string
	for _, a := range l.Models[0].Chain {
		s := fmt.Sprintf("%s %s %d", strings.TrimPrefix(filepath.Dir(a.Path), "runs/"), a.How, a.Owned)
		if a.Retired {
			s += "†"
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// TestLineage: parents are found, declared and inferred; what is retired stays in the chain, and what
// descendants share with it readable; all of it outlives the daemon's death, the loss of the index, and
// sweeps.
func TestLineage(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	file := func(contents string) []byte {
		var names []string
		var data [][]byte
		for i, c := range contents {
			names, data = append(names, string(rune('a'+i))),
				append(data, mounttest.Noise(uint64(c), 300<<10))
		}
		b, _ := mounttest.SafetensorsOf(names, data)
		return b
	}
	save := func(step, contents string) {
		t.Helper()
		m.Must(os.MkdirAll(m.Path("runs", step), 0o755))
		m.Write("runs/"+step+"/m.safetensors", file(contents))
	}
	m.Must(os.MkdirAll(m.Path("runs"), 0o755))
	save("base/1", "ABCD")
	m.Sync()
	for i, c := range []string{"ABCE", "ABFE", "ABFG"} {
		save(fmt.Sprintf("a/%d", i+1), c)
		m.Sync()
	}
	m.Must(os.MkdirAll(m.Path("runs/b/1"), 0o755))
	m.Write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/2", "merged_from": ["runs/a/3"]}`))
	save("b/1", "AQFE")
	m.Sync()
	want := map[string]string{
		"a/3": "a/3 previous step 1; a/2 previous step 1; a/1 inferred 0; base/1 none 2",
		"b/1": "b/1 declared 1; a/2 previous step 1; a/1 inferred 1; base/1 none 1",
	}
	check := func(when, root string) {
		t.Helper()
		for step, w := range want {
			if got := chainOf(m, filepath.Join(root, step)); got != w {
				t.Errorf("%s: %s: %s\nwant %s", when, step, got, w)
			}
		}
		var c struct {
			Ancestor *struct{ Path string }
		}
		m.JSON(&c, "ancestor", "--json", filepath.Join(root, "a/3"), filepath.Join(root, "b/1"))
		if c.Ancestor == nil || c.Ancestor.Path != "runs/a/2/m.safetensors" {
			t.Errorf("%s: %+v", when, c)
		}
		if said := m.Run("owner", filepath.Join(root, "b/1/m.safetensors")+":c"); !strings.HasPrefix(said, "runs/a/2/m.safetensors") {
			t.Errorf("%s: owner said %q", when, said)
		}
		if said := m.Run("lineage", "--dot", filepath.Join(root, "b/1")); !strings.Contains(said,
			"merged from") || !strings.HasPrefix(said, "digraph") {
			t.Errorf("%s: lineage said %q", when, said)
		}
	}
	names := m.Path("runs")
	check("saved", names)
	m.Kill()
	m.Must(m.Start())
	check("after a crash", names)

	// Retired: one with an open handle, one by rm -r.
	m.EvictAll()
	f, err := os.Open(m.Path("runs/a/2/m.safetensors"))
	m.Must(err)
	defer f.Close()
	// written over: what it was is no model of the step that is retired
	m.Must(os.MkdirAll(m.Path("runs/w/1"), 0o755))
	for _, content := range []string{"KLMN", "KLMO"} {
		m.Must(os.WriteFile(m.Path("runs/w/1/m.safetensors"), file(content), 0o644))
		m.Run("sync", m.Dir)
	}
	if said := m.Run("retire", m.Path("runs/w/1")); !strings.Contains(said, "1 model retired") {
		t.Errorf("retire said %q", said)
	}
	for _, word := range []string{"1 model retired", "retired already"} {
		if said := m.Run("retire", m.Path("runs/a/2")); !strings.Contains(said, word) {
			t.Errorf("retire said %q", said)
		}
	}
	got, err := io.ReadAll(f)
	if err != nil || string(got) != string(file("ABFE")) {
		t.Errorf("the open handle reads %d bytes, %v", len(got), err)
	}
	f.Close()
	m.Must(os.RemoveAll(m.Path("runs/a/1")))
	if _, err := os.Stat(m.Path("runs/a/2")); !os.IsNotExist(err) {
		t.Error(err)
	}
	for step, w := range want {
		w = strings.ReplaceAll(w, "; a/2 previous step 1", "; a/2 previous step 1†")
		w = strings.ReplaceAll(w, "a/1 inferred 0", "a/1 inferred 0†")
		want[step] = strings.ReplaceAll(w, "a/1 inferred 1", "a/1 inferred 1†")
	}
	check("retired", names)
	m.EvictAll()
	m.Must(daemon.Until("the kernel to let go of what was removed", func() bool {
		var p pruned
		m.JSON(&p, "prune", "--json", "--grace", "0", m.Dir)
		m.JSON(&p, "prune", "--json", "--grace", "0", "--dry-run", m.Dir)
		return p.DeadRecords == 0
	}))
	check("swept", names)
	m.Want("runs/a/3/m.safetensors", file("ABFG"))
	m.Want("runs/b/1/m.safetensors", file("AQFE"))
	m.Must(m.Stop())
	m.Must(os.Remove(filepath.Join(m.Store, "index.db")))
	check("unmounted, without an index", filepath.Join(m.Store, "tree", "runs"))
	m.Must(m.Start())
	check("mounted again", names)
	if said := m.Run("check", "--read-data", m.Dir); strings.Contains(said, "damaged") &&
		!strings.Contains(said, "no damage") {
		t.Logf("check said %s", said)
	}

	// An attribute declares, too; what is wrong is said, and costs nothing.
	m.Must(unix.Setxattr(m.Path("runs/b/1"), "user.parent", []byte("runs/base/1"), 0))
	if got := chainOf(m, m.Path("runs/b/1")); got != "b/1 declared 3; base/1 none 1" {
		t.Errorf("%s", got)
	}
	m.Must(unix.Setxattr(m.Path("runs/b/1"), "user.parent", []byte("runs/none/1"), 0))
	if said := m.Run("lineage", m.Path("runs/b/1")); !strings.Contains(said, "runs/none/1") {
		t.Errorf("lineage said %q", said)
	}
	for name, value := range map[string]string{"user.parent": "../../../../etc", "user.metric.acc": "good"} {
		if err := unix.Setxattr(m.Path("runs/b/1"), name, []byte(value), 0); err != unix.EINVAL {
			t.Errorf("%s=%s: %v", name, value, err)
		}
		if said := m.Run("status", m.Dir); !strings.Contains(said, "refused: runs/b/1 "+name+": ") {
			t.Errorf("status said %s", said)
		}
	}
	for _, bad := range [][]string{{"lineage", m.Path("runs") + "/none"},
		{"owner", m.Path("runs/b/1/m.safetensors") + ":none"}, {"retire", m.Path("runs")}, {"retire", m.Path("runs/a")}} {
		if said, code := m.RunFails(bad...); code == 0 {
			t.Errorf("%v: %s", bad, said)
		}
	}
}

// TestMatch: a new architecture finds the stored model with most in common, by its sidecar, mounted and not;
// bad sidecars are refused in the status.
func TestMatch(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	graph := func(layers string) []byte {
		var nodes []string
		for i, l := range layers {
			in := ""
			if i > 0 {
				in = fmt.Sprintf(`,"in":["n%d"]`, i-1)
			}
			nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","op":"%c"%s,"params":["%c"]}`, i, l, in, 'a'+i))
		}
		return []byte(`{"v":1,"nodes":[` + strings.Join(nodes, ",") + `]}`)
	}
	for step, layers := range map[string]string{"a/1": "xyz", "a/2": "xyw", "b/1": "qqq"} {
		m.Must(os.MkdirAll(m.Path("runs", step), 0o755))
		b, _ := mounttest.SafetensorsOf([]string{"a", "b", "c"}, [][]byte{mounttest.Noise(1, mib),
			mounttest.Noise(2, mib), mounttest.Noise(uint64(step[0])+uint64(step[2]), mib)})
		m.Write("runs/"+step+"/m.safetensors", b)
		m.Write("runs/"+step+"/arch.json", graph(layers))
	}
	m.Sync()
	query := filepath.Join(t.TempDir(), "new.json")
	m.Must(os.WriteFile(query, graph("xywk"), 0o644))
	check := func(when, in string) {
		t.Helper()
		var a struct {
			Vertices int
			Match    *struct {
				Path    string
				Length  int
				Exact   bool
				Tensors []struct{ New, Stored string }
			}
		}
		m.JSON(&a, "match", "--json", query, "--in", in)
		if a.Match == nil || a.Match.Path != "runs/a/2/m.safetensors" || a.Match.Length != 3 ||
			!a.Match.Exact || a.Vertices != 4 || len(a.Match.Tensors) != 3 {
			t.Errorf("%s: %+v", when, a)
		}
		if said := m.Run("match", query, "--in", in, "--full"); !strings.Contains(said, "3 of 4") {
			t.Errorf("%s: match said %s", when, said)
		}
	}
	check("mounted", m.Dir)
	m.EvictAll()
	m.Must(m.Stop())
	check("unmounted", m.Store)
	m.Must(m.Start())
	check("mounted again", m.Path("runs"))
	if said := m.Run("match", "--like", m.Path("runs/a/2/m.safetensors")); !strings.Contains(said, "runs/a/1/m.safetensors") {
		t.Errorf("match said %s", said)
	}
	// By files alone.
	name := m.Path(".ckptfs/query/new")
	for range 2 {
		m.Must(os.WriteFile(name, graph("xywk"), 0o644))
		answer, err := os.ReadFile(name)
		m.Must(err)
		if !strings.Contains(string(answer), `"path": "runs/a/2/m.safetensors"`) || !strings.Contains(string(answer), `"length": 3`) {
			t.Errorf("%s", answer)
		}
	}
	m.Sh("cp " + query + " " + m.Path(".ckptfs/query/copied") + " && grep -q runs/a/2 " + m.Path(".ckptfs/query/copied"))
	if err := os.WriteFile(m.Path(".ckptfs/query/bad"), []byte(`{"v":2}`), 0o644); err == nil ||
		!strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("no graph: %v", err)
	}
	m.Must(os.Remove(m.Path(".ckptfs/query/bad")))
	// What is like a stored model, by files alone; each open finds it again.
	if got := m.Sh("ls " + m.Path(".ckptfs/lcp") + " && ls " +
		m.Path(".ckptfs/lcp/a")); strings.Join(strings.Fields(got), " ") != "a b 1 2" {
		t.Errorf("listed %q", got)
	}
	like := func(step string) string { return m.Sh("cat " + m.Path(".ckptfs/lcp/"+step)) }
	if got := like("a/2"); !strings.Contains(got, `"path": "runs/a/1/m.safetensors"`) {
		t.Errorf("like a/2 is %s", got)
	}
	m.Write("runs/b/1/arch.json", graph("xyw"))
	m.Sync()
	if got := like("a/2"); !strings.Contains(got, `"path": "runs/b/1/m.safetensors"`) {
		t.Errorf("like a/2 is %s", got)
	}
	if _, err := os.ReadFile(m.Path(".ckptfs/lcp/a/9")); !os.IsNotExist(err) {
		t.Errorf("no step: %v", err)
	}
	m.Must(os.WriteFile(query, []byte(`{"v":1,"nodes":[{"id":"x"`), 0o644))
	if said, code := m.RunFails("match", query, "--in", m.Dir); code == 0 {
		t.Errorf("match said %s", said)
	}
	m.Write("runs/a/2/arch.json", []byte(`{"v":1,"nodes":[{"id":"x","op":"x","in":["x"]}]}`))
	m.Run("lineage", m.Path("runs/a/2"))
	if said := m.Run("status", m.Dir); !strings.Contains(said, "refused: runs/a/2: arch.json") {
		t.Errorf("status said %s", said)
	}
}

// TestTransferByFiles: who has files only can do a whole transfer, by the answer and what is pinned by it.
func TestTransferByFiles(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		if out := mounttest.RunPython(t, "transfer.py", m.Dir, m.Bin); !strings.Contains(out, "ok") {
			t.Errorf("it said %s", out)
		}
	})
}

// TestKinship: what torch and transformers save is whose child it is, and nobody's by chance.
func TestKinship(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	pkg, err := filepath.Abs("../../scripts/python")
	m.Must(err)
	m.Must(os.MkdirAll(m.Path("runs"), 0o755))
	if out := mounttest.RunPython(t, "parents.py", pkg, m.Dir, m.Bin); !strings.Contains(out, "ok") {
		t.Errorf("it said %s", out)
	}
}

// TestPythonPackage uses scripts/python with real torch.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		pkg, err := filepath.Abs("../../scripts/python")
		m.Must(err)
		m.Must(os.MkdirAll(m.Path("runs"), 0o755))
		out := mounttest.RunPython(t, "python_package.py", pkg, m.Dir, m.Bin)
		if !strings.Contains(out, "ok") {
			t.Errorf("it said %s", out)
		}
		if got := chainOf(m, m.Path("runs/net/3")); !strings.HasPrefix(got, "net/3 declared ") ||
			!strings.Contains(got, "; net/1 ") {
			t.Errorf("%s", got)
		}
	})
}
