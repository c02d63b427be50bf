package names

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// A directory is read in pieces, as it was when it was read from the start; views come before all other names
// but "." and "..".
func TestEntries(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	for i := range 300 {
		r.write(fmt.Sprintf("d/f%03d", i))
	}
	n := r.find("d")
	defer n.Unpin()
	d, err := n.OpenDir()
	r.must("open", err)
	defer d.Release()
	if n.Refs() != 2 {
		t.Errorf("%d references", n.Refs())
	}
	calls := 0
	shown := func(dir *Node, real []tree.DirEntry) []tree.DirEntry {
		if calls++; dir != n || len(real) < 302 {
			t.Errorf("%s, %d names", dir.Path(), len(real))
		}
		return append(real, tree.DirEntry{Name: "first", Mode: unix.S_IFREG, View: true})
	}
	seen := map[string]int{}
	for pos := uint64(0); ; {
		l, err := d.Entries(r.me, pos, shown)
		r.must("read", err)
		if len(l) == 0 {
			break
		}
		if pos == 0 {
			r.must("unlink", r.unlink("d/f299"))
			r.write("d/new")
		}
		for _, e := range l[:min(7, len(l))] {
			seen[e.Name]++
			pos = e.Pos
		}
	}
	if len(seen) != 303 || seen["f299"] != 1 || seen["."] != 1 || seen[".."] != 1 || seen["first"] != 1 {
		t.Errorf("%d names", len(seen))
	}
	if calls != 1 {
		t.Errorf("read %d times", calls)
	}
	l, err := d.Entries(r.me, 0, shown)
	if err != nil || len(l) != 303 || l[2].Name != "first" || calls != 2 {
		t.Errorf("%d entries after a rewind, %v", len(l), err)
	}
	for _, e := range slices.Delete(slices.Clone(l), 2, 3) {
		want := uint32(unix.S_IFREG)
		if strings.HasPrefix(e.Name, ".") {
			want = unix.S_IFDIR
		}
		if e.Mode != want || e.Name == "f299" {
			t.Errorf("%+v", e)
		}
	}
	// A handle that has read nothing yet reads it now, wherever it is to start.
	e, err := n.OpenDir()
	r.must("open", err)
	if l, err := e.Entries(r.me, l[299].Pos, shown); err != nil || len(l) != 3 {
		t.Errorf("%d entries, %v", len(l), err)
	}
	e.Release()
	if l, err := d.Entries(r.me, 1<<63-1, shown); err != nil || len(l) != 0 {
		t.Errorf("%d entries, %v", len(l), err)
	}
	r.must("fsync", d.Fsync())
}

// A listing goes on where it was though another handle, as of another process, lists the rest: what is there
// all the time is listed once, also names whose positions are the same.
func TestPositions(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	for i := range 200 {
		r.write(fmt.Sprintf("d/f%d", i))
	}
	n := r.find("d")
	defer n.Unpin()
	seen := map[string]int{}
	for pos, round := uint64(0), 0; ; round++ {
		d, err := n.OpenDir()
		r.must("open", err)
		l, err := d.Entries(r.me, pos, func(_ *Node, real []tree.DirEntry) []tree.DirEntry { return real })
		d.Release()
		r.must("read", err)
		if len(l) == 0 {
			break
		}
		for _, e := range l[:min(3, len(l))] {
			seen[e.Name]++
			pos = e.Pos
		}
		r.write(fmt.Sprintf("d/g%d", round))
		r.must("unlink", r.unlink(fmt.Sprintf("d/f%d", 199-min(round, 49))))
		r.write(fmt.Sprintf("d/f%d", 199-min(round, 49)))
	}
	for i := range 150 {
		if k := seen[fmt.Sprintf("f%d", i)]; k != 1 {
			t.Errorf("f%d was listed %d times", i, k)
		}
	}
	same := inOrder([]tree.DirEntry{{Name: "b"}, {Name: "a"}, {Name: "a"}, {Name: "a"}})
	for i, e := range same[1:] {
		if e.Pos <= same[i].Pos {
			t.Errorf("%+v comes behind %+v", e, same[i])
		}
	}
}

