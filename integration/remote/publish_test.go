package remote

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// joined makes a mount of a store that is joined to a remote.
func joined(t *testing.T, e *mounttest.Engine, prefix, writer string) *mounttest.Mount {
	t.Helper()
	m := mounttest.New(t)
	m.Join(e, prefix, writer)
	return m
}

func save(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v", path, len(got), err)
	}
}

// Two mounts share a remote: what one saves the other one pulls, and a third store clones.
func TestShare(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	model, notes := random(5<<20, 1), []byte("lr: 1\n")
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), model)
	save(t, filepath.Join(a.Dir, "runs/x/1/config.yaml"), notes)
	// From here on the kernel knows that it is not there.
	if _, err := os.Stat(filepath.Join(b.Dir, "runs/x")); err == nil {
		t.Fatal("it is there already")
	}
	a.Run("sync", "--remote", a.Dir)
	b.Run("fetch", b.Dir)
	said := b.Run("pull", filepath.Join(b.Dir, "runs/x"))
	if !strings.Contains(said, "pulled 2 files") {
		t.Error(said)
	}
	same(t, filepath.Join(b.Dir, "runs/x/1/model.bin"), model)
	same(t, filepath.Join(b.Dir, "runs/x/1/config.yaml"), notes)

	// What is open keeps its bytes while its name gets others.
	open, err := os.Open(filepath.Join(b.Dir, "runs/x/1/model.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	next := random(5<<20, 2)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), next)
	a.Run("push", filepath.Join(a.Dir, "runs/x"))
	b.Run("pull", filepath.Join(b.Dir, "runs/x"))
	same(t, filepath.Join(b.Dir, "runs/x/1/model.bin"), next)
	got := make([]byte, len(model))
	if _, err := open.ReadAt(got, 0); err != nil || !bytes.Equal(got, model) {
		t.Errorf("the open file has other bytes: %v", err)
	}

	// A store that is not mounted.
	store := filepath.Join(t.TempDir(), "store")
	a.Run("clone", e.URL("team"), store, "--endpoint", e.Endpoint)
	a.Run("pull", filepath.Join(store, "tree/runs/x"))
	if said := a.Run("check", "--read-data", store); !strings.Contains(said, "no damage") {
		t.Error(said)
	}

	// Two that did not see each other's change.
	save(t, filepath.Join(a.Dir, "runs/x/1/config.yaml"), []byte("of a\n"))
	save(t, filepath.Join(b.Dir, "runs/x/1/config.yaml"), []byte("of b\n"))
	a.Run("push", a.Dir)
	b.Run("push", b.Dir)
	b.Run("fetch", b.Dir)
	if said := b.Run("remote", "conflicts", b.Dir); !strings.Contains(said, "runs/x/1/config.yaml") {
		t.Errorf("conflicts: %s", said)
	}
	losers := b.Names(".ckptfs/conflicts/runs/x/1")
	if len(losers) != 1 || !strings.HasPrefix(losers[0], "config.yaml@") {
		t.Fatalf("below .ckptfs/conflicts: %q", losers)
	}
	_, whose, _ := strings.Cut(losers[0], "@")
	same(t, filepath.Join(b.Dir, ".ckptfs/conflicts/runs/x/1", losers[0]), []byte("of "+whose[:1]+"\n"))
	for _, args := range [][]string{{"status", b.Dir}, {"remote", "status", b.Dir}} {
		if said := b.Run(args...); !strings.Contains(said, "1 name with several versions") {
			t.Errorf("%s: %s", args, said)
		}
	}
}

// A mount publishes by itself, while the engine is away it says so, and it goes on once that is back.
func TestShareInTheBackground(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	e.Kill()
	data := random(1<<20, 1)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), data)
	same(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), data) // saving waits for nothing
	said, code := a.RunFails("fetch", a.Dir)
	if code != 11 {
		t.Errorf("fetch without an engine: %d, %s", code, said)
	}
	if said := a.Run("status", a.Dir); !strings.Contains(said, "; offline since ") {
		t.Errorf("status without an engine: %s", said)
	}
	e.Start()
	err := daemon.Until("", func() bool {
		return remoteState(filepath.Join(a.Dir, "runs/x/1/model.bin")) == "pushed"
	})
	if err != nil {
		t.Fatalf("the step was not published: %s", a.Run("status", a.Dir))
	}
	b.Run("pull", b.Dir)
	same(t, filepath.Join(b.Dir, "runs/x/1/model.bin"), data)
}

// A remote that is added to a mounted store is used at once. What is not published the end of the mount says,
// or waits for.
func TestShareOptions(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := mounttest.New(t), joined(t, e, "team", "b")
	save(t, filepath.Join(a.Dir, "runs/x/1/f"), []byte("f"))
	a.Run("remote", "add", e.URL("team"), a.Dir, "--endpoint", e.Endpoint, "--writer", "a")
	a.Run("sync", "--remote", "--newest", a.Dir)
	b.Run("pull", b.Dir)
	same(t, filepath.Join(b.Dir, "runs/x/1/f"), []byte("f"))

	for _, m := range []*mounttest.Mount{a, b} {
		m.Must(m.Stop())
		m.Flags = append(m.Flags, "--push", "manual", "--push-rate", "1MiB", "-o", "pull_rate=1MiB")
		m.Must(m.Start())
		if said := m.Run("status", m.Dir); !strings.Contains(said, "published when a command says so") {
			t.Error(said)
		}
		save(t, filepath.Join(m.Dir, "runs/x/1/f"), []byte("changed on "+m.Dir))
		save(t, filepath.Join(m.Dir, "runs/x/2/f"), []byte("the same"))
	}
	a.Run("push", "--no-conflict", a.Dir)
	said, code := b.RunFails("push", "--no-conflict", b.Dir)
	if code != 14 || !strings.Contains(said, "runs/x/1/f") {
		t.Errorf("%d, %s", code, said)
	}
	if said := b.Run("umount", b.Dir); !strings.Contains(said, "not published") {
		t.Errorf("umount says %s", said)
	}
	b.Must(b.Start())
	said = b.Run("umount", "--remote", b.Dir)
	if strings.Contains(said, "not published") {
		t.Errorf("umount --remote says %s", said)
	}
	a.Run("fetch", a.Dir)
	if said := a.Run("remote", "conflicts", a.Dir); !strings.Contains(said, "runs/x/1/f") {
		t.Errorf("conflicts: %s", said)
	}
	if said, code := a.RunFails("umount", "--remote", "--lazy", a.Dir); code != 2 {
		t.Errorf("%d, %s", code, said)
	}
	e.Kill()
	save(t, filepath.Join(a.Dir, "runs/x/3/f"), []byte("no engine"))
	if said, code := a.RunFails("umount", "--remote", a.Dir); code != 11 {
		t.Errorf("%d, %s", code, said)
	}
	same(t, filepath.Join(a.Dir, "runs/x/3/f"), []byte("no engine"))
}
