package clients

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

// shared are the clients that run on two machines that share a remote; with CKPTFS_CLIENTS=all so do the
// others, but for those that keep what they need below names that are not shared.
var (
	shared = []string{"torch_save", "tools", "tensorstore_", "dcp", "transformers_", "lightning_",
		"dvc_push"}
	unshared = []string{"git_", "lfs_", "dvc_", "dvc_few", "hf_cache"}
)

// machines are two stores that share a remote, and a program that saves on the one and loads on the other.
type machines struct {
	here, there *mounttest.Mount
	run         string // what the program works in, on both
	s           *mounttest.Session
}

// newMachines starts the program of that name. Views are off: beside a file they appear where it was read,
// and a program that lists what it saved lists them.
func newMachines(t *testing.T, e *mounttest.Engine, name, size string) *machines {
	t.Helper()
	dir := t.TempDir()
	m := &machines{run: "runs/" + name}
	join := func(as, push string) *mounttest.Mount {
		if err := os.Mkdir(filepath.Join(dir, as), 0o755); err != nil {
			t.Fatal(err)
		}
		one := mounttest.Prepare(t, filepath.Join(dir, as), "--no-views", "--push", push)
		one.Must(one.Start())
		one.Join(e, name, as)
		return one
	}
	m.here, m.there = join("a", "auto"), join("b", "manual")
	m.here.Must(os.MkdirAll(m.here.Path(m.run), 0o755))
	plain := filepath.Join(dir, "plain")
	m.here.Must(os.Mkdir(plain, 0o755))
	m.s = mounttest.StartSession(t, "clients/run.py", name, m.here.Path(m.run), plain, size)
	if said := m.s.Answer(); said != "ready" {
		mounttest.Missing(t, "%s", said)
	}
	return m
}

func (m *machines) do(when, command string) {
	m.here.T.Helper()
	if said := m.s.Tell(command); !strings.HasPrefix(said, "ok ") {
		m.here.T.Fatalf("%s, %s: %s", command, when, said)
	}
}

// travel publishes what the program saved, and has the other machine load and compare it.
func (m *machines) travel(when string) {
	m.here.T.Helper()
	m.here.Run("sync", "--remote", m.here.Dir)
	m.there.Run("fetch", m.there.Dir)
	m.do(when, "check "+m.there.Path(m.run))
}

// swap has each machine in the other one's place: the program goes on with the other one's files.
func (m *machines) swap() {
	m.here.T.Helper()
	m.here.Must(m.here.Stop())
	m.there.Must(m.there.Stop())
	m.here.Dir, m.there.Dir = m.there.Dir, m.here.Dir
	m.here, m.there = m.there, m.here
	m.here.Must(m.here.Start())
	m.there.Must(m.there.Start())
}

// stubs counts the files of a machine whose bytes the remote alone has.
func (m *machines) stubs(of *mounttest.Mount) (n int) {
	of.T.Helper()
	of.Must(filepath.WalkDir(of.Path(m.run), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		is := make([]byte, 16)
		k, err := unix.Getxattr(p, "user.ckptfs.remote", is)
		if string(is[:max(k, 0)]) == "remote" {
			n++
		}
		return err
	}))
	return n
}

// TestClientsOverRemote drives programs on two machines that share a remote: what one saves the other loads,
// which never had the bytes, goes on with, and gives back.
func TestClientsOverRemote(t *testing.T) {
	mounttest.NeedFUSE(t)
	e := mounttest.StartEngine(t)
	names := shared
	if os.Getenv("CKPTFS_CLIENTS") == "all" {
		for _, c := range clients {
			if !slices.Contains(names, c.name) && !slices.Contains(unshared, c.name) {
				names = append(names, c.name)
			}
		}
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(name, "_"), func(t *testing.T) {
			t.Parallel()
			m := newMachines(t, e, name, "600000")
			m.do("at first", "save 1")
			m.here.Run("sync", "--remote", m.here.Dir)
			m.there.Run("fetch", m.there.Dir)
			if m.stubs(m.there) == 0 {
				t.Error("the other machine has all bytes: the test sees nothing")
			}
			m.do("on the other machine", "check "+m.there.Path(m.run))
			m.there.Kill()
			m.there.Must(m.there.Start())
			m.do("there, after kill -9", "check "+m.there.Path(m.run))

			m.swap()
			m.do("where it was never written", "change 2")
			m.travel("changed there")
			m.do("changed", "check")
			m.there.Kill()
			m.there.Must(m.there.Start())
			m.swap()
			m.do("saved over", "save 3")
			m.travel("saved over")
			for _, one := range []*mounttest.Mount{m.here, m.there} {
				if said := one.Run("remote", "conflicts", one.Dir); strings.Contains(said, m.run) {
					t.Errorf("conflicts: %s", said)
				}
				if said := one.Run("check", "--read-data", one.Dir); !strings.Contains(said, "no damage") {
					t.Error(said)
				}
			}
		})
	}
}