// Many directories, few descriptors, every operation on a name.
func TestFewDescriptors(t *testing.T) {
	for _, most := range []int{0, 1, 2} {
		r := newRig(t)
		r.KeepOpen(most)
		for i := range 20 {
			d := fmt.Sprintf("d%d/e", i)
			r.mkdir(d)
			r.write(d + "/f")
		}
		for i := range 20 {
			e, g := fmt.Sprintf("d%d/e", i), fmt.Sprintf("d%d/g", (i+7)%20)
			r.must("rename", r.rename(e+"/f", g, 0))
			r.must("link", r.link(g, e+"/h"))
			r.must("unlink", r.unlink(g))
		}
		for i := range 20 {
			r.same(fmt.Sprintf("d%d/e/h", i), fmt.Sprintf("d%d/e/f", i))
			if n := r.listing(fmt.Sprintf("d%d", i)); len(n) != 1 {
				t.Errorf("names: %v", n)
			}
		}
		if _, open := r.Leftover(); open > most {
			t.Errorf("%d directories are open, want %d at most", open, most)
		}
		r.onlyRoot()
	}
}

// Directories stay open up to a number, those that were used last; when it falls the others are closed.
func TestKeepOpen(t *testing.T) {
	r := newRig(t)
	var dirs []*Node
	for i := range 10 {
		p := fmt.Sprint("d", i)
		r.mkdir(p)
		dirs = append(dirs, r.keep(p))
		r.listing(p)
	}
	if _, open := r.Leftover(); open != 10 {
		t.Errorf("%d open, want 10", open)
	}
	r.listing("d0")
	r.KeepOpen(3)
	if _, open := r.Leftover(); open != 3 {
		t.Errorf("%d open, want 3", open)
	}
	for i, n := range dirs {
		if open := n.dirfd.fd >= 0; open != (i == 0 || i >= 8) {
			t.Errorf("d%d: open %v", i, open)
		}
	}
	r.KeepOpen(openDirs)
}

// Paths longer than PATH_MAX, with room for two directories' descriptors.
func TestDeep(t *testing.T) {
	r := newRig(t)
	r.KeepOpen(2)
	const depth = 60
	name := strings.Repeat("n", 100)
	deep := strings.Repeat("/"+name, depth)[1:]
	r.mkdir(deep)
	f := deep + "/f"
	n, err := r.make(f)
	r.must("make", err)
	h, err := n.File().Open(unix.O_RDWR, 0)
	r.must("open", err)
	if _, err := h.Write([]byte("x"), 0); err != nil {
		t.Error(err)
	}
	h.Release()
	r.same(f, "x")
	r.must("link", r.link(f, deep+"/g"))
	r.symlink(deep+"/s", strings.Repeat("t", 4000)).Unpin()
	if _, open := r.Leftover(); open > 2 {
		t.Errorf("%d directories open", open)
	}
	r.must("rename", r.rename(name+"/"+name, "moved", 0))
	rest := "moved" + strings.TrimPrefix(deep, name+"/"+name)
	r.same(rest+"/f", "x")
	if got := n.Path(); got != rest+"/f" && got != rest+"/g" {
		t.Errorf("path %.40s…, want %.40s…", got, rest)
	}
	s := r.find(rest + "/s")
	if to, err := s.Readlink(); err != nil || len(to) != 4000 {
		t.Errorf("%d bytes, %v", len(to), err)
	}
	s.Unpin()
	if met := r.each(); len(met[n]) != 3 { // two names, and it is known
		t.Errorf("%d times", len(met[n]))
	}
	r.must("unlink", r.unlink(rest+"/g"))
	r.must("unlink", r.unlink(rest+"/f"))
	n.Unpin()
	r.onlyRoot()
}
