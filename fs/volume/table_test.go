package volume

import (
	"strings"
	"testing"
	"time"

	"ckptfs/fs/names"

	"golang.org/x/sys/unix"
)

// onlyRoot fails unless the table comes to hold the root alone, once nothing is looked up, open or cached any
// more.
func (r *rig) onlyRoot() {
	r.t.Helper()
	r.sync()
	r.evictAll()
	var left []string
	var open int
	empty := func() bool {
		left, open = r.names.Leftover()
		return len(left) == 0 && open == 0
	}
	for end := time.Now().Add(patience / 10); !empty(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Errorf("left in the table: %q; %d directories open", left, open)
			return
		}
	}
}

// What the kernel has forgotten and closed is gone, whatever was done with it.
func TestForgotten(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a/1")
	r.mkdir("runs/a/2")
	r.write("runs/a/1/model.pt", fixture(t, "flat.pt"))
	r.write("runs/a/2/f", random(100<<10, 1))
	r.link("runs/a/2/f", "runs/a/1/g")
	r.sync()
	r.same("runs/a/1/g", random(100<<10, 1))
	r.listing("runs/a/1")
	r.read("runs/a/1/model.safetensors")
	r.rename("runs/a/2/f", "runs/f")
	r.rename("runs/a/2", "runs/two")
	r.unlink("runs/a/1/g")
	dir, name := r.dirOf("runs/two")
	if err := r.Rmdir(dir, name); err != nil {
		t.Fatal(err)
	}
	r.forget(dir)
	r.write("runs/h", random(1000, 2))
	if err := r.tryRename("runs/h", "runs/f", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	r.rename("runs/h", "runs/f")
	if _, _, err := r.lookup("runs/none/x"); err != unix.ENOENT {
		t.Errorf("%v", err)
	}
	r.onlyRoot()
}

// Paths longer than PATH_MAX, with room for two directories' descriptors.
func TestDeep(t *testing.T) {
	r := newRig(t)
	r.names.KeepOpen(2)
	const depth = 60
	name := strings.Repeat("n", 100)
	dirs := []*names.Node{r.names.Root()}
	for range depth {
		n, _, err := r.Mkdir(dirs[len(dirs)-1], name, 0o755, r.me)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, n)
	}
	deep := strings.Repeat("/"+name, depth)[1:]
	want := random(100<<10, 1)
	r.write(deep+"/f", want)
	r.packOut(deep + "/f")
	r.same(deep+"/f", want)
	if _, open := r.names.Leftover(); open > 2 {
		t.Errorf("%d directories open", open)
	}
	r.rename(name+"/"+name, "moved")
	rest := "moved" + strings.TrimPrefix(deep, name+"/"+name)
	r.same(rest+"/f", want)
	if got := dirs[depth].Path(); got != rest {
		t.Errorf("path %.40s…, want %.40s…", got, rest)
	}
	for _, n := range dirs[1:] {
		r.forget(n)
	}
	r.onlyRoot()
}
