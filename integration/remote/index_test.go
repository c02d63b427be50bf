package remote

import (
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/mounttest"
)

// A file that one machine has published is not put again by another, once there is an index. The first one
// may remove it.
func TestIndex(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	model := random(12<<20, 1)
	save(t, filepath.Join(a.Dir, "runs/base/1/model.bin"), model)
	a.Run("push", a.Dir)
	var made struct{ Files, Added, Items, Shards int }
	a.JSON(&made, "remote", "index", a.Dir, "--json")
	if made.Files != 1 || made.Added != 1 || made.Items < 2 || made.Shards != 1 {
		t.Errorf("%+v", made)
	}
	save(t, filepath.Join(b.Dir, "runs/mine/1/model.bin"), model)
	var pushed struct{ Names, Bytes int64 }
	b.JSON(&pushed, "push", b.Dir, "--json")
	if pushed.Names < 2 || pushed.Bytes > 64<<10 {
		t.Errorf("%+v", pushed)
	}
	if err := os.RemoveAll(filepath.Join(a.Dir, "runs/base")); err != nil {
		t.Fatal(err)
	}
	a.Run("push", a.Dir)
	a.Run("prune", "--remote", "--grace", "0", a.Dir)
	a.JSON(&made, "remote", "index", a.Store, "--json")
	if made.Files != 1 || made.Items < 2 { // prune made it
		t.Errorf("afterwards: %+v", made)
	}
	a.Run("pull", filepath.Join(a.Dir, "runs/mine"))
	same(t, filepath.Join(a.Dir, "runs/mine/1/model.bin"), model)
}
