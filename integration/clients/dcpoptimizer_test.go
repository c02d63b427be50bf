package clients

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// forgotten is what forget --policy --json prints.
type forgotten struct {
	Files []struct {
		File, Weights string
		Kept          int   `json:"tensors_kept"`
		Dropped       int   `json:"tensors_dropped"`
		Size          int64 `json:"size"`
		NewSize       int64 `json:"weights_size"`
	}
	Skipped []struct{ Path, Reason string }
}

// TestForgetDistributed: old steps of torch.distributed's checkpoints lose their optimizer's state by a rule,
// whether it lies in a folder of its own or among the weights, and what remains loads.
func TestForgetDistributed(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	mounttest.RunPython(t, "dcp_optimizer.py", "save", m.Path())
	m.Sync()
	mounttest.RunPython(t, "dcp_optimizer.py", "check", m.Path(), "", "1,2,3,4,5")
	m.Run("policy", "add", "--in", m.Dir, "runs/**", "drop-optimizer", "keep-last=2")

	var out forgotten
	before := m.Names("runs/mixed/1")
	keep := t.TempDir()
	for _, name := range before {
		b, err := os.ReadFile(m.Path("runs/mixed/1", name))
		m.Must(err)
		m.Must(os.Chmod(m.Path("runs/mixed/1", name), 0o644)) // whatever the umask
		m.Must(os.WriteFile(filepath.Join(keep, name), b, 0o600))
	}
	said, code := m.RunFails("forget", "--policy", m.Path("runs/boxed")) // its weights are in an object
	mounttest.WantSaid(t, said, "runs/boxed/1", "runs/boxed/3", "would be lost")
	m.WantNames("runs/boxed/1", ".metadata", "__0_0.distcp")
	m.Must(os.RemoveAll(m.Path("runs/boxed")))
	if code != 7 {
		t.Errorf("exit code %d", code)
	}
	m.JSON(&out, "forget", "--policy", "--dry-run", "--json", m.Dir)
	if len(out.Files) != 9 || len(out.Skipped) != 0 {
		t.Errorf("%+v", out)
	}
	m.WantNames("runs/mixed/1", before...)

	// A step of which a file is missing is not complete, and stays.
	stray := m.Path("runs/mixed/2/__0_0.distcp")
	m.Must(os.Rename(stray, m.Path("aside")))
	m.Run("forget", "--policy", m.Path("runs/mixed"))
	m.WantNames("runs/mixed/2", ".metadata", "__1_0.distcp")
	m.Must(os.Rename(m.Path("aside"), stray))
	otherOwner(t, m)
	m.JSON(&out, "forget", "--policy", "--json", m.Dir)
	// runs/mixed had lost that of two steps, and, if root runs this, runs/app too.
	if n := len(out.Files); n != 7 && n != 5 || len(out.Skipped) != 0 {
		t.Errorf("%+v", out)
	}
	for _, f := range out.Files {
		if pure := f.Weights == ""; pure != (filepath.Base(f.File) == "optimizer_0") || f.NewSize >= f.Size ||
			f.Dropped != 12 || pure != (f.Kept == 0) {
			t.Errorf("%+v", f)
		}
	}
	for _, step := range []string{"1", "2", "3"} {
		m.WantNames("runs/mixed/"+step, "model.weights.safetensors")
		m.WantNames("runs/app/"+step, "model.weights.safetensors")
		m.WantNames("runs/fsdp/"+step, "pytorch_model_fsdp_0")
	}
	mounttest.RunPython(t, "dcp_optimizer.py", "check", m.Path(), "1,2,3", "4,5")
	mounttest.WantSaid(t, m.Run("forget", "--policy", m.Dir), "0 files")
	var log struct {
		Steps []struct{ Step, State string }
	}
	m.JSON(&log, "log", "--json", m.Path("runs/mixed"))
	if len(log.Steps) != 5 || slices.ContainsFunc(log.Steps, func(s struct{ Step, State string }) bool {
		return s.State != "complete"
	}) {
		t.Errorf("%+v", log)
	}
	m.EvictAll()
	m.Remount()
	mounttest.RunPython(t, "dcp_optimizer.py", "check", m.Path(), "1,2,3", "4,5")
	cutForget(t, m, keep)
	m.Run("check", m.Dir)
	foreignComputed(t, m)
}

// foreignComputed: where a mount computes nothing, what somebody wrote where it would is nobody's weights.
func foreignComputed(t *testing.T, m *mounttest.Mount) {
	t.Helper()
	m.Must(m.Stop())
	m.Flags = append(m.Flags, "--no-views")
	m.Must(m.Start())
	m.Sh("cp -a runs/app/5 runs/app/6")
	said, _ := m.RunFails("forget", "--policy", "--dry-run", m.Path("runs/app"))
	mounttest.WantSaid(t, said, "its owner does not find")
	m.Sh("mkdir -p .ckptfs/make/consolidated/runs/app/4")
	m.Sh("cp runs/app/1/model.weights.safetensors .ckptfs/make/consolidated/runs/app/4/model.safetensors")
	said, _ = m.RunFails("forget", "--policy", m.Path("runs/app"))
	mounttest.WantSaid(t, said, "cannot be computed")
	m.Sh("mv .ckptfs/make elsewhere; ln -s ../elsewhere .ckptfs/make")
	m.RunFails("forget", "--policy", m.Path("runs/app"))
	m.WantNames("runs/app/4", ".metadata", "__0_0.distcp")
}

