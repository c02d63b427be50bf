package inplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cas/disk/killtest"
	"ckptfs/fs/tree"
)

// files fills a folder, and returns what is in it by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	in := map[string]string{"a": "1", "sub/b": "22", "sub/deep/c": strings.Repeat("3", 4000)}
	for name, s := range in {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(s), 0o644))
	}
	must(t, os.Symlink("a", filepath.Join(dir, "link")))
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "hard")))
	in["link"], in["hard"] = "1", "1"
	return in
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// held is what is in a folder by path.
func held(t *testing.T, dir string) map[string]string {
	t.Helper()
	in := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		in[name] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return in
}

// begun is a new store, and the folder that is about to move into it.
func begun(t *testing.T, store, dir string) (*disk.Folder, *Pair) {
	t.Helper()
	d, err := tree.OpenOrCreate(store, false, time.Now())
	must(t, err)
	t.Cleanup(func() { d.Close() })
	p, err := NewPair(d, dir)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	_, err = p.Begin(Adopt)
	must(t, err)
	return d, p
}

// adopts does what the command does to the disk, without a mount.
func adopts(store, dir string) error {
	d, err := tree.OpenOrCreate(store, false, time.Now())
	if err != nil {
		return err
	}
	defer d.Close()
	return moves(d, dir, Adopt)
}

// leaves is adopts the other way.
func leaves(store, dir string) error {
	d, err := tree.OpenStore(store, false)
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := Read(d)
	if err != nil {
		return err
	}
	if m == nil {
		if err := Strip(context.Background(), d, tree.TreeDir, Leave, nil); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return moves(d, dir, Leave)
}

// moves goes through the steps, and passes over what is done.
func moves(d *disk.Folder, dir, way string) error {
	p, err := NewPair(d, dir)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := Read(d)
	if err == nil && m == nil {
		m, err = p.Begin(way)
	}
	if err != nil {
		return err
	}
	moved, err := p.Moved(m)
	if err == nil && !moved {
		err = p.Exchange(way)
	}
	return errors.Join(err, p.Settle(way), End(d))
}

// whole fails unless all is in one of the folders, and nothing in the other.
func whole(t *testing.T, when string, want map[string]string, a, b string) {
	t.Helper()
	inA, inB := held(t, a), held(t, b)
	if len(inA) > 0 && len(inB) > 0 || !maps.Equal(inA, want) && !maps.Equal(inB, want) {
		t.Fatalf("%s: %d names in %s, %d in %s, of %d", when, len(inA), a, len(inB), b, len(want))
	}
}

const (
	killedWay = "INPLACE_WAY"
	killedDir = "INPLACE_DIR"
)

// A move is killed before each change that it makes. The folder is whole, in one of the two places, and the
// next run ends the move.
// Who copies and who moves wait for each other; some may copy at once.
func TestClaims(t *testing.T) {
	d, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	kinds := map[string]func(*disk.Folder) (*os.File, error){"copies its files": Share, "is moving": Claim}
	for holds, hold := range kinds {
		held, err := hold(d)
		if err != nil {
			t.Fatal(err)
		}
		for wants, want := range kinds {
			f, err := want(d)
			if err == nil {
				f.Close()
			}
			if both := holds == "copies its files" && wants == holds; both != (err == nil) ||
				err != nil && (!errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), holds)) {
				t.Errorf("one %s, another wants what %s: %v", holds, wants, err)
			}
		}
		held.Close()
	}
}

func TestKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		child(dir)
	}
	for way, do := range map[string]func(store, dir string) error{Adopt: adopts, Leave: leaves} {
		t.Run(way, func(t *testing.T) {
			for n := 0; ; n++ {
				top := t.TempDir()
				dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
				want := files(t, dir)
				if way == Leave {
					must(t, adopts(store, dir))
					must(t, unix.Setxattr(filepath.Join(store, tree.TreeDir, "sub"), marks[1], []byte("x"), 0))
				}
				cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
				cmd.Env = append(os.Environ(), killedDir+"="+top, killedWay+"="+way)
				changes, killed, err := killtest.Run(cmd, n)
				must(t, err)
				when := fmt.Sprint("killed before ", changes[len(changes)-1])
				whole(t, when, want, dir, filepath.Join(store, tree.TreeDir))
				must(t, do(store, dir))
				at, other := dir, filepath.Join(store, tree.TreeDir)
				if way == Adopt {
					at, other = other, at
				}
				if !maps.Equal(held(t, at), want) || len(held(t, other)) > 0 {
					t.Fatalf("%s, the next run did not end the move", when)
				}
				if _, err := os.Lstat(filepath.Join(store, JournalFile)); !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%s, the journal stays: %v", when, err)
				}
				if way == Leave {
					if _, err := unix.Getxattr(filepath.Join(dir, "sub"), marks[1], nil); err != unix.ENODATA {
						t.Fatalf("%s, an attribute stays: %v", when, err)
					}
				}
				if !killed {
					t.Logf("%d kills", n)
					return
				}
			}
		})
	}
}

