package tree

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
)

var born = time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))

func TestCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := OpenStore(dir, false); !errors.Is(err, ErrNotStore) {
		t.Errorf("no folder: %v", err)
	}
	if err := makeStore(dir); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFormat(folder(t, dir))
	if err != nil || f.Version != Version || f.ID == [16]byte{} || !f.Created.Equal(born) {
		t.Fatalf("%+v, %v", f, err)
	}
	for p, mode := range map[string]os.FileMode{
		"": 0o700, "tree": 0o755, "segments": 0o700, "lost+found": 0o700,
	} {
		if st, err := os.Stat(filepath.Join(dir, p)); err != nil || !st.IsDir() || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	if err := makeStore(dir); err != nil {
		t.Errorf("a store that is there: %v", err)
	}
	if g, err := ReadFormat(folder(t, dir)); err != nil || g.ID != f.ID {
		t.Errorf("the store has another id: %v", err)
	}
	other := filepath.Join(t.TempDir(), "store")
	if err := makeStore(other); err != nil {
		t.Fatal(err)
	}
	if g, _ := ReadFormat(folder(t, other)); g.ID == f.ID {
		t.Error("two stores of one id")
	}
	if err := makeStore(filepath.Join(dir, "no", "parent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestFormatText(t *testing.T) {
	f := Format{Version: Version, ID: id(0xa0), Created: born}
	want := "ckptfs 4\nid a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\ncreated 2026-11-21T11:00:00Z\nsum 40bc126e\n"
	if got := string(f.encode()); got != want {
		t.Errorf("%q", got)
	}
	lines := strings.SplitAfter(want, "\n")
	for what, text := range map[string]string{
		"as it is": want, "by an earlier program": strings.Join(lines[:3], ""), "with a line more": lines[0] + "later something\n" + lines[1],
	} {
		g, err := parseFormat([]byte(text))
		if err != nil || g.Version != Version || g.ID != f.ID || strings.Contains(text, "created") &&
			!g.Created.Equal(born) {
			t.Errorf("%s: %+v, %v", what, g, err)
		}
	}
}

// A flipped bit changes nothing that the file says, or is found.
func TestFormatRot(t *testing.T) {
	f := Format{Version: Version, ID: id(0xa0), Created: born.UTC()}
	good := f.encode()
	found := 0
	for bit := range 8 * len(good) {
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		got, err := parseFormat(b)
		if err == nil && *got != f {
			t.Errorf("bit %d: %q is read as %+v", bit, b, got)
		}
		if err != nil {
			found++
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) && !errors.Is(err, ErrOlder) {
				t.Errorf("bit %d: %v", bit, err)
			}
		}
	}
	if least := 8 * (len(good) - len("sum ")); found < least-8 {
		t.Errorf("%d bits of %d were found", found, 8*len(good))
	}
}

func TestFormatRefused(t *testing.T) {
	good := "ckptfs 4\nid a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\ncreated 2026-11-21T11:00:00Z\n"
	for _, c := range []struct {
		what, text string
		want       error
	}{
		{"newer", strings.Replace(good, "ckptfs 4", "ckptfs 5", 1), cas.ErrNewer},
		{"older", strings.Replace(good, "ckptfs 4", "ckptfs 3", 1), ErrOlder},
		{"much older", strings.Replace(good, "ckptfs 4", "ckptfs 1", 1), ErrOlder},
		{"much newer, of another form", "ckptfs 99\n{\"id\": 7}\n", cas.ErrNewer},
		{"empty", "", cas.ErrCorrupt},
		{"binary", "\x00\xff\x00\n\n\n", cas.ErrCorrupt},
		{"no version", good[9:], cas.ErrCorrupt},
		{"no id", "ckptfs 4\n", cas.ErrCorrupt},
		{"version 0", strings.Replace(good, "ckptfs 4", "ckptfs 0", 1), cas.ErrCorrupt},
		{"version -1", strings.Replace(good, "ckptfs 4", "ckptfs -1", 1), cas.ErrCorrupt},
		{"no number", strings.Replace(good, "ckptfs 4", "ckptfs one", 1), cas.ErrCorrupt},
		{"a short id", strings.Replace(good, "aeaf", "", 1), cas.ErrCorrupt},
		{"a long id", strings.Replace(good, "aeaf", "aeaf00", 1), cas.ErrCorrupt},
		{"an id that is no hex", strings.Replace(good, "a0a1", "g0a1", 1), cas.ErrCorrupt},
		{"an id of zeros", "ckptfs 4\nid " + strings.Repeat("0", 32) + "\n", cas.ErrCorrupt},
		{"a date that is none", strings.Replace(good, "2026-11-21", "yesterday", 1), cas.ErrCorrupt},
		{"cut short", good[:len(good)/2], cas.ErrCorrupt},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "format"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadFormat(folder(t, dir))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", c.what, f, err)
		} else if !strings.Contains(err.Error(), filepath.Join(dir, "format")) {
			t.Errorf("%s: the error does not name the file: %v", c.what, err)
		}
	}
	if _, err := ReadFormat(folder(t, t.TempDir())); !errors.Is(err, ErrNotStore) {
		t.Errorf("an empty folder: %v", err)
	}
}

// A folder with other files is no place for a store.
func TestCreateRefuses(t *testing.T) {
	for _, name := range []string{"thesis.tex", ".hidden", "format.txt", "index.db", "tree/photo.jpg", "content/00/photo.jpg", "tree/00/photo.jpg", "segments/00000001.seg", "lost+found/x"} {
		dir := t.TempDir()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := makeStore(dir); !errors.Is(err, ErrNotStore) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "format")); err == nil {
			t.Errorf("%s: a store was made of it", name)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeStore(file); err == nil {
		t.Error("a file became a store")
	}
}

// What an interrupted Create leaves, after any number of its steps, becomes a store.
func TestCreateInterrupted(t *testing.T) {
	for _, left := range [][]string{
		{}, {"tree/"}, {"tree/", "segments/"}, {"tree/", "segments/", "lost+found/"},
		{"tree/", "segments/", "format.new"}, {"lock", "log"},
	} {
		dir := t.TempDir()
		for _, name := range left {
			p := filepath.Join(dir, name)
			var err error
			if strings.HasSuffix(name, "/") {
				err = os.MkdirAll(p, 0o700)
			} else {
				err = os.WriteFile(p, []byte("ckptfs 4\nid a0"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := makeStore(dir); err != nil {
			t.Errorf("%v: %v", left, err)
			continue
		}
		if _, err := ReadFormat(folder(t, dir)); err != nil {
			t.Errorf("%v: %v", left, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "format.new")); err == nil {
			t.Errorf("%v: format.new is left", left)
		}
		if _, err := os.Stat(filepath.Join(dir, "lost+found")); err != nil {
			t.Error(err)
		}
	}
}

// What the making of a store left is removed, and nothing of a store that has more.
func TestUnmake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for _, more := range []string{"", "tree/x", "moving", "index.db"} {
		d, err := OpenOrCreate(dir, false, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		if more != "" {
			if err := os.WriteFile(filepath.Join(dir, more), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err = Unmake(d)
		d.Close()
		_, there := os.Lstat(filepath.Join(dir, FormatFile))
		if (err == nil) != (more == "") || (there == nil) != (more != "") {
			t.Errorf("with %q: %v, %v", more, err, there)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
