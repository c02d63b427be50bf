package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/daemon"

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

// chain is what `ckptfs lineage` says of the one model at a path: ancestors, how each was learnt, how many tensors they own; "†" behind those retired.
func (m *mount) chain(p string) string {
	m.t.Helper()
	var l struct{ Models []lineageModel }
	m.json(&l, "lineage", "--json", p)
	if len(l.Models) != 1 {
		m.t.Fatalf("%s: %+v", p, l)
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

// TestLineage: parents are found, declared and inferred; what is retired stays in the chain, and what descendants share with it readable; all of it
// outlives the daemon's death, the loss of the index, and sweeps.
func TestLineage(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	file := func(contents string) []byte {
		var names []string
		var data [][]byte
		for i, c := range contents {
			names, data = append(names, string(rune('a'+i))), append(data, noise(uint64(c), 300<<10))
		}
		b, _ := safetensorsOf(names, data)
		return b
	}
	save := func(step, contents string) {
		t.Helper()
		m.must(os.MkdirAll(m.path("runs", step), 0o755))
		m.write("runs/"+step+"/m.safetensors", file(contents))
	}
	m.must(os.MkdirAll(m.path("runs"), 0o755))
	save("base/1", "ABCD")
	m.sync()
	for i, c := range []string{"ABCE", "ABFE", "ABFG"} {
		save(fmt.Sprintf("a/%d", i+1), c)
		m.sync()
	}
	m.must(os.MkdirAll(m.path("runs/b/1"), 0o755))
	m.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/2", "merged_from": ["runs/a/3"]}`))
	save("b/1", "AQFE")
	m.sync()
	want := map[string]string{
		"a/3": "a/3 previous step 1; a/2 previous step 1; a/1 inferred 0; base/1 none 2",
		"b/1": "b/1 declared 1; a/2 previous step 1; a/1 inferred 1; base/1 none 1",
	}
	check := func(when, root string) {
		t.Helper()
		for step, w := range want {
			if got := m.chain(filepath.Join(root, step)); got != w {
				t.Errorf("%s: %s: %s\nwant %s", when, step, got, w)
			}
		}
		var c struct {
			Ancestor *struct{ Path string }
		}
		m.json(&c, "ancestor", "--json", filepath.Join(root, "a/3"), filepath.Join(root, "b/1"))
		if c.Ancestor == nil || c.Ancestor.Path != "runs/a/2/m.safetensors" {
			t.Errorf("%s: %+v", when, c)
		}
		if said := m.cli("owner", filepath.Join(root, "b/1/m.safetensors")+":c"); !strings.HasPrefix(said, "runs/a/2/m.safetensors") {
			t.Errorf("%s: owner said %q", when, said)
		}
		if said := m.cli("lineage", "--dot", filepath.Join(root, "b/1")); !strings.Contains(said, "merged from") || !strings.HasPrefix(said, "digraph") {
			t.Errorf("%s: lineage said %q", when, said)
		}
	}
	names := m.path("runs")
	check("saved", names)
	m.kill9()
	m.must(m.Start())
	check("after a crash", names)

	// Retired: one with an open handle, one by rm -r.
	m.evictAll()
	f, err := os.Open(m.path("runs/a/2/m.safetensors"))
	m.must(err)
	defer f.Close()
	m.must(os.MkdirAll(m.path("runs/w/1"), 0o755)) // written over: what it was is no model of the step that is retired
	for _, content := range []string{"KLMN", "KLMO"} {
		m.must(os.WriteFile(m.path("runs/w/1/m.safetensors"), file(content), 0o644))
		m.cli("sync", m.Dir)
	}
	if said := m.cli("retire", m.path("runs/w/1")); !strings.Contains(said, "1 model retired") {
		t.Errorf("retire said %q", said)
	}
	for _, word := range []string{"1 model retired", "retired already"} {
		if said := m.cli("retire", m.path("runs/a/2")); !strings.Contains(said, word) {
			t.Errorf("retire said %q", said)
		}
	}
	got, err := io.ReadAll(f)
	if err != nil || string(got) != string(file("ABFE")) {
		t.Errorf("the open handle reads %d bytes, %v", len(got), err)
	}
	f.Close()
	m.must(os.RemoveAll(m.path("runs/a/1")))
	if _, err := os.Stat(m.path("runs/a/2")); !os.IsNotExist(err) {
		t.Error(err)
	}
	for step, w := range want {
		w = strings.ReplaceAll(w, "; a/2 previous step 1", "; a/2 previous step 1†")
		w = strings.ReplaceAll(w, "a/1 inferred 0", "a/1 inferred 0†")
		want[step] = strings.ReplaceAll(w, "a/1 inferred 1", "a/1 inferred 1†")
	}
	check("retired", names)
	m.evictAll()
	m.must(daemon.Until("the kernel to let go of what was removed", func() bool {
		var p pruned
		m.json(&p, "prune", "--json", "--grace", "0", m.Dir)
		m.json(&p, "prune", "--json", "--grace", "0", "--dry-run", m.Dir)
		return p.DeadRecords == 0
	}))
	check("swept", names)
	m.want("runs/a/3/m.safetensors", file("ABFG"))
	m.want("runs/b/1/m.safetensors", file("AQFE"))
	m.must(m.Stop())
	m.must(os.Remove(filepath.Join(m.Store, "index.db")))
	check("unmounted, without an index", filepath.Join(m.Store, "tree", "runs"))
	m.must(m.Start())
	check("mounted again", names)
	if said := m.cli("check", "--read-data", m.Dir); strings.Contains(said, "damaged") && !strings.Contains(said, "no damage") {
		t.Logf("check said %s", said)
	}

	// An attribute declares, too; what is wrong is said, and costs nothing.
	m.must(unix.Setxattr(m.path("runs/b/1"), "user.parent", []byte("runs/base/1"), 0))
	if got := m.chain(m.path("runs/b/1")); got != "b/1 declared 3; base/1 none 1" {
		t.Errorf("%s", got)
	}
	m.must(unix.Setxattr(m.path("runs/b/1"), "user.parent", []byte("runs/none/1"), 0))
	if said := m.cli("lineage", m.path("runs/b/1")); !strings.Contains(said, "runs/none/1") {
		t.Errorf("lineage said %q", said)
	}
	for name, value := range map[string]string{"user.parent": "../../../../etc", "user.metric.acc": "good"} {
		if err := unix.Setxattr(m.path("runs/b/1"), name, []byte(value), 0); err != unix.EINVAL {
			t.Errorf("%s=%s: %v", name, value, err)
		}
		if said := m.cli("status", m.Dir); !strings.Contains(said, "refused: runs/b/1 "+name+": ") {
			t.Errorf("status said %s", said)
		}
	}
	for _, bad := range [][]string{{"lineage", m.path("runs") + "/none"}, {"owner", m.path("runs/b/1/m.safetensors") + ":none"}, {"retire", m.path("runs")}, {"retire", m.path("runs/a")}} {
		if said, code := m.cliFails(bad...); code == 0 {
			t.Errorf("%v: %s", bad, said)
		}
	}
}

// TestMatch: a new architecture finds the stored model with most in common, by its sidecar, mounted and not; bad sidecars are
// refused in the status.
func TestMatch(t *testing.T) {
	t.Parallel()
	m := newMount(t)
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
		m.must(os.MkdirAll(m.path("runs", step), 0o755))
		b, _ := safetensorsOf([]string{"a", "b", "c"}, [][]byte{noise(1, mib), noise(2, mib), noise(uint64(step[0])+uint64(step[2]), mib)})
		m.write("runs/"+step+"/m.safetensors", b)
		m.write("runs/"+step+"/arch.json", graph(layers))
	}
	m.sync()
	query := filepath.Join(t.TempDir(), "new.json")
	m.must(os.WriteFile(query, graph("xywk"), 0o644))
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
		m.json(&a, "match", "--json", query, "--in", in)
		if a.Match == nil || a.Match.Path != "runs/a/2/m.safetensors" || a.Match.Length != 3 || !a.Match.Exact || a.Vertices != 4 || len(a.Match.Tensors) != 3 {
			t.Errorf("%s: %+v", when, a)
		}
		if said := m.cli("match", query, "--in", in, "--full"); !strings.Contains(said, "3 of 4") {
			t.Errorf("%s: match said %s", when, said)
		}
	}
	check("mounted", m.Dir)
	m.evictAll()
	m.must(m.Stop())
	check("unmounted", m.Store)
	m.must(m.Start())
	check("mounted again", m.path("runs"))
	if said := m.cli("match", "--like", m.path("runs/a/2/m.safetensors")); !strings.Contains(said, "runs/a/1/m.safetensors") {
		t.Errorf("match said %s", said)
	}
	// By files alone.
	name := m.path(".ckptfs/query/new")
	for range 2 {
		m.must(os.WriteFile(name, graph("xywk"), 0o644))
		answer, err := os.ReadFile(name)
		m.must(err)
		if !strings.Contains(string(answer), `"path": "runs/a/2/m.safetensors"`) || !strings.Contains(string(answer), `"length": 3`) {
			t.Errorf("%s", answer)
		}
	}
	m.sh("cp " + query + " " + m.path(".ckptfs/query/copied") + " && grep -q runs/a/2 " + m.path(".ckptfs/query/copied"))
	if err := os.WriteFile(m.path(".ckptfs/query/bad"), []byte(`{"v":2}`), 0o644); err == nil || !strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("no graph: %v", err)
	}
	m.must(os.Remove(m.path(".ckptfs/query/bad")))
	// What is like a stored model, by files alone; it is found anew by each open.
	if got := m.sh("ls " + m.path(".ckptfs/lcp") + " && ls " + m.path(".ckptfs/lcp/a")); strings.Join(strings.Fields(got), " ") != "a b 1 2" {
		t.Errorf("listed %q", got)
	}
	like := func(step string) string { return m.sh("cat " + m.path(".ckptfs/lcp/"+step)) }
	if got := like("a/2"); !strings.Contains(got, `"path": "runs/a/1/m.safetensors"`) {
		t.Errorf("like a/2 is %s", got)
	}
	m.write("runs/b/1/arch.json", graph("xyw"))
	m.sync()
	if got := like("a/2"); !strings.Contains(got, `"path": "runs/b/1/m.safetensors"`) {
		t.Errorf("like a/2 is %s", got)
	}
	if _, err := os.ReadFile(m.path(".ckptfs/lcp/a/9")); !os.IsNotExist(err) {
		t.Errorf("no step: %v", err)
	}
	m.must(os.WriteFile(query, []byte(`{"v":1,"nodes":[{"id":"x"`), 0o644))
	if said, code := m.cliFails("match", query, "--in", m.Dir); code == 0 {
		t.Errorf("match said %s", said)
	}
	m.write("runs/a/2/arch.json", []byte(`{"v":1,"nodes":[{"id":"x","op":"x","in":["x"]}]}`))
	m.cli("lineage", m.path("runs/a/2"))
	if said := m.cli("status", m.Dir); !strings.Contains(said, "refused: runs/a/2: arch.json") {
		t.Errorf("status said %s", said)
	}
}

