package steps

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk/disktest"
)

// looked is the steps of run r, by "run/step", as new Steps see them.
func looked(t *testing.T, root string) (*Steps, map[string]*Step) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	s := New(Options{})
	s.Open(fd)
	found, err := s.Of("r")
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]*Step{}
	for _, st := range found["r"] {
		steps["r/"+st.Name] = st
	}
	return s, steps
}

// printed makes a run of a step that is a folder, r/1, and one of a step that is a file.
func printed(t *testing.T, file bool) (root, step string) {
	t.Helper()
	root = t.TempDir()
	run := filepath.Join(root, Dir, "r")
	step = filepath.Join(run, "1")
	if err := os.MkdirAll(filepath.Join(step, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"1/m.safetensors", "1/sub/a"}
	if file {
		names = []string{"m-1.safetensors"}
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(run, name), []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if file {
		step = filepath.Join(run, names[0])
	}
	disktest.WaitTick(t)
	return root, step
}

// TestPrint: a step has the same print at each look, until anything in it changes.
func TestPrint(t *testing.T) {
	for what, change := range map[string]func(step string) error{
		"bytes, and the mtime put back": func(step string) error {
			path := filepath.Join(step, "sub/a")
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte("54321"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, st.ModTime(), st.ModTime())
		},
		"a mode": func(step string) error { return os.Chmod(filepath.Join(step, "m.safetensors"), 0o640) },
		"a new file": func(step string) error {
			return os.WriteFile(filepath.Join(step, "sub/b"), nil, 0o600)
		},
		"a new name": func(step string) error {
			return os.Rename(filepath.Join(step, "sub/a"), filepath.Join(step, "sub/b"))
		},
		"its own name": func(step string) error { return os.Rename(step, step+"0") },
	} {
		root, step := printed(t, false)
		_, before := looked(t, root)
		_, again := looked(t, root)
		if p := before["r/1"].Print; p == (Print{}) || p != again["r/1"].Print {
			t.Fatalf("%s: prints %x and %x", what, p, again["r/1"].Print)
		}
		if err := change(step); err != nil {
			t.Fatal(err)
		}
		disktest.WaitTick(t)
		_, after := looked(t, root)
		for _, st := range after {
			if st.Print == before["r/1"].Print || st.Print == (Print{}) {
				t.Errorf("%s: print %x, it was %x", what, st.Print, before["r/1"].Print)
			}
		}
	}
}

// TestPrintLate: what changed in the moment of the look, or in the second before where the filesystem counts
// seconds, has no print.
func TestPrintLate(t *testing.T) {
	const second = 5_000_000_000
	for _, c := range []struct {
		ctime, began int64
		has          bool
	}{
		{second + 3, second + 3, false}, {second + 3, second + 4, true}, {second + 4, second + 3, false},
		{second, second + 999_999_999, false}, {second, second + 1_000_000_000, true},
	} {
		p := printing{began: c.began}
		p.add("a", &unix.Stat_t{Ctim: unix.NsecToTimespec(c.ctime)})
		if has := p.end() != (Print{}); has != c.has {
			t.Errorf("changed at %d, looked at %d: a print %v", c.ctime, c.began, has)
		}
	}
}

// TestPrintRecorded: a step of which a file was recorded has the print that the next look finds, if nothing
// else changed, and nothing lately.
func TestPrintRecorded(t *testing.T) {
	for _, file := range []bool{false, true} {
		root, step := printed(t, file)
		s, steps := looked(t, root)
		record := step
		if !file {
			record = filepath.Join(step, "m.safetensors")
		}
		want := func(what string, still time.Duration, prints ...Print) {
			t.Helper()
			got := slices.Collect(maps.Keys(s.prints(steps, still)))
			if !slices.Equal(got, prints) {
				t.Errorf("%s: %v, want %v", what, got, prints)
			}
		}
		only := func(steps map[string]*Step) Print {
			for _, st := range steps {
				return st.Print
			}
			return Print{}
		}
		recorded := func() {
			var st unix.Stat_t
			err := errors.Join(os.Chmod(record, 0o640), unix.Stat(record, &st))
			if err != nil {
				t.Fatal(err)
			}
			s.Recorded(st.Ino)
			disktest.WaitTick(t)
		}
		want("looked at", 0, only(steps))
		recorded()
		_, now := looked(t, root)
		if only(now) == only(steps) || only(now) == (Print{}) {
			t.Fatalf("recorded: print %x, it was %x", only(now), only(steps))
		}
		want("recorded lately", time.Hour)
		want("recorded", 0, only(now))
		want("taken again", time.Hour, only(now))
		if err := os.WriteFile(record, []byte("123456"), 0o600); err != nil {
			t.Fatal(err)
		}
		recorded()
		want("written, and recorded", 0)
	}
}

// TestPrintChanged: what a step says may be another since its look, where nothing but a ctime is.
func TestPrintChanged(t *testing.T) {
	for _, file := range []bool{false, true} {
		root, step := printed(t, file)
		s, steps := looked(t, root)
		var st unix.Stat_t
		err := errors.Join(unix.Setxattr(step, "user.metric.loss", []byte("1"), 0), unix.Stat(step, &st))
		if err != nil {
			t.Skip(err)
		}
		s.Recorded(st.Ino)
		disktest.WaitTick(t)
		if got := s.prints(steps, 0); len(got) != 1 {
			t.Errorf("recorded: %v", got)
		}
		s.Recorded(st.Ino)
		s.Changed(st.Ino)
		if got := s.prints(steps, 0); len(got) != 0 {
			t.Errorf("recorded and changed: %v", got)
		}
	}
}
