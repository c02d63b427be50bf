package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/fs/tree"
)

// packedStore makes a store with a packed file and one whose chunks nothing needs any more.
func packedStore(t *testing.T) string {
	t.Helper()
	store := placetest.MakeStore(t)
	for i, name := range []string{"kept", "removed"} {
		data := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6, 7}, 64<<10)
		placetest.MakeFile(t, filepath.Join(store, "tree", name), string(data))
	}
	for range 2 { // the first opening makes what the second one finds
		ckptfs(t, exit.OK, "sync", store)
	}
	if err := os.Remove(filepath.Join(store, "tree", "removed")); err != nil {
		t.Fatal(err)
	}
	return store
}

// notClosed has a store be one that was not closed in order.
func notClosed(t *testing.T, store string) {
	t.Helper()
	lock := filepath.Join(store, "lock")
	p, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	placetest.MakeFile(t, lock, strings.Replace(string(p), `"clean":true`, `"clean":false`, 1))
}

// ckptfs runs a command line and returns what it said.
func ckptfs(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errw bytes.Buffer
	if code := run(t.Context(), args, &out, &errw); code != want {
		t.Errorf("%s: exit status %d, want %d: %s", strings.Join(args, " "), code, want, errw.String())
	}
	return out.String() + errw.String()
}

// snapshot describes everything in a folder, down to the times of change, which attributes move, too.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		var data []byte
		if err == nil && d.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		all[path] = fmt.Sprintf("mode %o, size %d, blocks %d, mtime %v, ctime %v, bytes %x", st.Mode, st.Size, st.Blocks,
			st.Mtim, st.Ctim, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sameAs fails if something in dir is not as it was, but for what is excepted.
func sameAs(t *testing.T, what, dir string, before map[string]string, but ...string) {
	t.Helper()
	after := snapshot(t, dir)
	for _, path := range but {
		delete(before, path)
		delete(after, path)
	}
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s: %s\nwas %s\nis  %s", what, path, was, after[path])
		}
	}
	for path := range after {
		if before[path] == "" {
			t.Errorf("%s: made %s", what, path)
		}
	}
}

// A dry run changes nothing in the store, to the last time stamp, and says what would go; of a store that was
// not closed in order it says that it has to be mounted.
func TestDryRun(t *testing.T) {
	lines := [][]string{{"prune", "--dry-run"}, {"prune", "--dry-run", "--grace", "0"},
		{"prune", "--dry-run", "--grace", "0", "--max-unused", "0"}, {"compact", "--dry-run"}}
	t.Run("closed in order", func(t *testing.T) {
		store := packedStore(t)
		before := snapshot(t, store)
		for _, line := range lines {
			what := strings.Join(line, " ")
			said := ckptfs(t, exit.OK, append(line, store)...)
			if strings.Contains(what, "grace") && !strings.Contains(said, "would remove 3 chunks") {
				t.Errorf("%s: %s", what, said)
			}
			sameAs(t, what, store, before)
		}
	})
	t.Run("not closed in order", func(t *testing.T) {
		store := packedStore(t)
		notClosed(t, store)
		before := snapshot(t, store)
		for _, line := range lines {
			what := strings.Join(line, " ")
			said := ckptfs(t, exit.Recovery, append(line, store)...)
			if !strings.Contains(said, store) || !strings.Contains(said, "mount it once") {
				t.Errorf("%s: %s", what, said)
			}
			sameAs(t, what, store, before)
		}
		said := ckptfs(t, exit.OK, "check", store)
		if !strings.Contains(said, "repairing "+store) {
			t.Errorf("check does not say that it repairs: %s", said)
		}
		before = snapshot(t, store)
		if said := ckptfs(t, exit.OK, "check", store); strings.Contains(said, "repairing") {
			t.Errorf("check of a store in order: %s", said)
		}
		// When it was checked is written down, by a new file in place of an old one.
		sameAs(t, "check", store, before, store, filepath.Join(store, tree.UpkeepFile))
	})
}
