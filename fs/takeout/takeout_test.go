package takeout

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// shop is a Source in memory.
type shop struct {
	entries map[string]*control.Entry // by path; "" is the root
	bytes   map[string][]byte
	holes   map[string]int64 // files that are a hole up to there
	fail    map[string]error // of reads, after the first byte
	opened  []string         // files whose bytes were asked for
	reading func(p string)   // called before bytes are opened; may be nil
}

var when = time.Date(2025, 3, 4, 5, 6, 7, 123456789, time.UTC)

func newShop() *shop {
	s := &shop{entries: map[string]*control.Entry{}, bytes: map[string][]byte{}, holes: map[string]int64{},
		fail: map[string]error{}}
	s.put("", unix.S_IFDIR|0o755)
	return s
}

func (s *shop) put(p string, mode uint32) *control.Entry {
	e := &control.Entry{Name: control.Name(path.Base(p)), Mode: mode, Mtime: when, Ctime: when, Links: 1,
		Ino: uint64(len(s.entries) + 1), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	s.entries[p] = e
	return e
}

func (s *shop) file(p, data string) *control.Entry {
	e := s.put(p, unix.S_IFREG|0o640)
	e.Size, s.bytes[p] = int64(len(data)), []byte(data)
	return e
}

func (s *shop) Entry(ctx context.Context, p string) (*control.Entry, error) {
	if e, ok := s.entries[p]; ok {
		now := *e
		return &now, ctx.Err()
	}
	return nil, fs.ErrNotExist
}

func (s *shop) Entries(_ context.Context, p string, some func([]control.Entry) error) error {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		if name != "" && strings.Trim(path.Dir("/"+name), "/") == p {
			if err := some([]control.Entry{*s.entries[name]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *shop) Bytes(ctx context.Context, p string, off int64) (*control.Stretch, error) {
	if s.reading != nil {
		s.reading(p)
	}
	s.opened = append(s.opened, p)
	b, ok := s.bytes[p]
	if !ok {
		return nil, fs.ErrNotExist
	}
	off = min(max(off, s.holes[p]), int64(len(b)))
	var r io.Reader = bytes.NewReader(b[off:])
	if err := s.fail[p]; err != nil {
		r = io.MultiReader(bytes.NewReader(b[off:off+1]), failing{err})
	}
	return &control.Stretch{Off: off, Size: int64(len(b)) - off, ReadCloser: io.NopCloser(r)}, ctx.Err()
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// sample is a run with all that a tree may hold.
func sample() *shop {
	s := newShop()
	s.put("run", unix.S_IFDIR|0o750)
	s.put("run/1", unix.S_IFDIR|0o755)
	s.file("run/1/model.pt", strings.Repeat("tensor", 1<<19))
	s.file("run/1/model.safetensors", "a view").View = true
	s.file("run/1/none", "").Mode = unix.S_IFREG | 0o444
	s.put("run/2", unix.S_IFDIR|0o755)
	holey := s.file("run/2/holey", strings.Repeat("\x00", 1<<20)+"data")
	s.holes["run/2/holey"] = 1 << 20
	holey.Mode = unix.S_IFREG | 0o4755
	one, other := s.file("run/2/one", "linked"), s.file("run/2/other", "linked")
	one.Links, other.Links, other.Ino = 2, 2, one.Ino
	s.put("run/2/link", unix.S_IFLNK|0o777).Target = "../1/model.pt"
	s.file("run/bad\xff\nname", "x")
	return s
}

// copyTo copies a path of s to a name in the folder dir.
func copyTo(t *testing.T, s *shop, from, dir, name string) (*Taken, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return Copy(t.Context(), s, from, root, name, Options{})
}

// wantSame compares a folder with a path of s.
func wantSame(t *testing.T, s *shop, p, copied string) {
	t.Helper()
	var want, got []string
	for name, e := range s.entries {
		if rel := strings.TrimPrefix(name, p); rel != name && !e.View {
			want = append(want, strings.TrimPrefix(rel, "/"))
		}
	}
	err := filepath.WalkDir(copied, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(copied, name)
		got = append(got, strings.TrimPrefix(rel, "."))
		if err != nil {
			return err
		}
		e := s.entries[path.Join(p, rel)]
		if e == nil {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		if kindOf(e) == unix.S_IFLNK {
			if to, err := os.Readlink(name); err != nil || to != string(e.Target) {
				t.Errorf("%s leads to %q, %v", rel, to, err)
			}
			return nil
		}
		if st.Mode != e.Mode&^(unix.S_ISUID|unix.S_ISGID) || time.Unix(st.Mtim.Unix()).Compare(e.Mtime) != 0 {
			t.Errorf("%q has mode %o, time %v", rel, st.Mode, time.Unix(st.Mtim.Unix()))
		}
		if kindOf(e) == unix.S_IFREG {
			if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, s.bytes[path.Join(p, rel)]) {
				t.Errorf("%q: %d other bytes, %v", rel, len(b), err)
			}
			if s.holes[path.Join(p, rel)] > 0 && st.Blocks*512 >= st.Size {
				t.Errorf("%q has no hole: %d blocks", rel, st.Blocks)
			}
			if e.Links > 1 != (st.Nlink > 1) {
				t.Errorf("%q has %d names", rel, st.Nlink)
			}
		}
		return nil
	})
	slices.Sort(want)
	slices.Sort(got)
	if err != nil || !slices.Equal(want, got) {
		t.Errorf("%v: copied %q, not %q", err, got, want)
	}
}

func TestCopy(t *testing.T) {
	s, dir := sample(), t.TempDir()
	took, err := copyTo(t, s, "run", dir, "out")
	if err != nil || took.Files != 5 || took.Links != 1 || took.Kept != 0 || len(took.Skipped) != 0 {
		t.Fatalf("%+v, %v", took, err)
	}
	wantSame(t, s, "run", filepath.Join(dir, "out"))

	// Again nothing is read; what changed is.
	s.opened = nil
	s.file("run/1/none", "some")
	took, err = copyTo(t, s, "run", dir, "out")
	if err != nil || took.Files != 1 || took.Kept != 6 ||
		!slices.Equal(slices.Compact(s.opened), []string{"run/1/none"}) {
		t.Errorf("%+v, %v; read %q", took, err, s.opened)
	}
	wantSame(t, s, "run", filepath.Join(dir, "out"))

	if took, err := copyTo(t, s, "run/1/model.safetensors", dir, "view"); err != nil || took.Files != 1 {
		t.Errorf("a view that is named: %+v, %v", took, err)
	}
	if _, err := copyTo(t, s, "gone", dir, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A copy that is cut off has no final name, and goes on.
func TestCopyCutOff(t *testing.T) {
	s, dir := sample(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s.reading = func(p string) {
		if p == "run/2/holey" {
			cancel()
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Copy(ctx, s, "run", root, "out", Options{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "out")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a part has the name: ", err)
	}
	// As if it had been killed in a file, and the source had lost what was copied.
	parts, _ := filepath.Glob(filepath.Join(dir, ".ckptfs-part-*"))
	if len(parts) != 1 {
		t.Fatalf("parts: %q", parts)
	}
	for _, left := range []string{filepath.Join("2", partOf("holey")), "1/gone", "gone/x"} {
		left = filepath.Join(parts[0], left)
		if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, []byte("longer than it is to be, and other bytes"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.reading, s.opened = nil, nil
	took, err := copyTo(t, s, "run", dir, "out")
	if err != nil || took.Kept != 2 || slices.Contains(s.opened, "run/1/model.pt") {
		t.Errorf("%+v, %v; read %q", took, err, s.opened)
	}
	wantSame(t, s, "run", filepath.Join(dir, "out"))
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What cannot be read is named and has no name, and the rest is copied.
func TestCopyDamaged(t *testing.T) {
	s, dir := sample(), t.TempDir()
	s.fail["run/1/model.pt"] = cas.ErrCorrupt
	s.put("run/fifo", unix.S_IFIFO|0o600)
	took, err := copyTo(t, s, "run", dir, "out")
	if err != nil || len(took.Skipped) != 2 || !errors.Is(took.Failed, cas.ErrCorrupt) {
		t.Fatalf("%+v, %v", took, err)
	}
	delete(s.entries, "run/1/model.pt")
	delete(s.entries, "run/fifo")
	wantSame(t, s, "run", filepath.Join(dir, "out"))
}

func TestCopyOfWhatIsWritten(t *testing.T) {
	s, dir := sample(), t.TempDir()
	s.reading = func(p string) {
		if p == "run/1/model.pt" {
			s.entries[p].Mtime = when.Add(1)
		}
	}
	took, err := copyTo(t, s, "run", dir, "out")
	if err != nil || !errors.Is(took.Failed, errChanged) || len(took.Skipped) != 1 {
		t.Fatalf("%+v, %v", took, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "out/1/model.pt")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestCopyOntoOthers(t *testing.T) {
	s, dir := sample(), t.TempDir()
	for _, d := range []string{"out/1/model.pt", "file"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := copyTo(t, s, "run", dir, "out"); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a file onto a folder: %v", err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := copyTo(t, s, "run", dir, "away"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a folder onto a link: %v", err)
	}
	if _, err := copyTo(t, s, "run/1/model.pt", dir, "away"); err != nil {
		t.Error(err)
	}
	if st, err := os.Lstat(filepath.Join(dir, "away")); err != nil || !st.Mode().IsRegular() {
		t.Errorf("a link is written through: %v, %v", st.Mode(), err)
	}
}

// A file that was written later than what would replace it stays where that was asked for, and is named.
func TestCopySpares(t *testing.T) {
	s, dir := sample(), t.TempDir()
	if _, err := copyTo(t, s, "run", dir, "out"); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(dir, "out/1/model.pt")
	for _, c := range []struct {
		when  time.Time
		stays bool
	}{{time.Now().Add(time.Hour), true}, {time.Unix(1, 0), false}} {
		if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(mine, c.when, c.when); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		took, err := Copy(t.Context(), s, "run", root, "out", Options{Spare: true})
		root.Close()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(mine)
		if err != nil || (string(got) == "mine") != c.stays || (len(took.Skipped) > 0) != c.stays {
			t.Errorf("written at %v: %d bytes, skipped %v, %v", c.when, len(got), took.Skipped, err)
		}
	}
}

// Of two copies to one name, one writes.
func TestPartOfTwo(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p, err := NewPart(root, "f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPart(root, "f"); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	if _, err := p.WriteString("whole"); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}

	s := sample()
	s.reading = func(string) {
		s.reading = nil
		if _, err := copyTo(t, s, "run", dir, "out"); !errors.Is(err, unix.EBUSY) {
			t.Errorf("a second copy of a folder: %v", err)
		}
	}
	if _, err := copyTo(t, s, "run", dir, "out"); err != nil {
		t.Error(err)
	}
	wantSame(t, s, "run", filepath.Join(dir, "out"))
}

func tarOf(t *testing.T, s *shop, paths ...string) ([]byte, *Taken, error) {
	t.Helper()
	var b bytes.Buffer
	took, err := Tar(t.Context(), s, paths, Parent(paths), &b, Options{})
	return b.Bytes(), took, err
}

func TestTar(t *testing.T) {
	s := sample()
	one, took, err := tarOf(t, s, "run")
	if err != nil || took.Files != 5 || len(took.Skipped) != 0 {
		t.Fatalf("%+v, %v", took, err)
	}
	for _, e := range s.entries { // another machine, another user
		e.UID, e.GID, e.Ino, e.Ctime = 7, 7, e.Ino+1000, when.Add(time.Hour)
	}
	if two, _, err := tarOf(t, s, "run"); err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same files give another tar: %v", err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(one)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%c %s%s", h.Typeflag, h.Name, h.Linkname))
		b, err := io.ReadAll(r)
		e := s.entries[strings.TrimSuffix(h.Name, "/")]
		if err != nil || !h.ModTime.Equal(when) || uint32(h.Mode) != e.Mode&0o7777 || h.Uid != 0 ||
			h.Typeflag == tar.TypeReg && !bytes.Equal(b, s.bytes[h.Name]) {
			t.Errorf("%+v, %v", h, err)
		}
	}
	want := []string{"5 run/", "5 run/1/", "0 run/1/model.pt", "0 run/1/none", "5 run/2/", "0 run/2/holey",
		"2 run/2/link../1/model.pt", "0 run/2/one", "1 run/2/otherrun/2/one", "0 run/bad\xff\nname"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestTarFails(t *testing.T) {
	s := sample()
	s.fail["run/1/model.pt"] = cas.ErrCorrupt
	if _, _, err := tarOf(t, s, "run"); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	s = sample()
	s.reading = func(p string) {
		if p == "run/1/model.pt" {
			s.bytes[p] = append(s.bytes[p], "more"...)
			s.entries[p].Size += 4
		}
	}
	if _, _, err := tarOf(t, s, "run"); !errors.Is(err, errChanged) {
		t.Error(err)
	}
}

func TestParent(t *testing.T) {
	for _, tc := range []struct {
		paths []string
		want  string
	}{
		{[]string{"runs/a/5"}, "runs/a"},
		{[]string{"runs/a/5", "runs/a/6"}, "runs/a"},
		{[]string{"runs/a/5", "runs/b/5"}, "runs"},
		{[]string{"runs/ab/5", "runs/a/5"}, "runs"},
		{[]string{"x", "runs/a"}, ""},
		{[]string{""}, ""},
		{[]string{"runs", "runs/a"}, ""},
	} {
		if got := Parent(tc.paths); got != tc.want {
			t.Errorf("%q: %q", tc.paths, got)
		}
	}
}
