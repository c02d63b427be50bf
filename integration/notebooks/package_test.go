package notebooks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// packageDir is the folder that the Python package lies in.
func packageDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../scripts/python")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sums is a file with the SHA-256 of each file that a mount shows, but of views.
func sums(m *mounttest.Mount) string {
	m.T.Helper()
	var listed struct {
		Entries []struct {
			Path string
			View bool
		}
	}
	m.JSON(&listed, "ls", "-R", "--json", m.Dir)
	views := map[string]bool{}
	for _, e := range listed.Entries {
		views[e.Path] = e.View
	}
	all := map[string]string{}
	m.Must(filepath.WalkDir(m.Dir, func(p string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(m.Dir, p)
		if err != nil || rerr != nil {
			return err
		}
		if st, err := os.Stat(p); err != nil || !st.Mode().IsRegular() || views[rel] {
			if err == nil || d.Type()&fs.ModeSymlink == 0 {
				return err
			}
			all[rel] = "" // it leads nowhere
			return nil
		}
		b, err := os.ReadFile(p)
		sum := sha256.Sum256(b)
		all[rel] = hex.EncodeToString(sum[:])
		return err
	}))
	b, err := json.Marshal(all)
	m.Must(err)
	out := filepath.Join(m.T.TempDir(), "sums.json")
	m.Must(os.WriteFile(out, b, 0o644))
	return out
}

// TestStoreInNotebook: frames, graphs and pages say what the commands say, and ckptfs:// gives the bytes
// that the mount shows; of a mount, of a store beside its daemon, of a store that is not mounted.
func TestStoreInNotebook(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	pkg := packageDir(t)
	mounttest.RunPython(t, "notebook_store.py", pkg, m.Dir)
	m.Sync()
	m.Run("evict", m.Path("runs/a"))
	want := sums(m)
	look := func(how, root string) {
		t.Run(how, func(t *testing.T) {
			out := mounttest.RunPython(t, "notebook.py", pkg, m.Bin, root, "ckptfs://"+root, want)
			if !strings.HasSuffix(out, "ok\n") {
				t.Errorf("it said %s", out)
			}
		})
	}
	look("mount", m.Dir)
	look("beside the daemon", m.Store)
	m.Must(m.Stop())
	look("unmounted", m.Store)
	m.Must(m.Start())
}

// TestTypes: the package holds in mypy's strict sense.
func TestTypes(t *testing.T) {
	t.Parallel()
	python := with(t, "mypy")
	cmd := exec.CommandContext(t.Context(), python, "-m", "mypy", "--cache-dir", t.TempDir(), "-p", "ckptfs")
	cmd.Dir = packageDir(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// with is the interpreter of the tests, if it has a module.
func with(t *testing.T, module string) string {
	t.Helper()
	python, err := mounttest.Interpreter()
	if err == nil {
		err = exec.Command(python, "-c", "import "+module).Run()
	}
	if err != nil {
		mounttest.Missing(t, "no Python with %s: %v (scripts/setup installs it)", module, err)
	}
	return python
}