func child(top string) {
	err := killtest.Watch()
	dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
	if err == nil && os.Getenv(killedWay) == Adopt {
		err = adopts(store, dir)
	} else if err == nil {
		err = leaves(store, dir)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
}

// A mount that fails after the move: the folder is put back, with what programs made in its place.
func TestBack(t *testing.T) {
	top := t.TempDir()
	dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
	want := files(t, dir)
	d, p := begun(t, store, dir)
	must(t, p.Swap())
	must(t, os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "sub/deep/new"), []byte("n"), 0o644))
	want["sub/deep/new"] = "n"
	m, err := Read(d)
	must(t, err)
	_, err = Back(t.Context(), d, m)
	must(t, err)
	if got := held(t, dir); !maps.Equal(got, want) {
		t.Errorf("put back: %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if m, err := Read(d); m != nil || err != nil {
		t.Errorf("the journal stays: %v, %v", m, err)
	}
}

// Of names that both folders have, both files are kept, and the later one has the name.
func TestGatherKeeps(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	long := strings.Repeat("é", 127)
	write := func(dir, name, s string, at int64) {
		t.Helper()
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(s), 0o644))
		must(t, os.Chtimes(path, time.Time{}, time.Unix(at, 0)))
	}
	for _, name := range []string{"f", "d/f", long} {
		write(a, name, "made", 20)
		write(b, name, "had", 10)
	}
	write(a, "old", "made", 10)
	write(b, "old", "had", 20)
	write(b, "f.kept-1", "other", 10)
	write(a, "d/g", "new", 10)
	write(a, "folder/x", "made", 20)
	write(b, "folder", "had", 10)
	write(a, "d2", "made", 20)
	write(b, "d2/x", "had", 10)
	must(t, os.Symlink("made", filepath.Join(a, "latest")))
	must(t, os.Symlink("d", filepath.Join(b, "latest")))
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(b, "latest"), make([]unix.Timespec, 2), unix.AT_SYMLINK_NOFOLLOW))
	from, err := os.Open(a)
	must(t, err)
	defer from.Close()
	to, err := os.Open(b)
	must(t, err)
	defer to.Close()
	noted := map[Path]Kept{}
	note := func(k Kept) error { noted[k.Name] = k; return nil }
	err = Gather(from, to, 0, note)
	must(t, err)
	want := map[string]string{
		"f": "made", "f.kept-1": "other", "f.kept-2": "had", "d/f": "made", "d/f.kept-1": "had", "d/g": "new",
		long: "made", long[:246] + "é.kept-1": "had", "old": "had", "old.kept-1": "made",
		"folder": "had", "folder.kept-1/x": "made", "d2/x": "had", "d2.kept-1": "made",
	}
	must(t, os.Remove(filepath.Join(b, "latest.kept-1")))
	if at, err := os.Readlink(filepath.Join(b, "latest")); at != "made" {
		t.Errorf("the link leads to %q: %v", at, err)
	}
	must(t, os.Remove(filepath.Join(b, "latest")))
	if got := held(t, b); !maps.Equal(got, want) {
		t.Errorf("the full folder has %q", got)
	}
	if got, err := os.ReadDir(a); len(got) > 0 {
		t.Errorf("the empty folder has %v, %v", got, err)
	}
	if len(noted) != 7 || !noted["d/f"].Old || noted["old"].Old || noted["f"].As != "f.kept-2" {
		t.Errorf("noted: %v", noted)
	}
}

// A gathering that was cut short between its two renames ends with the same names.
func TestGatherAgain(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(a, "f"), []byte("had"), 0o644))
	must(t, os.Chtimes(filepath.Join(a, "f"), time.Time{}, time.Unix(1, 0)))
	must(t, os.WriteFile(filepath.Join(b, "f"), []byte("made"), 0o644))
	from, err := os.Open(a)
	must(t, err)
	defer from.Close()
	to, err := os.Open(b)
	must(t, err)
	defer to.Close()
	err = Gather(from, to, 0, func(Kept) error { return nil })
	must(t, err)
	if got := held(t, b); got["f"] != "made" || got["f.kept-1"] != "had" {
		t.Errorf("the full folder has %v", got)
	}
}

// What a mount covered before the move began stays where it is.
func TestGatherSince(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(a, "covered"), nil, 0o644))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(a, "covered"), &st))
	must(t, os.WriteFile(filepath.Join(a, "made"), nil, 0o644))
	var later unix.Stat_t
	for ok := false; !ok; ok = later.Ctim.Nano() > st.Ctim.Nano() {
		must(t, os.Chmod(filepath.Join(a, "made"), 0o600))
		must(t, unix.Stat(filepath.Join(a, "made"), &later))
	}
	from, err := os.Open(a)
	must(t, err)
	defer from.Close()
	to, err := os.Open(b)
	must(t, err)
	defer to.Close()
	err = Gather(from, to, later.Ctim.Nano(), func(Kept) error { return nil })
	must(t, err)
	if _, is := held(t, a)["covered"]; !is || len(held(t, b)) != 1 {
		t.Errorf("%v stays, %v moved", held(t, a), held(t, b))
	}
}

