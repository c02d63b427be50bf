package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTensorFiles: each tensor of a file is a .npy file that NumPy opens and maps, whatever state the file is in.
func TestTensorFiles(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, m *mount) {
		const dir = "runs/a/7"
		m.must(os.MkdirAll(m.path(dir), 0o755))
		var names []string
		for i, kind := range []string{"plain", "nested", "zoo"} {
			names = append(names, dir+"/"+kind+".pt")
			runPython(t, "save.py", kind, "5", m.path(names[i]))
		}
		runPython(t, "save.py", "plain", "6", m.path(dir, "other.safetensors"))
		names = append(names, dir+"/other.safetensors")
		mirror := m.path(".ckptfs/tensors", dir)
		runPython(t, "tensors.py", m.path(dir), mirror)
		m.sync()
		m.evict(names...)
		runPython(t, "tensors.py", m.path(dir), mirror)

		entries, err := os.ReadDir(m.Dir)
		m.must(err)
		if len(entries) != 1 {
			t.Errorf("the root lists %v", entries)
		}
		if got := m.names(".ckptfs"); !slices.Contains(got, "tensors") {
			t.Errorf(".ckptfs lists %q", got)
		}
		out := m.sh("find .ckptfs/tensors -name '*.npy' | wc -l")
		if strings.TrimSpace(out) == "0" {
			t.Error("find finds nothing")
		}
		m.sh("cp -r .ckptfs/tensors/" + dir + "/plain.pt copy && chmod -R u+w copy && rm -r copy")
		m.sh("rm -r runs")
		m.wantNames("")
	})
}

// TestArtifactID: the same tensors have one id whatever library wrote them, in every state of the files, and it leads to them.
func TestArtifactID(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	const dir = "models"
	first := runPython(t, "artifact.py", m.Dir, m.path(dir))
	m.sync()
	var names []string
	for _, f := range []string{"m.npz", "m.pt", "m.safetensors", "other.pt", "shuffled.pt"} {
		names = append(names, dir+"/"+f)
	}
	m.evict(names...)
	m.remount()
	if again := runPython(t, "artifact.py", m.Dir, m.path(dir)); again != first {
		t.Errorf("the id was %s and is %s", first, again)
	}
	if f := m.show(dir + "/m.npz"); f.Artifact != strings.TrimSpace(first) {
		t.Errorf("show says %q, want %q", f.Artifact, first)
	}
	m.sh("mv models/m.pt models/moved.pt && rm models/m.npz models/m.safetensors models/shuffled.pt")
	m.sh("test -s .ckptfs/artifacts/" + strings.TrimSpace(first) + ".safetensors")
	m.sh("rm models/moved.pt && ! test -e .ckptfs/artifacts/" + strings.TrimSpace(first) + ".safetensors")
}

// TestShowStats: what show --stats says is what torch says, and cat-tensor writes what torch loads, through the daemon and without it.
func TestShowStats(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	dir := t.TempDir()
	runPython(t, "save.py", "zoo", "5", m.path("m.pt"))
	check := func(file string) {
		t.Helper()
		shown := m.cli("show", "--stats", "--json", file)
		m.must(os.WriteFile(filepath.Join(dir, "shown"), []byte(shown), 0o644))
		var f struct {
			Tensors []struct {
				Name  string `json:"name"`
				Bytes int64  `json:"bytes"`
			} `json:"tensors"`
		}
		m.must(json.Unmarshal([]byte(shown), &f))
		name := ""
		for _, x := range f.Tensors {
			if x.Bytes > 0 {
				name = x.Name
			}
		}
		raw, err := exec.Command(ckptfsBin, "cat-tensor", "--npy", file, name).Output()
		m.must(err)
		m.must(os.WriteFile(filepath.Join(dir, "npy"), raw, 0o644))
		runPython(t, "stats.py", filepath.Join(dir, "plain.pt"), filepath.Join(dir, "shown"), name, filepath.Join(dir, "npy"))
	}
	m.sh("cp m.pt " + dir + "/plain.pt")
	check(m.path("m.pt"))
	m.evict("m.pt")
	check(m.path("m.pt"))
	m.must(m.Stop())
	check(filepath.Join(m.Store, "tree", "m.pt"))
}
