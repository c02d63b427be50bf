package commands

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// TestForeignMount: root mounts a user's store only when told; -o foreign tells, and so does --foreign.
func TestForeignMount(t *testing.T) {
	t.Parallel()
	mounttest.NeedRoot(t, "gives a store away")
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Must(m.Stop())
	for _, name := range []string{"", "segments", "index.db"} {
		path := filepath.Join(m.Store, name)
		m.Must(os.Chown(path, alice, alice))
		for _, args := range [][]string{{"mount", m.Store, m.Dir}, {"mount", "-o", "ro", m.Store, m.Dir},
			{"mount", "-f", m.Store, m.Dir}} {
			said, code := m.RunFails(args...)
			if code != exitNoFUSE {
				t.Errorf("%v with %q another's: exit status %d: %s", args, name, code, said)
			}
			mounttest.WantSaid(t, said, path+" belongs to user 54321", "-o foreign")
		}
		m.Must(os.Chown(path, 0, 0))
	}
	m.Must(os.Chown(m.Store, alice, alice))
	for _, flags := range [][]string{{"-o", "foreign"}, {"--foreign"}} {
		n := len(m.Flags)
		m.Flags = append(m.Flags, flags...)
		m.Must(m.Start())
		m.Want("x", mounttest.Noise(1, mib))
		m.Run("stats", m.Store) // by the daemon
		m.Must(m.Stop())
		m.Flags = m.Flags[:n]
	}
	m.Must(os.Chown(m.Store, 0, 0))
	m.Must(m.Start())
	m.Must(os.Chown(m.Dir, alice, alice)) // a mount that a user is given to work in
	m.Must(m.Stop())
	m.Must(m.Start())
}

// TestSwappedStore: a daemon works in the folder that it opened, though the names in it, and its own, lead
// elsewhere by then.
func TestSwappedStore(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	m.Write("x", mounttest.Noise(1, mib))
	m.Sync()
	out := t.TempDir()
	for _, name := range []string{"segments", "lost+found", "catalogue", "reserve", "writing"} {
		path := filepath.Join(m.Store, name)
		m.Must(os.RemoveAll(filepath.Join(m.Store, name+".away")))
		if _, err := os.Lstat(path); err == nil {
			m.Must(os.Rename(path, path+".away"))
		}
		to := filepath.Join(out, name)
		if slices.Contains([]string{"segments", "lost+found"}, name) {
			to = out
		}
		m.Must(os.Symlink(to, path))
	}
	m.Write("y", mounttest.Noise(2, 3*mib))
	_, _ = m.CLI("sync", m.Dir) // it cannot be packed, and says so
	_, _ = m.CLI("prune", "--grace", "0", m.Dir)
	_, _ = m.CLI("check", m.Dir)
	m.Want("y", mounttest.Noise(2, 3*mib))
	if _, err := m.CLI("umount", "--no-wait", m.Dir); err != nil {
		t.Log(err)
	}
	m.Must(daemon.Until("the daemon to end", func() bool { return !m.Mounted() }))
	if names, err := os.ReadDir(out); err != nil || len(names) != 0 {
		t.Errorf("made elsewhere: %v, %v", names, err)
	}
	for _, name := range []string{"segments", "lost+found", "catalogue", "reserve", "writing"} {
		path := filepath.Join(m.Store, name)
		m.Must(os.RemoveAll(path))
		if _, err := os.Lstat(path + ".away"); err == nil {
			m.Must(os.Rename(path+".away", path))
		}
	}
	m.Must(m.Start())
	m.Want("x", mounttest.Noise(1, mib))
	m.Want("y", mounttest.Noise(2, 3*mib))
}

// TestDryRunMounted: what a daemon is asked to say only, it does not do: the store stays as it is, to the
// last time stamp.
func TestDryRunMounted(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t, "--no-ids")
	model, err := os.ReadFile("../../formats/testdata/torch/flat.pt")
	m.Must(err)
	for _, step := range []string{"1", "2", "3"} {
		m.Write("runs/a/"+step+"/model.pt", append(model, step...))
	}
	m.Write("gone", mounttest.Noise(1, 2*mib))
	m.Sync()
	m.Must(os.Remove(m.Path("gone")))
	old := time.Now().Add(-time.Hour)
	for _, step := range []string{"1", "2", "3"} {
		m.Must(os.Chtimes(m.Path("runs/a/"+step+"/model.pt"), old, old))
	}
	m.Sync()
	// The daemon's own work ends before: checksums, the ledger, what is written back.
	before := map[string]string{}
	same := 0
	m.Must(daemon.Until("the daemon to rest", func() bool {
		now := snapshot(t, m.Store)
		if differing(before, now) == "" {
			same++
		} else {
			same = 0
		}
		before = now
		time.Sleep(500 * time.Millisecond)
		return same >= 4
	}))
	for _, args := range [][]string{
		{"prune", "--dry-run", m.Dir}, {"prune", "--dry-run", "--grace", "0", m.Dir},
		{"prune", "--dry-run", "--grace", "0", "--max-unused", "0", m.Store}, {"compact", "--dry-run", m.Dir},
		{"forget", "--dry-run", "--keep-last", "1", m.Path("runs/a")},
	} {
		said := m.Run(args...)
		if path := differing(before, snapshot(t, m.Store)); path != "" {
			t.Errorf("%v changed %s\nit was %s\nit is  %s\n%s", args, path, before[path], snapshot(t, m.Store)[path], said)
			before = snapshot(t, m.Store)
		}
	}
	said, code := m.RunFails("forget", "--drop-optimizer", "--dry-run", m.Path("runs/a/1/model.pt"))
	if code != exitFailure {
		t.Errorf("%d: %s", code, said)
	}
	if path := differing(before, snapshot(t, m.Store)); path != "" {
		t.Errorf("forget --drop-optimizer changed %s", path)
	}
}

// differing is a path of which two snapshots say different things; "" when there is none.
func differing(a, b map[string]string) string {
	for _, path := range unite(a, b) {
		if a[path] != b[path] {
			return path
		}
	}
	return ""
}
