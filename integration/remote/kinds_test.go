package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// A folder that one mount replaced by a file, and a file that it replaced by a folder, the other one shows so
// after a fetch, though its kernel knew them. What it saved there meanwhile stays.
func TestOtherKinds(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	on := func(m *mounttest.Mount, p string) string { return filepath.Join(m.Dir, "runs/r", p) }
	first, second := random(90_000, 1), random(80_000, 2)
	for _, p := range []string{"1/sub/m.bin", "2", "3/m.bin"} {
		save(t, on(a, p), first)
	}
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	for _, p := range []string{"1/sub/m.bin", "2", "3/m.bin"} {
		same(t, on(b, p), first)
	}
	replace := func(p, by string) {
		t.Helper()
		if err := os.RemoveAll(on(a, p)); err != nil {
			t.Fatal(err)
		}
		save(t, on(a, by), second)
	}
	replace("1", "1")
	replace("2", "2/sub/m.bin")
	replace("3", "3")
	save(t, on(b, "3/own.bin"), first)
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	same(t, on(b, "1"), second)
	same(t, on(b, "2/sub/m.bin"), second)
	same(t, on(b, "3/own.bin"), first)
	b.Run("push", b.Dir)
	a.Run("fetch", a.Dir)
	b.Run("fetch", b.Dir)
	for _, m := range []*mounttest.Mount{a, b} {
		same(t, on(m, "3/own.bin"), first)
		losers := m.Names(".ckptfs/conflicts/runs/r")
		if len(losers) != 1 || !strings.HasPrefix(losers[0], "3@a.") {
			t.Fatalf("below .ckptfs/conflicts: %q", losers)
		}
		same(t, filepath.Join(m.Dir, ".ckptfs/conflicts/runs/r", losers[0]), second)
		if said := m.Run("status", m.Dir); !strings.Contains(said, "1 name with several versions") {
			t.Error(said)
		}
		if said := m.Run("remote", "conflicts", m.Dir); !strings.Contains(said, "runs/r/3\n") ||
			!strings.Contains(said, "a folder") {
			t.Error(said)
		}
	}
}
