package commands

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// TestTensorFiles: each tensor of a file is a .npy file that NumPy opens and maps, whatever state the file is
// in.
func TestTensorFiles(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const dir = "runs/a/7"
		m.Must(os.MkdirAll(m.Path(dir), 0o755))
		var names []string
		for i, kind := range []string{"plain", "nested", "zoo"} {
			names = append(names, dir+"/"+kind+".pt")
			mounttest.RunPython(t, "save.py", kind, "5", m.Path(names[i]))
		}
		mounttest.RunPython(t, "save.py", "plain", "6", m.Path(dir, "other.safetensors"))
		names = append(names, dir+"/other.safetensors")
		mirror := m.Path(".ckptfs/tensors", dir)
		mounttest.RunPython(t, "tensors.py", m.Path(dir), mirror)
		m.Sync()
		m.Evict(names...)
		mounttest.RunPython(t, "tensors.py", m.Path(dir), mirror)

		entries, err := os.ReadDir(m.Dir)
		m.Must(err)
		if len(entries) != 1 {
			t.Errorf("the root lists %v", entries)
		}
		if got := m.Names(".ckptfs"); !slices.Contains(got, "tensors") {
			t.Errorf(".ckptfs lists %q", got)
		}
		out := m.Sh("find .ckptfs/tensors -name '*.npy' | wc -l")
		if strings.TrimSpace(out) == "0" {
			t.Error("find finds nothing")
		}
		m.Sh("cp -r .ckptfs/tensors/" + dir + "/plain.pt copy && chmod -R u+w copy && rm -r copy")
		m.Sh("rm -r runs")
		m.WantNames("")
	})
}

// TestArtifactID: the same tensors have one id whatever library wrote them, in every state of the files, and
// it leads to them.
func TestArtifactID(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	const dir = "models"
	first := mounttest.RunPython(t, "artifact.py", m.Dir, m.Path(dir))
	m.Sync()
	var names []string
	for _, f := range []string{"m.npz", "m.pt", "m.safetensors", "other.pt", "shuffled.pt"} {
		names = append(names, dir+"/"+f)
	}
	m.Evict(names...)
	m.Remount()
	if again := mounttest.RunPython(t, "artifact.py", m.Dir, m.Path(dir)); again != first {
		t.Errorf("the id was %s and is %s", first, again)
	}
	if f := m.Show(dir + "/m.npz"); f.Artifact != strings.TrimSpace(first) {
		t.Errorf("show says %q, want %q", f.Artifact, first)
	}
	m.Sh("mv models/m.pt models/moved.pt && rm models/m.npz models/m.safetensors models/shuffled.pt")
	m.Sh("test -s .ckptfs/artifacts/" + strings.TrimSpace(first) + ".safetensors")
	m.Sh("rm models/moved.pt && ! test -e .ckptfs/artifacts/" + strings.TrimSpace(first) + ".safetensors")
}

// TestShowStats: what show --stats says is what torch says, and cat-tensor writes what torch loads, through
// the daemon and without it.
func TestShowStats(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	dir := t.TempDir()
	mounttest.RunPython(t, "save.py", "zoo", "5", m.Path("m.pt"))
	check := func(file string) {
		t.Helper()
		shown := m.Run("show", "--stats", "--json", file)
		m.Must(os.WriteFile(filepath.Join(dir, "shown"), []byte(shown), 0o644))
		var f struct {
			Tensors []struct {
				Name  string `json:"name"`
				Bytes int64  `json:"bytes"`
			} `json:"tensors"`
		}
		m.Must(json.Unmarshal([]byte(shown), &f))
		name := ""
		for _, x := range f.Tensors {
			if x.Bytes > 0 {
				name = x.Name
			}
		}
		raw, err := exec.Command(mounttest.Bin, "cat-tensor", "--npy", file, name).Output()
		m.Must(err)
		m.Must(os.WriteFile(filepath.Join(dir, "npy"), raw, 0o644))
		mounttest.RunPython(t, "stats.py", filepath.Join(dir, "plain.pt"), filepath.Join(dir, "shown"),
			name, filepath.Join(dir, "npy"))
	}
	m.Sh("cp m.pt " + dir + "/plain.pt")
	check(m.Path("m.pt"))
	m.Evict("m.pt")
	check(m.Path("m.pt"))
	m.Must(m.Stop())
	check(filepath.Join(m.Store, "tree", "m.pt"))
}

// TestHolesOfCopies: cp makes holes of zeros in what it copies of computed files and views. Such a checkpoint
// is packed all the same, and reads as it is; other files with holes stay as they are.
func TestHolesOfCopies(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	file, _ := mounttest.SafetensorsOf([]string{"a", "zeros"},
		[][]byte{mounttest.Noise(1, 512<<10), make([]byte, 2<<20)})
	m.Write("runs/a/1/m.safetensors", file)
	m.Sync()
	made := ".ckptfs/make/cast/bf16/runs/a/1/m.safetensors"
	want, err := os.ReadFile(m.Path(made))
	m.Must(err)
	m.Sh("cp --sparse=always " + made + " copy.safetensors")
	m.Write("sparse.bin", mounttest.Noise(2, 128<<10))
	m.Must(os.Truncate(m.Path("sparse.bin"), 2<<20))
	var st unix.Stat_t
	m.Must(unix.Stat(filepath.Join(m.Store, "tree/copy.safetensors"), &st)) // the mount shows one without holes
	if st.Blocks*512 > 1<<20 {
		t.Skip("this filesystem has no holes")
	}
	m.Sync()
	m.EvictAll()
	m.WantState("copy.safetensors", mounttest.Packed)
	m.WantState("sparse.bin", mounttest.Plain)
	m.Want("copy.safetensors", want)
	m.Hydrate("copy.safetensors")
	m.Want("copy.safetensors", want)
	m.Remount()
	m.Want("copy.safetensors", want)
	m.Run("check", "--read-data", m.Dir)
}