// Who looks for a move is not taken for a process that is at it.
func TestBegunIn(t *testing.T) {
	top := t.TempDir()
	dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
	files(t, dir)
	d, _ := begun(t, store, dir)
	looks, err := claim(d, unix.LOCK_SH)
	must(t, err)
	b := BegunIn(store)
	must(t, looks.Close())
	if b == nil || b.Moving {
		t.Errorf("while another process looks: %+v", b)
	}
	moves, err := Claim(d)
	must(t, err)
	defer moves.Close()
	if b := BegunIn(store); b == nil || !b.Moving {
		t.Errorf("while it moves: %+v", b)
	}
}

// The journal has what was kept, each once, and is bounded.
func TestNote(t *testing.T) {
	top := t.TempDir()
	dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
	files(t, dir)
	d, _ := begun(t, store, dir)
	for range 2 {
		must(t, Note(d, Kept{Name: "a\xff", As: "a\xff.kept-1", Old: true}))
	}
	for i := range 120 {
		name := Path(fmt.Sprint(i, strings.Repeat("\xff", 4000*(i%2))))
		must(t, Note(d, Kept{Name: name, As: name + ".kept-1"}))
	}
	m, err := Read(d)
	must(t, err)
	if m.Kept[0].Name != "a\xff" || int64(len(m.Kept))+m.MoreKept != 121 {
		t.Errorf("%v, and %d more", m.Kept, m.MoreKept)
	}
}

// What keeps a folder from being adopted is found.
func TestLook(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	files(t, dir)
	must(t, os.Link(filepath.Join(dir, "sub/b"), filepath.Join(top, "outside")))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	rec := tree.Record{Manifest: [32]byte{1}, Hollow: true, Mtime: 1}
	b := rec.Encode()
	must(t, unix.Setxattr(filepath.Join(dir, "sub/deep/c"), tree.XattrName, b[:], 0))
	_, err := tree.OpenOrCreate(filepath.Join(dir, "inner"), false, time.Now())
	must(t, err)
	l, err := Look(t.Context(), dir, nil)
	must(t, err)
	only := func(what string, f Found, path string) {
		t.Helper()
		if f.N != 1 || f.Paths[0] != filepath.Join(dir, path) {
			t.Errorf("%s: %v", what, f)
		}
	}
	only("linked", l.Linked, "sub/b")
	only("pipes", l.Pipes, "pipe")
	only("hollow", l.Hollow, "sub/deep/c")
	only("marked", l.Marked, "sub/deep/c")
	only("stores", l.Stores, "inner")
	if l.Files != 4 { // and the inner store's
		t.Errorf("%d files", l.Files)
	}
	up, err := disk.OpenFolder(top)
	must(t, err)
	defer up.Close()
	for _, way := range []string{Adopt, Leave} {
		if err := Strip(t.Context(), up, "dir", way, nil); !errors.Is(err, ErrPacked) {
			t.Errorf("%s: a hollow file: %v", way, err)
		}
	}
}

// The journal of a folder has its name, whatever bytes are in that.
func TestJournalNames(t *testing.T) {
	for _, name := range []string{"plain", "ünï", "inv\xff\xfe", "new\nline", `"quoted\"`, "tab\t<&>\u2028"} {
		top := t.TempDir()
		dir, store := filepath.Join(top, name), filepath.Join(top, "store")
		want := files(t, dir)
		d, p := begun(t, store, dir)
		must(t, p.Exchange(Adopt))
		m, err := Read(d)
		must(t, err)
		if string(m.Dir) != dir {
			t.Errorf("%q, want %q", m.Dir, dir)
		}
		_, err = Back(t.Context(), d, m)
		must(t, err)
		if got := held(t, dir); !maps.Equal(got, want) {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// A journal that is damaged, or names what is elsewhere by now, moves nothing.
func TestJournal(t *testing.T) {
	top := t.TempDir()
	dir, store := filepath.Join(top, "dir"), filepath.Join(top, "store")
	files(t, dir)
	d, p := begun(t, store, dir)
	must(t, os.Rename(dir, dir+".away"))
	must(t, os.Mkdir(dir, 0o755))
	m, err := Read(d)
	must(t, err)
	if _, err := p.Moved(m); !errors.Is(err, ErrOther) {
		t.Errorf("another folder: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(store, JournalFile), []byte(`{"way":"up","dir":"x"}`), 0o600))
	if m, err := Read(d); err == nil {
		t.Errorf("damaged: %+v", m)
	}
}
