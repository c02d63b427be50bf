package commands

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// The exit codes that `ckptfs exit-codes` documents, as far as they are met here.
const (
	exitFailure  = 1
	exitUsage    = 2
	exitNotStore = 3
	exitBusy     = 4
	exitNewer    = 5
	exitPartial  = 7
)

// TestCommands: each command says the same through a mounted store's mount, its folder, and its folder
// unmounted.
func TestCommands(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("runs/a/1/notes.txt", []byte("notes"))
	m.Must(os.MkdirAll(m.Path("runs/b/1"), 0o755))
	mounttest.RunPython(t, "save.py", "plain", "1", m.Path("runs/a/1/model.pt"), m.Path("runs/b/1/model.safetensors"))
	m.Sync()

	check := func(where, root, tree string) {
		t.Helper()
		for _, args := range [][]string{{"stats", root}, {"status", root}, {"show", tree + "/runs/a/1/model.pt"}, {"sync", root}, {"version"}} {
			if out := m.Run(args...); strings.TrimSpace(out) == "" {
				t.Errorf("%s: %s says nothing", where, args[0])
			}
			var v map[string]any
			m.JSON(&v, append([]string{args[0], "--json"}, args[1:]...)...)
			if len(v) == 0 {
				t.Errorf("%s: %s --json has nothing in it", where, args[0])
			}
		}
		var s mounttest.Stats
		m.JSON(&s, "stats", "--json", root)
		if s.Files != 3 || s.Tensors == 0 || s.Chunks == 0 || s.LogicalBytes < 16*mib ||
			s.UniqueBytes < 8*mib ||
			s.UniqueBytes > 9*mib || s.StoredBytes == 0 || len(s.Runs) != 2 {
			t.Errorf("%s: stats: %+v", where, s)
		}
		var f mounttest.File
		m.JSON(&f, "show", "--json", tree+"/runs/a/1/model.pt")
		if f.Format != "torch-zip" || len(f.Tensors) != 8 || f.Size < 8*mib {
			t.Fatalf("%s: show: %+v", where, f)
		}
		first := f.Tensors[0]
		if first.Name != "layers.0.weight" || first.DType != "F32" || len(first.Shape) != 1 ||
			first.Bytes != mib ||
			len(first.SharedWith) != 1 || first.SharedWith[0] != "runs/b/1/model.safetensors" {
			t.Errorf("%s: show: %+v", where, first)
		}
		m.JSON(&f, "show", "--json", tree+"/runs/b/1/model.safetensors")
		if f.Format != "safetensors" || len(f.Tensors) != 8 {
			t.Errorf("%s: show: %+v", where, f)
		}
		state := func(want string) {
			t.Helper()
			if m.JSON(&f, "show", "--json", tree+"/runs/a/1/model.pt"); f.State != want {
				t.Errorf("%s: state %q, want %q", where, f.State, want)
			}
		}
		m.Run("evict", tree+"/runs/a/1/model.pt")
		state(mounttest.Packed)
		m.Run("hydrate", tree+"/runs/a/1/model.pt")
		state(mounttest.Resident)
		var v map[string]any
		m.JSON(&v, "evict", "--json", tree+"/runs/a/1/model.pt")
		m.JSON(&v, "hydrate", "--json", tree+"/runs/a/1/model.pt")
	}
	check("mounted, by the mount", m.Dir, m.Dir)
	check("mounted, by the store", m.Store, filepath.Join(m.Store, "tree"))
	if s := m.Status(); s.Queue.Files != 0 || s.UnpackedBytes < 0 || len(s.Failures) != 0 ||
		len(m.PIDs()) != 2 || s.PID != m.DaemonPID() {
		t.Errorf("status: %+v; the daemon is %v", s, m.PIDs())
	}
	m.Must(m.Stop())
	check("unmounted", m.Store, filepath.Join(m.Store, "tree"))
	var s mounttest.Status
	if m.JSON(&s, "status", "--json", m.Store); s.Mode != "unmounted" {
		t.Errorf("status of an unmounted store: mode %q", s.Mode)
	}
	m.Must(m.Start())
	mounttest.RunPython(t, "check.py", "plain", "1", m.Path("runs/a/1/model.pt"), m.Path("runs/b/1/model.safetensors"))
}

// TestSyncUnmounted packs what a daemon that was killed had not come to.
func TestSyncUnmounted(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	data := mounttest.Noise(1, 8*mib)
	m.Write("x", data)
	m.Kill()
	m.Run("umount", m.Dir)
	m.Run("sync", m.Store)
	m.Run("evict", m.Store)
	m.Must(m.Start())
	m.WantState("x", mounttest.Packed)
	m.Want("x", data)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Write("small", []byte("small"))
	m.Sync()
	open, err := os.OpenFile(m.Path("x"), os.O_RDWR, 0)
	m.Must(err)
	defer open.Close()
	nowhere := t.TempDir()
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"mount"}},
		{exitUsage, []string{"mount", "--no-such-flag", m.Store, m.Dir}},
		{exitUsage, []string{"mount", "--hot-size", "much", m.Store, m.Dir}},
		{exitUsage, []string{"frobnicate"}},
		{exitUsage, []string{"stats"}},
		{exitNotStore, []string{"stats", nowhere}},
		{exitNotStore, []string{"sync", filepath.Join(nowhere, "none")}},
		{exitFailure, []string{"show", m.Path("none")}},
		{exitBusy, []string{"mount", m.Store, nowhere}},
		{exitBusy, []string{"umount", m.Dir}},
		{exitPartial, []string{"evict", m.Path("x")}},
		{exitPartial, []string{"evict", m.Path("small")}},
	} {
		said, code := m.RunFails(c.args...)
		if code != c.code {
			t.Errorf("ckptfs %s: exit status %d, want %d: %s", strings.Join(c.args, " "), code, c.code, said)
		}
		if strings.TrimSpace(said) == "" {
			t.Errorf("ckptfs %s: fails without a word", strings.Join(c.args, " "))
		}
	}
	said, _ := m.RunFails("stats", "--json", nowhere)
	var e struct {
		Error    struct{ Message string }
		ExitCode int `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(said), &e); err != nil || e.Error.Message == "" ||
		e.ExitCode != exitNotStore {
		t.Errorf("a failure with --json says %q (%v)", said, err)
	}
	m.Must(open.Close())
	format := filepath.Join(m.Store, "format")
	m.Must(m.Stop())
	b, err := os.ReadFile(format)
	m.Must(err)
	m.Must(os.WriteFile(format, []byte(strings.Replace(string(b), "ckptfs 4\n", "ckptfs 5\n", 1)), 0o600))
	if said, code := m.RunFails("stats", m.Store); code != exitNewer {
		t.Errorf("stats of a newer store: exit status %d, want %d: %s", code, exitNewer, said)
	}
}

// TestForeground: -f stays, logs to standard error, and ends in order on SIGTERM.
func TestForeground(t *testing.T) {
	t.Parallel()
	m := mounttest.Prepare(t, t.TempDir())
	p, err := m.Foreground()
	m.Must(err)
	m.Write("x", mounttest.Noise(1, mib))
	if mode := m.Status().Mode; !strings.Contains(m.LogText(), mode) {
		t.Errorf("the log does not tell the mode, %q: %s", mode, m.LogText())
	}
	m.Must(p.Signal(os.Interrupt))
	st, err := p.Wait()
	m.Must(err)
	if !st.Success() {
		t.Errorf("ended with %v", st)
	}
	if m.Mounted() {
		t.Error("still mounted")
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
	if _, err := os.Stat(filepath.Join(m.Store, "control.sock")); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
