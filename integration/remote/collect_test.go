package remote

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/integration/daemon"
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

// removeHead removes the head of a, has a check find that, and puts it back.
func removeHead(t *testing.T, m *mounttest.Mount, b bucket.Bucket) {
	t.Helper()
	for info, err := range b.List(t.Context(), record.Heads+"a.", "") {
		if err != nil {
			t.Fatal(err)
		}
		head, _, err := bucket.Read(t.Context(), b, info.Key, 1<<20, "")
		if err == nil {
			err = b.Delete(t.Context(), []string{info.Key})
		}
		if err != nil {
			t.Fatal(err)
		}
		said, err := m.CLI("check", "--remote", m.Dir)
		var exit *daemon.ExitError
		if !errors.As(err, &exit) || exit.Code != 6 || !strings.Contains(said, "\n"+info.Key+": head of") ||
			strings.Count(said, "somebody removed it") != 1 ||
			!strings.Contains(said, "repair --remote") {
			t.Errorf("%v: %s", err, said)
		}
		if _, err := b.Put(t.Context(), info.Key, bucket.Bytes(head), bucket.Cond{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A sound remote is sound; of one without an object the files that need it are named.
func TestCheckRemote(t *testing.T) {
	e := mounttest.StartEngine(t)
	a := joined(t, e, "team", "a")
	save(t, filepath.Join(a.Dir, "runs/x/1/model.bin"), random(3<<20, 1))
	save(t, filepath.Join(a.Dir, "runs/x/1/small.json"), []byte("{}"))
	a.Run("push", a.Dir)
	for _, args := range [][]string{{"check", "--remote"}, {"check", "--remote", "--read-data"}} {
		if said := a.Run(append(args, a.Dir)...); !strings.Contains(said, "no damage found") {
			t.Error(said)
		}
	}
	var stats struct {
		Data struct {
			Bytes  int64
			Needed int64 `json:"needed_bytes"`
		} `json:"data_objects"`
	}
	a.JSON(&stats, "stats", "--remote", a.Dir, "--json")
	if d := stats.Data; d.Needed < 2<<20 || d.Needed > d.Bytes {
		t.Errorf("%+v", d)
	}
	var writers []struct {
		Writer  string
		Commits int64
	}
	a.JSON(&writers, "remote", "writers", a.Dir, "--json")
	if len(writers) != 1 || writers[0].Commits == 0 || !strings.HasPrefix(writers[0].Writer, "a.") {
		t.Errorf("%+v", writers)
	}
	b := open(t, e, "team/")
	joined(t, e, "team", "b")
	removeHead(t, a, b)
	for info, err := range b.List(t.Context(), "d/", "") {
		if err == nil {
			err = b.Delete(t.Context(), []string{info.Key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said, err := a.CLI("check", "--remote", a.Dir)
	var exit *daemon.ExitError
	if !errors.As(err, &exit) || exit.Code != 6 || !strings.Contains(said, "runs/x/1/model.bin") ||
		strings.Contains(said, "small.json") ||
		!strings.Contains(said, "it is not there") {
		t.Errorf("%v: %s", err, said)
	}
}
