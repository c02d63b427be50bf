package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

// What was removed stays for the grace period, and then goes; what others have under a name stays.
func TestPruneRemote(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	kept, gone := random(3<<20, 1), random(5<<20, 2)
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), gone)
	a.Run("push", a.Dir)
	save(t, filepath.Join(a.Dir, "runs/x/2/model.bin"), kept)
	a.Run("push", a.Dir)
	if err := os.RemoveAll(filepath.Join(a.Dir, "runs/x/1")); err != nil {
		t.Fatal(err)
	}
	a.Run("push", a.Dir)
	var got struct {
		Unneeded     int64 `json:"unneeded_objects"`
		UnneededSize int64 `json:"unneeded_bytes"`
		Due          int64 `json:"due_objects"`
		Deleted      int64 `json:"deleted_objects"`
		Objects      int64 `json:"objects"`
		Next         string
	}
	a.JSON(&got, "prune", "--remote", a.Dir, "--json")
	if got.Unneeded < 2 || got.UnneededSize < 5<<20 || got.Due != 0 || got.Deleted != 0 || got.Next == "" {
		t.Fatalf("with the grace that is usual: %+v", got)
	}
	a.JSON(&got, "prune", "--remote", "--grace", "0", "--dry-run", a.Dir, "--json")
	if got.Due != got.Unneeded || got.Deleted != 0 {
		t.Fatalf("a dry run: %+v", got)
	}
	before := got.Objects
	a.Run("umount", a.Dir)
	if said := a.Run("prune", "--remote", "--grace", "0", a.Store); !strings.Contains(said, "deleted ") {
		t.Error(said)
	}
	b.JSON(&got, "prune", "--remote", "--grace", "0", b.Dir, "--json")
	if got.Unneeded != 0 || got.Objects >= before {
		t.Fatalf("afterwards: %+v, %d objects before", got, before)
	}
	b.Run("pull", filepath.Join(b.Dir, "runs/x"))
	same(t, filepath.Join(b.Dir, "runs/x/2/model.bin"), kept)
	if said, code := b.RunFails("prune", "--remote", "--grace", "x", b.Dir); code != 2 {
		t.Errorf("%d, %s", code, said)
	}
}