// otherOwner: what root writes for a folder's owner is made of files that the owner may read.
func otherOwner(t *testing.T, m *mounttest.Mount) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const folder = "runs/app/1"
	own := func(uid int, names ...string) {
		for _, name := range names {
			m.Must(os.Chown(m.Path(folder, name), uid, uid))
		}
	}
	names := m.Names(folder)
	stays := func(reason string) {
		t.Helper()
		said, _ := m.RunFails("forget", "--policy", m.Path("runs/app"))
		mounttest.WantSaid(t, said, folder, reason)
		m.WantNames(folder, names...)
	}
	own(mounttest.Nobody, names...)
	own(0, "__0_0.distcp")
	stays("of another owner")
	own(mounttest.Nobody, "__0_0.distcp")
	m.Must(os.Chmod(m.Path(folder), 0o700)) // root's
	stays("its owner does not find")
	m.Must(os.Chmod(m.Path(folder), 0o755))
}

// cutForget: what an interrupted command left of a folder is ended by the next one, which takes for granted
// what the file of weights has, and nothing else. keep has what runs/mixed/1 was.
func cutForget(t *testing.T, m *mounttest.Mount, keep string) {
	t.Helper()
	from := m.Path("runs/mixed/1")
	weights, err := os.ReadFile(filepath.Join(from, "model.weights.safetensors"))
	m.Must(err)
	st, err := os.Stat(filepath.Join(from, "model.weights.safetensors"))
	m.Must(err)
	again := func(step string, names ...string) {
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(keep, name))
			m.Must(err)
			m.Write(step+"/"+name, b)
			m.Must(os.Chtimes(m.Path(step, name), st.ModTime(), st.ModTime()))
		}
	}
	again("runs/mixed/1", "__1_0.distcp", ".metadata")
	m.Run("forget", "--policy", m.Path("runs/mixed"))
	m.WantNames("runs/mixed/1", "model.weights.safetensors")
	m.Want("runs/mixed/1/model.weights.safetensors", weights)

	// Nor is one that is saved to again, of whose files some are about to arrive.
	again("runs/mixed/1", "__1_0.distcp", ".metadata")
	m.Must(os.Chtimes(m.Path("runs/mixed/1/.metadata"), time.Time{}, time.Now().Add(-time.Hour)))
	m.Run("forget", "--policy", m.Path("runs/mixed"))
	m.WantNames("runs/mixed/1", ".metadata", "__1_0.distcp", "model.weights.safetensors")
	mounttest.WantSaid(t, m.Run("log", m.Path("runs/mixed")), "arriving")

	// Weights that everybody may read are not made of files that not everybody may.
	m.Must(os.Rename(m.Path("runs/mixed/1/model.weights.safetensors"), m.Path("aside")))
	again("runs/mixed/1", "__0_0.distcp", "__1_0.distcp", ".metadata")
	m.Must(os.Chmod(m.Path("runs/mixed/1/__1_0.distcp"), 0o600))
	said, _ := m.RunFails("forget", "--policy", "--dry-run", m.Path("runs/mixed"))
	mounttest.WantSaid(t, said, "__1_0.distcp", "fewer users may read it")
	m.Must(os.Chmod(m.Path("runs/mixed/1/__1_0.distcp"), 0o644))
	m.Must(os.Chown(m.Path("runs/mixed/1/__1_0.distcp"), 65534, -1))
	said, _ = m.RunFails("forget", "--policy", m.Path("runs/mixed"))
	mounttest.WantSaid(t, said, "__1_0.distcp", "another owner")
	m.Must(os.Chown(m.Path("runs/mixed/1/__1_0.distcp"), os.Getuid(), -1))
	m.Must(os.Remove(m.Path("runs/mixed/1/__0_0.distcp")))
	m.Must(os.Rename(m.Path("aside"), m.Path("runs/mixed/1/model.weights.safetensors")))

	// Weights of another kind are none of it.
	again("runs/mixed/1", "__1_0.distcp", ".metadata")
	other, _ := mounttest.SafetensorsOf([]string{"model.0.weight"}, [][]byte{mounttest.Noise(1, 1<<10)})
	m.Write("runs/mixed/1/model.weights.safetensors", other)
	m.Must(os.Chtimes(m.Path("runs/mixed/1/model.weights.safetensors"), st.ModTime(), st.ModTime()))
	said, _ = m.RunFails("forget", "--policy", m.Path("runs/mixed"))
	mounttest.WantSaid(t, said, "runs/mixed/1", "not all files are there")
	m.WantNames("runs/mixed/1", ".metadata", "__1_0.distcp", "model.weights.safetensors")

	// Nor are those of another step.
	again("runs/mixed/1", "__0_0.distcp", "__1_0.distcp", ".metadata")
	b, err := os.ReadFile(m.Path("runs/mixed/2/model.weights.safetensors"))
	m.Must(err)
	m.Write("runs/mixed/1/model.weights.safetensors", b)
	m.Must(os.Chtimes(m.Path("runs/mixed/1/model.weights.safetensors"), st.ModTime(), st.ModTime()))
	said, _ = m.RunFails("forget", "--policy", m.Path("runs/mixed"))
	mounttest.WantSaid(t, said, "another file of the name")
	m.WantNames("runs/mixed/1", ".metadata", "__0_0.distcp", "__1_0.distcp", "model.weights.safetensors")
}