// TestTransferByFiles: who has files only can do a whole transfer, by the answer and what is pinned by it.
func TestTransferByFiles(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		if out := runPython(t, "transfer.py", m.Dir, m.Bin); !strings.Contains(out, "ok") {
			t.Errorf("it said %s", out)
		}
	})
}

// TestKinship: what torch and transformers save is whose child it is, and nobody's by chance.
func TestKinship(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	pkg, err := filepath.Abs("../scripts/python")
	m.must(err)
	m.must(os.MkdirAll(m.path("runs"), 0o755))
	if out := runPython(t, "kinship.py", pkg, m.Dir, m.Bin); !strings.Contains(out, "ok") {
		t.Errorf("it said %s", out)
	}
}

// TestPythonPackage uses scripts/python with real torch.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		pkg, err := filepath.Abs("../scripts/python")
		m.must(err)
		m.must(os.MkdirAll(m.path("runs"), 0o755))
		if out := runPython(t, "knowing.py", pkg, m.Dir, m.Bin); !strings.Contains(out, "ok") {
			t.Errorf("it said %s", out)
		}
		if got := m.chain(m.path("runs/net/3")); !strings.HasPrefix(got, "net/3 declared ") || !strings.Contains(got, "; net/1 ") {
			t.Errorf("%s", got)
		}
	})
}
