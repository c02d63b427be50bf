package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// rules is what `policy --json` prints.
type rules struct {
	Problem string `json:"problem"`
	Rules   []struct {
		Pattern       string `json:"pattern"`
		Rule          string `json:"rule"`
		Files         int64  `json:"files"`
		Bytes         int64  `json:"bytes"`
		ResidentBytes int64  `json:"resident_bytes"`
	} `json:"rules"`
}

// Rules hold for what is saved, and for what is there: never packed, always with a local copy.
func TestPolicy(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--hot-size", "0")
	const size = 300 << 10
	m.Run("policy", "add", "--in", m.Dir, "*.gguf", "plain")
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	for i, name := range []string{"x.gguf", "runs/a/1/y.gguf", "runs/a/1/w.bin", "w.bin"} {
		m.Write(name, mounttest.Noise(uint64(i), size))
	}
	m.Sync()
	m.WantState("x.gguf", mounttest.Plain)
	m.WantState("runs/a/1/y.gguf", mounttest.Plain)
	m.WantState("runs/a/1/w.bin", mounttest.Packed)

	// A pinned file comes, stays over a hot size of nothing, and goes by a user's word until the next mount.
	var pinned struct {
		Files   int
		Bytes   int64
		Mounted bool
	}
	m.JSON(&pinned, "pin", "--json", m.Path("runs/a"))
	if pinned.Files != 1 || pinned.Bytes != size || !pinned.Mounted {
		t.Errorf("%+v", pinned)
	}
	m.Write("runs/a/1/v.bin", mounttest.Noise(7, size))
	m.Write("v.bin", mounttest.Noise(8, size))
	m.Sync()
	m.WantState("v.bin", mounttest.Packed)
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.WantState("runs/a/1/v.bin", mounttest.Resident)
	var status struct {
		Files int   `json:"pinned_files"`
		Bytes int64 `json:"pinned_bytes"`
	}
	if m.JSON(&status, "status", "--json", m.Dir); status.Files != 2 || status.Bytes != 2*size {
		t.Errorf("%+v", status)
	}
	mounttest.WantSaid(t, m.Run("status", m.Dir), "pinned", "2 files")
	mounttest.WantSaid(t, m.Run("stats", m.Dir), "pinned")
	var is rules
	m.JSON(&is, "policy", "--json", m.Path("runs"))
	if len(is.Rules) != 2 || is.Rules[0].Files != 2 || is.Rules[0].Bytes != 2*size ||
		is.Rules[1].Pattern != "/runs/a" || is.Rules[1].Files != 3 || is.Rules[1].ResidentBytes != 2*size {
		t.Errorf("%+v", is)
	}
	m.Evict("runs/a/1/w.bin")
	m.Remount()
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.Want("runs/a/1/w.bin", mounttest.Noise(2, size))

	// The rule is of the path.
	m.Must(os.Rename(m.Path("w.bin"), m.Path("runs/a/2.bin")))
	m.WantState("runs/a/2.bin", mounttest.Resident)
	m.Must(os.Rename(m.Path("runs/a/1/v.bin"), m.Path("v.bin")))
	m.WantState("v.bin", mounttest.Packed)
	m.Run("unpin", m.Path("runs/a"))
	m.WantState("runs/a/1/w.bin", mounttest.Packed)
	said, _ := m.RunFails("unpin", m.Path("runs/a"))
	mounttest.WantSaid(t, said, "not pinned")

	// What cannot be read is named, and the rules before it hold.
	file := filepath.Join(m.Store, "policy")
	m.Must(os.WriteFile(file, []byte("ckptfs policy 1\n# mine\n*.gguf packed\n"), 0o600))
	said, _ = m.RunFails("policy", "load", "--in", m.Dir)
	mounttest.WantSaid(t, said, "line 3", "packed")
	said, _ = m.RunFails("pin", m.Path("x.gguf"))
	mounttest.WantSaid(t, said, "line 3")
	mounttest.WantSaid(t, m.Run("status", m.Dir), "policy", "line 3")
	m.Write("z.gguf", mounttest.Noise(9, size))
	m.Sync()
	m.WantState("z.gguf", mounttest.Plain)
	m.Must(os.WriteFile(file, []byte("ckptfs policy 1\n# mine\n"), 0o600))
	m.Run("policy", "load", "--in", m.Dir)
	m.Write("z.gguf", mounttest.Noise(9, size))
	m.Sync()
	m.WantState("z.gguf", mounttest.Packed)

	// Unmounted, the file is changed, and the next mount acts by it.
	m.Must(m.Stop())
	said = m.Run("pin", filepath.Join(m.Store, "tree/z.gguf"))
	mounttest.WantSaid(t, said, "the next mount hydrates")
	mounttest.WantSaid(t, m.Run("policy", m.Store), "/z.gguf", "hydrated")
	text, err := os.ReadFile(file)
	m.Must(err)
	if !strings.HasPrefix(string(text), "ckptfs policy 1\n# mine\n/z.gguf") {
		t.Errorf("%q", text)
	}
	m.Must(m.Start())
	m.WantState("z.gguf", mounttest.Resident)
	m.Run("check", m.Dir)
}

// warm has the files in memory that it was given, and makes local copies unless it is told not to.
func TestWarm(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	const size = 4 << 20
	m.Must(os.MkdirAll(m.Path("runs/a/1"), 0o755))
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	m.Write("runs/a/1/model.pt", model) // which has a view
	m.Write("runs/a/1/w.bin", mounttest.Noise(1, size))
	m.EvictAll()
	var out struct {
		Files    int   `json:"files"`
		Bytes    int64 `json:"bytes"`
		Hydrated int   `json:"hydrated_files"`
	}
	m.JSON(&out, "warm", "--json", "--hydrate=false", m.Path("runs"))
	if out.Files != 2 || out.Bytes != size+int64(len(model)) || out.Hydrated != 0 {
		t.Errorf("%+v", out)
	}
	m.EvictAll()
	m.JSON(&out, "warm", "--json", m.Path("runs"))
	if out.Files != 2 || out.Bytes != size+int64(len(model)) || out.Hydrated != 2 {
		t.Errorf("%+v", out)
	}
	m.WantState("runs/a/1/w.bin", mounttest.Resident)
	m.Want("runs/a/1/w.bin", mounttest.Noise(1, size))
	in := m.Path("runs/a/1/w.bin")
	if m.Status().Mode == "passthrough" {
		in = filepath.Join(m.Store, "tree/runs/a/1/w.bin")
	}
	f, err := os.Open(in)
	m.Must(err)
	defer f.Close()
	var cached unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: size}, &cached, 0)
	if err == nil && int64(cached.Cache)*int64(os.Getpagesize()) < size {
		t.Errorf("%d pages of %s are in memory", cached.Cache, in)
	}
	m.Must(m.Stop())
	said, _ := m.RunFails("warm", filepath.Join(m.Store, "tree/runs"))
	mounttest.WantSaid(t, said, "mount")
	m.Must(m.Start())
}
