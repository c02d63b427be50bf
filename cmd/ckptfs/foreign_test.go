package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/fs/tree"
)

// onStore are command lines of every kind that open a store, or look for one, without a mount.
func onStore(store, mountpoint string) [][]string {
	file := filepath.Join(store, "tree", "kept")
	return [][]string{
		{"stats", store}, {"status", store}, {"sync", store}, {"check", store}, {"prune", store},
		{"prune", "--dry-run", store}, {"compact", store}, {"compact", "--dry-run", store},
		{"repair", "index", store}, {"repair", "segments", store}, {"repair", "tree", store},
		{"show", file}, {"cat-tensor", file, "x"}, {"diff", file, file},
		{"runs", store}, {"log", store},
		{"lineage", file},
		{"ancestor", file, file}, {"match", "--like", file}, {"evict", file}, {"hydrate", file},
		{"pin", file}, {"unpin", file}, {"warm", file}, {"policy", store},
		{"umount", store}, {"forget", "--keep-last", "1", file}, {"forget", "--drop-optimizer", file},
		{"retire", file}, {"mount", store, mountpoint}, {"mount", "--read-only", store, mountpoint},
	}
}

// inTime runs a command line, and fails if it hangs.
func inTime(t *testing.T, args []string) (code int, said string) {
	t.Helper()
	var out, errw bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- run(t.Context(), args, &out, &errw) }()
	select {
	case code = <-done:
		return code, out.String() + errw.String()
	case <-time.After(15 * time.Second):
		t.Fatalf("%s hangs", strings.Join(args, " "))
	}
	return 0, ""
}

// A FIFO in the place of one of a store's own names, or of what looks like one above it, stops no command.
func TestFIFOs(t *testing.T) {
	for _, name := range []string{"format", "lock", "tree", "segments", "index.db", "catalogue", "lost+found",
		"log", "writing", "reserve", "policy", "control.sock", "control.sock.new", "writing.new",
		"catalogue.new", "format.new", "index.db.new", "segments/00000001.seg", "segments/00000002.seg",
		"lost+found/x", "tree/fifo", "../format"} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			mountpoint := filepath.Join(placetest.RealDir(t), "none") // so that no mount comes about
			store := packedStore(t)
			path := filepath.Join(store, name)
			for _, args := range onStore(store, mountpoint) {
				var st unix.Stat_t
				if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
					_ = os.RemoveAll(path)
					if err := unix.Mkfifo(path, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				inTime(t, args)
			}
		})
	}
}

// Root works on no store of another user's unless told, whatever the command, and leaves it as it is.
func TestForeignStoreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files away")
	}
	store := packedStore(t)
	if err := os.Chown(store, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, store)
	mountpoint := placetest.RealDir(t)
	for _, args := range onStore(store, mountpoint) {
		switch args[0] {
		case "umount", "forget", "retire": // which open no store, and want a mount
			continue
		}
		what := strings.Join(args, " ")
		code, said := inTime(t, args)
		if code != exit.NoFUSE || !strings.Contains(said, store+" belongs to user 54321") ||
			!strings.Contains(said, "--foreign") {
			t.Errorf("%s: exit status %d: %s", what, code, said)
		}
		sameAs(t, what, store, before)
	}
	for _, args := range [][]string{{"stats", store}, {"check", store}, {"repair", "index", store},
		{"prune", store}} {
		if code, said := inTime(t, append(args, "--foreign")); code != exit.OK {
			t.Errorf("%s --foreign: exit status %d: %s", args[0], code, said)
		}
	}
	code, said := inTime(t, []string{"--json", "stats", store})
	if code != exit.NoFUSE || !strings.Contains(said, `"code":"denied"`) {
		t.Errorf("%d: %s", code, said)
	}
}

// The tree of a store that is root's may be given to a user, who works in it through the mount.
func TestTreeOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files away")
	}
	store := packedStore(t)
	if err := os.Chown(filepath.Join(store, tree.TreeDir), 54321, 54321); err != nil {
		t.Fatal(err)
	}
	if code, said := inTime(t, []string{"stats", store}); code != exit.OK {
		t.Errorf("exit status %d: %s", code, said)
	}
}

// Links in the place of a store's folders have repair touch nothing elsewhere.
func TestRepairThroughLinks(t *testing.T) {
	for _, name := range []string{tree.TreeDir, tree.SegmentsDir, tree.LostFound} {
		for _, part := range []string{"index", "segments", "tree"} {
			store, out := packedStore(t), placetest.RealDir(t)
			placetest.MakeFile(t, filepath.Join(out, "passwd"), strings.Repeat("root\n", 1000))
			placetest.MakeFile(t, filepath.Join(out, "00000001.seg"), "no segment")
			placetest.MakeFile(t, filepath.Join(store, "index.db"), "damaged")
			path := filepath.Join(store, name)
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(out, path); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, out)
			code, said := inTime(t, []string{"repair", part, store, "--foreign"})
			if code != exit.Damaged || !strings.Contains(said, path+" is a symbolic link") {
				t.Errorf("repair %s with %s a link: exit status %d: %s", part, name, code, said)
			}
			sameAs(t, "repair "+part, out, before)
		}
	}
}

// Links in the place of what a store is written to under another name first have no command write to another
// file, whether or not the store was closed in order. Nor has a link in the place of its reserve.
func TestLinksWrittenOver(t *testing.T) {
	mountpoint := filepath.Join(placetest.RealDir(t), "none") // so that no mount comes about
	for _, own := range []bool{false, true} {
		for _, clean := range []bool{true, false} {
			store, out := packedStore(t), placetest.RealDir(t)
			other := filepath.Join(out, "other")
			placetest.MakeFile(t, other, "not ours")
			before := snapshot(t, out)
			links := []string{"writing.new", "catalogue.new", "format.new", "index.db.new",
				"control.sock.new"}
			if own { // with which no store is opened
				links = append(links, "reserve", "writing")
			}
			for _, args := range onStore(store, mountpoint) {
				for _, name := range links {
					path := filepath.Join(store, name)
					_ = os.RemoveAll(path)
					if err := os.Symlink(other, path); err != nil {
						t.Fatal(err)
					}
				}
				if !clean {
					notClosed(t, store)
				}
				inTime(t, args)
				sameAs(t, fmt.Sprint(args, ", closed in order: ", clean), out, before)
			}
		}
	}
}

// A link below lost+found has no file moved out of the store.
func TestRepairTreeThroughLink(t *testing.T) {
	store, out := packedStore(t), placetest.RealDir(t)
	damaged := filepath.Join(store, "tree", "profile.d", "x.sh")
	for _, dir := range []string{filepath.Dir(damaged), filepath.Join(out, "profile.d")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	placetest.MakeFile(t, damaged, "evil")
	rec := tree.Record{Manifest: cas.Sum([]byte("none")), Hollow: true}
	if err := tree.WriteRecord(damaged, &rec); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(store, tree.LostFound), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, filepath.Join(store, tree.LostFound, tree.TreeDir)); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, out)
	code, said := inTime(t, []string{"repair", "tree", store})
	if code == exit.OK || !strings.Contains(said, "profile.d/x.sh") {
		t.Errorf("exit status %d: %s", code, said)
	}
	sameAs(t, "repair tree", out, before)
	if _, err := os.Lstat(damaged); err != nil {
		t.Error(err)
	}
}
