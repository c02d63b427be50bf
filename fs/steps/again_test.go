package steps

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// told is a run on the disk, and Steps that are told of what changes in it.
type told struct {
	t   *testing.T
	s   *Steps
	run string // the folder
}

func newTold(t *testing.T) *told {
	t.Helper()
	root := t.TempDir()
	run := filepath.Join(root, Dir, "r")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	s := New(Options{})
	s.Open(fd)
	return &told{t, s, run}
}

// changed tells of the inodes at paths below the run.
func (d *told) changed(paths ...string) {
	d.t.Helper()
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(d.run, p), &st); err != nil {
			d.t.Fatal(err)
		}
		d.s.Changed(st.Ino)
	}
}

func (d *told) write(p string, size int) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.run, p), make([]byte, size), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *told) mkdir(p string) {
	d.t.Helper()
	if err := os.Mkdir(filepath.Join(d.run, p), 0o755); err != nil {
		d.t.Fatal(err)
	}
}

// has is what s knows of the run.
func (d *told) has(s *Steps) (all []string) {
	d.t.Helper()
	found, err := s.Of("r")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, st := range found["r"] {
		all = append(all, fmt.Sprint(st.Name, st.IsFile, st.Size, st.Files.of))
	}
	return all
}

func (d *told) want(what string) {
	d.t.Helper()
	fresh := New(Options{})
	fresh.Open(d.s.root)
	if got, want := d.has(d.s), d.has(fresh); !slices.Equal(got, want) {
		d.t.Fatalf("%s:\n%v\nwant %v", what, got, want)
	}
}

// A step that changed is looked at again, and not which steps there are: nobody is told of a name that comes
// behind the filesystem's back.
func TestLookAgain(t *testing.T) {
	d := newTold(t)
	for _, p := range []string{"1", "2", "10"} {
		d.mkdir(p)
		d.write(p+"/m.safetensors", 10)
	}
	d.want("at first")
	d.mkdir("3")
	d.write("3/m.safetensors", 5)
	d.write("2/m.safetensors", 20)
	d.changed("2/m.safetensors")
	if got := d.has(d.s); len(got) != 3 {
		t.Errorf("%v", got)
	}
	d.changed(".")
	d.want("a name came")
}

// What is kept up to date is what a look at all would find, whatever changes.
func TestLookAgainAtAnything(t *testing.T) {
	d := newTold(t)
	r := rand.New(rand.NewPCG(1, 2))
	remove := func(p string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(d.run, p)); err != nil {
			t.Fatal(err)
		}
	}
	there := func(p string) bool {
		_, err := os.Lstat(filepath.Join(d.run, p))
		return err == nil
	}
	for n := range 600 {
		step := fmt.Sprint(r.IntN(12))
		file := step + "/" + []string{"m.safetensors", "notes"}[r.IntN(2)]
		switch what := r.IntN(8); {
		case what == 0: // a step that is a file, or goes
			name := "m-" + step + ".safetensors"
			if there(name) && r.IntN(2) == 0 {
				remove(name)
				d.changed(".")
				break
			}
			came := !there(name)
			d.write(name, n)
			if came {
				d.changed(".")
			}
			d.changed(name)
		case !there(step):
			d.mkdir(step)
			d.changed(".", step)
		case what == 1:
			d.changed(step)
			remove(step)
			d.changed(".")
		case what < 4 && there(file):
			remove(file)
			d.changed(step)
		default:
			came := !there(file)
			d.write(file, n)
			if came {
				d.changed(step)
			}
			d.changed(file)
		}
		if r.IntN(3) > 0 {
			d.want(fmt.Sprint("change ", n))
		}
	}
}
