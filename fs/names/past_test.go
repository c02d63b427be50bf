package names

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// lives is one tree that several processes serve after each other, and the kernel, which outlives them.
type lives struct {
	t   *testing.T
	r   *rig // of the present one
	dir string
	mem *handover.Memory

	kept   map[uint64]int            // descriptors that a holder keeps
	kernel map[content.NodeID]*known // what the kernel knows
	late   []func()                  // FORGETs that it has sent and no process has read
}

// known is a node as the kernel knows it.
type known struct {
	ino     uint64
	lookups uint64
}

func newLives(t *testing.T) *lives {
	mem, err := handover.New()
	if err != nil {
		t.Fatal(err)
	}
	l := &lives{
		t: t, dir: t.TempDir(), mem: mem, kept: map[uint64]int{}, kernel: map[content.NodeID]*known{},
	}
	l.r = openRig(t, l.dir)
	l.r.HandOn(l.heir())
	t.Cleanup(l.end)
	return l
}

func (l *lives) heir() *Heir {
	return &Heir{
		Nodes: l.mem.Nodes(),
		Keep: func(id uint64, fd int) {
			k, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				l.t.Error(err)
			}
			l.drop(id)
			l.kept[id] = k
		},
		Unkeep: l.drop,
	}
}

func (l *lives) drop(id uint64) {
	if fd, ok := l.kept[id]; ok {
		unix.Close(fd)
		delete(l.kept, id)
	}
}

// next kills the process: what it has in memory is gone, and its descriptors are closed. The next one takes
// over, and is told of names that may have been moved: directory and name.
func (l *lives) next(moved ...[2]string) {
	l.t.Helper()
	l.kill()
	l.r = openRig(l.t, l.dir)
	m, err := handover.Map(l.mem.Fd())
	if err != nil {
		l.t.Fatal(err)
	}
	l.mem = m
	m.BeginLife(false)
	nodes, err := m.Nodes().Load()
	if err != nil {
		l.t.Fatal(err)
	}
	kept := map[uint64]int{}
	for id, fd := range l.kept {
		if kept[id], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			l.t.Fatal(err)
		}
	}
	l.r.TakeOver(l.heir(), nodes)
	for _, m := range moved {
		if !l.r.Moved(l.r.known(m[0]).ID(), m[1]) {
			l.t.Errorf("%s is not known in %s", m[1], m[0])
		}
	}
	l.r.TakeKept(kept)
}

func (l *lives) kill() {
	for _, n := range l.r.tab.byID {
		if n.keep >= 0 {
			unix.Close(n.keep)
		}
		if n.dirfd.fd >= 0 && n != l.r.root {
			unix.Close(n.dirfd.fd)
		}
	}
	l.r.Close()
}

// look is a lookup of the kernel's; 0 if there is nothing.
func (l *lives) look(p string) content.NodeID {
	l.t.Helper()
	n, err := l.r.Resolve(p)
	if err != nil {
		return 0
	}
	n.Tell()
	return l.saw(n)
}

func (l *lives) saw(n *Node) content.NodeID {
	k := l.kernel[n.ID()]
	if k == nil {
		k = &known{ino: n.Ino()}
		l.kernel[n.ID()] = k
	}
	if k.ino != n.Ino() {
		l.t.Errorf("id %d is inode %d, and was %d", n.ID(), n.Ino(), k.ino)
	}
	k.lookups++
	return n.ID()
}

// forget has the kernel forget a node.
func (l *lives) forget(id content.NodeID) {
	k := l.kernel[id]
	delete(l.kernel, id)
	l.r.Forget(id, k.lookups)
}

// evict has the kernel forget a node, which is heard of later: by read.
func (l *lives) evict(id content.NodeID) {
	k := l.kernel[id]
	delete(l.kernel, id)
	l.late = append(l.late, func() { l.r.Forget(id, k.lookups) })
}

// read reads the FORGETs.
func (l *lives) read() {
	for _, forget := range l.late {
		forget()
	}
	l.late = nil
}

func (l *lives) sweep(all bool) {
	l.r.Sweep(all, func(id content.NodeID) bool { return l.kernel[id] != nil }, func() {})
}

// check looks at every node that the kernel knows.
func (l *lives) check() {
	l.t.Helper()
	for id, k := range l.kernel {
		n := l.r.Get(id)
		if n == nil {
			l.t.Fatalf("node %d is not known", id)
		}
		var st unix.Stat_t
		if err := n.Stat(&st); err != nil || st.Ino != k.ino || n.Ino() != k.ino {
			l.t.Fatalf("node %d, %s: inode %d, want %d, %v", id, n.Path(), st.Ino, k.ino, err)
		}
		if n.Dead() != (st.Nlink == 0) {
			l.t.Fatalf("node %d, %s: %d links, dead: %v", id, n.Path(), st.Nlink, n.Dead())
		}
	}
}

// end has the kernel forget everything, after which nothing is left.
func (l *lives) end() {
	for id := range l.kernel {
		l.forget(id)
	}
	l.read()
	if l.r.InDoubt() {
		l.sweep(false)
	}
	l.sweep(true)
	if len(l.kept) > 0 {
		l.t.Errorf("kept: %v", slices.Collect(maps.Keys(l.kept)))
	}
	if nodes, err := l.mem.Nodes().Load(); err != nil || len(nodes) > 0 {
		l.t.Errorf("written down: %v, %v", nodes, err)
	}
	l.r.end()
}

// A node that the kernel knows is the same in the next process: by its id, and by a lookup.
func TestNextLife(t *testing.T) {
	l := newLives(t)
	r := l.r
	r.mkdir("a/b", "gone", "dir")
	r.write("a/b/f", "a/g", "removed", "h")
	r.must("link", r.link("h", "dir/h"))
	id := map[string]content.NodeID{}
	for _, p := range []string{"a", "a/b", "a/b/f", "a/g", "removed", "gone", "h", "dir"} {
		id[p] = l.look(p)
	}
	r.must("rename", r.rename("a/b", "c", 0))
	r.must("unlink", r.unlink("removed"))
	r.must("rmdir", r.rmdir("gone"))
	r.must("unlink", r.unlink("h")) // it has another name, which the kernel does not know
	for range 3 {
		l.next()
		r = l.r
		l.check()
		if l.look("c/f") != id["a/b/f"] || l.look("a/g") != id["a/g"] || l.look("c") != id["a/b"] {
			t.Error("other ids")
		}
		if n := r.Get(id["removed"]); !n.Dead() || r.read(n) != "removed" {
			t.Error("a removed file cannot be read")
		}
		if n := r.Get(id["h"]); n.Dead() || r.read(n) != "h" {
			t.Error("a file by its other name cannot be read")
		}
		if l.look("dir/h") != id["h"] {
			t.Error("another id by its other name")
		}
		r.write(fmt.Sprint("new", len(l.kernel)))
		if n := l.look(fmt.Sprint("new", len(l.kernel))); l.kernel[n].lookups != 1 {
			t.Error("an id was used twice")
		}
	}
	l.forget(id["removed"])
	l.sweep(false)
	if r.Get(id["removed"]) != nil || len(l.kept) != 1 {
		t.Errorf("a removed file that nobody knows is kept: %v", l.kept)
	}
}

// The folders that the kernel knows are known in the next process, and to it alone as the kernel's.
func TestFolders(t *testing.T) {
	l := newLives(t)
	l.r.mkdir("a/b", "c", "gone")
	l.r.write("a/b/f")
	for _, p := range []string{"a", "a/b", "a/b/f", "gone"} {
		l.look(p)
	}
	l.r.must("rmdir", l.r.rmdir("gone"))
	l.r.must("rename", l.r.rename("a", "d", 0))
	want := []string{"", "d", "d/b"}
	for life := range 3 {
		got := Folders(l.r.Names)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("life %d: %q", life, got)
		}
		if life == 1 {
			l.look("d")
		}
		past := func(name string) bool { return IsPast(l.r.Names, l.r.InoAt(l.r.root, name)) }
		if life > 0 && (!past("d") || past("c")) {
			t.Errorf("life %d: what the kernel knows is not told apart", life)
		}
		l.next()
	}
}

// A process that was killed between a rename and writing that down: the journal has the new name.
func TestMoved(t *testing.T) {
	l := newLives(t)
	l.r.mkdir("a", "b/c")
	l.r.write("a/f", "b/victim")
	f, d, v := l.look("a/f"), l.look("a"), l.look("b/victim")
	l.look("b")
	heir := l.r.tab.heir.Swap(&Heir{Nodes: stale(t), Keep: l.heir().Keep, Unkeep: l.heir().Unkeep})
	l.r.must("rename", l.r.rename("a/f", "b/victim", 0))
	l.r.tab.heir.Store(heir)
	l.next([2]string{"b", "victim"})
	l.check()
	if n := l.r.Get(v); n == nil || !n.Dead() {
		t.Error("what was replaced is not known to be")
	}
	if n := l.r.Get(f); n.Path() != "b/victim" {
		t.Error(n.Path())
	}
	_ = l.r.tab.heir.Swap(&Heir{Nodes: stale(t), Keep: l.heir().Keep, Unkeep: l.heir().Unkeep})
	l.r.must("rename", l.r.rename("b", "a/moved", 0))
	l.next([2]string{"a", "moved"})
	l.check()
	if l.r.Moved(d, "nothing") {
		t.Error("something is known of nothing")
	}
}

// stale is the list of nodes of a process that does not come to write there.
func stale(t *testing.T) *handover.Nodes {
	m, err := handover.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.Nodes()
}

// What a name led to that goes, or moves, is a node that only an earlier process looked at: it is still known
// after that. The kernel may have it as a working folder, or by O_PATH, and then names it by its id.
func TestChangedUnseen(t *testing.T) {
	l := newLives(t)
	l.r.mkdir("gone", "moved", "there", "a", "b")
	l.r.write("f", "over", "under")
	for _, p := range []string{"gone", "moved", "f", "over", "under", "a", "b"} {
		l.look(p)
	}
	l.next()
	r := l.r
	r.must("rmdir", r.rmdir("gone"))
	r.must("unlink", r.unlink("f"))
	r.must("rename", r.rename("moved", "there/moved", 0))
	r.must("rename", r.rename("over", "under", 0))
	r.must("exchange", r.rename("a", "b", unix.RENAME_EXCHANGE))
	l.check()
	l.next()
	l.check()
}

// The number of an inode that went is given to another one, of another type.
func TestNumberUsedAgain(t *testing.T) {
	l := newLives(t)
	l.r.tab.next += 50
	l.r.write("f")
	f := l.look("f")
	ino := l.kernel[f].ino
	for id := f - 40; id < f; id++ { // what was written down of them was never taken back
		_ = l.mem.Nodes().Put(handover.Node{
			ID: uint64(id), Ino: ino, Parent: uint64(RootID), Type: unix.S_IFDIR, Name: fmt.Sprint(id),
		})
	}
	l.next()
	l.check()
}

// What the kernel looks up while a sweep asks about it stays.
func TestSweepRaces(t *testing.T) {
	l := newLives(t)
	l.r.write("f", "g")
	f, g := l.look("f"), l.look("g")
	l.next()
	l.check()
	l.forget(f)
	l.forget(g)
	again := func() {
		l.look("f") // answered, as settle sees to, before the kernel is asked
	}
	late := func(id content.NodeID) bool {
		is := l.kernel[id] != nil
		if id == g {
			l.look("g") // not answered yet when the kernel was asked
		}
		return is
	}
	l.r.Sweep(false, late, again)
	if l.kernel[f] == nil || l.kernel[g] == nil {
		t.Fatal("the test is wrong")
	}
	l.check()
}

// The kernel evicts an inode, which it does not know any more, and the FORGET is read when Sweep has asked.
// The references of that FORGET are those that Sweep gave back: whoever else has the node keeps it.
func TestForgottenAfterSweep(t *testing.T) {
	l := newLives(t)
	l.r.mkdir("d")
	l.r.write("d/f")
	d, f := l.look("d"), l.look("d/f")
	l.next()
	l.check()
	pinned := l.r.Get(f)
	pinned.Pin() // as the queue does
	l.evict(d)
	l.evict(f)
	l.sweep(true)
	l.read()
	l.sweep(false)
	if n := l.r.Get(f); n != pinned || l.r.read(n) != "d/f" || n.Path() != "d/f" {
		t.Error("a file that is in use is another one")
	}
	if again := l.look("d/f"); again != f || l.r.known("d").ID() != d {
		t.Error("a file that is in use has another id")
	}
	l.forget(f)
	l.sweep(false)
	pinned.Unpin()
}

// A file with two names is open, and the process is killed when one of them has gone, before it has written
// that down.
func TestKilledAtOneOfTwoNames(t *testing.T) {
	for what, do := range map[string]func(r *rig) error{
		"unlink": func(r *rig) error { return r.unlink("a") },
		"rename": func(r *rig) error { return r.rename("other", "a", 0) },
	} {
		t.Run(what, func(t *testing.T) {
			l := newLives(t)
			l.r.write("a", "other")
			l.r.must("link", l.r.link("a", "b"))
			id := l.look("a")
			l.look("b")
			heir := l.r.tab.heir.Load()
			l.r.onChange = func() {
				l.r.tab.heir.Store(&Heir{Nodes: stale(t), Keep: heir.Keep, Unkeep: heir.Unkeep})
			}
			l.r.must(what, do(l.r))
			l.next()
			l.check()
			if n := l.r.Get(id); n.Path() != "b" {
				t.Error(n.Path())
			}
		})
	}
}

// What is made up keeps its id as long as it is made of the same generation of the same node.
func TestOriginOfPast(t *testing.T) {
	l := newLives(t)
	l.r.write("f", "g")
	made := func(of string, gen uint64) *Node {
		n := l.r.find(of)
		v := l.r.Synthesise(l.r.Root(), "v", ViewIno|1, unix.S_IFREG,
			&fake{key: [2]any{n, gen}, mode: unix.S_IFREG, origin: Origin{Src: n, Gen: gen, Size: 1000}})
		n.Unpin()
		return v
	}
	id := func(of string, gen uint64) content.NodeID {
		v := made(of, gen)
		defer v.Unpin()
		return v.ID()
	}
	f := l.look("f")
	l.r.Get(f).Changes(3)
	old, newer := made("f", 3), made("f", 4)
	for stale := range uint64(20) { // what was written down of them was never taken back
		_ = l.mem.Nodes().Put(handover.Node{ID: 1000 + stale, Ino: old.ino, Parent: uint64(RootID), Name: "v",
			Synthetic: true, Type: unix.S_IFREG, Source: uint64(f), Gen: 3, Size: 1000})
	}
	l.r.Get(f).Changes(4)
	l.next()
	if got := l.r.Get(f).gen; got != 4 {
		t.Errorf("generation %d", got)
	}
	for range 2 {
		if got := id("f", 4); got != newer.ID() {
			t.Errorf("id %d, and was %d", got, newer.ID())
		}
	}
	if got := id("f", 3); got != 1019 {
		t.Errorf("of several with one name, %d", got)
	}
	if g, h := id("g", 4), id("f", 5); g <= newer.ID() || h <= newer.ID() {
		t.Errorf("%d and %d: no new ids", g, h)
	}
	l.r.Get(f).Changes(6)
	l.next()
	if got := l.r.Get(f).gen; got != 6 {
		t.Errorf("generation %d", got)
	}
	l.sweep(true)
}

// Processes come and go at any moment of random changes.
func TestLives(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			l := newLives(t)
			name := func() string {
				p := ""
				for range 1 + rnd.IntN(3) {
					p = path.Join(p, fmt.Sprint("n", rnd.IntN(4)))
				}
				return p
			}
			for range rounds {
				r := l.r
				switch p, q := name(), name(); rnd.IntN(12) {
				case 0:
					_ = r.tryMkdir(p)
				case 1, 2:
					if n, err := r.make(p); err == nil {
						n.Unpin()
					}
				case 3:
					_ = r.unlink(p)
				case 4:
					_ = r.rmdir(p)
				case 5, 6:
					_ = r.rename(p, q, 0)
				case 7:
					_ = r.rename(p, q, unix.RENAME_EXCHANGE)
				case 8:
					_ = r.link(p, q)
				case 9:
					for id := range l.kernel {
						l.evict(id)
						break
					}
					if rnd.IntN(3) > 0 {
						l.read()
					}
				case 10:
					l.look(p)
					l.look(q)
				case 11:
					switch rnd.IntN(3) {
					case 0:
						l.next()
					case 1:
						l.sweep(rnd.IntN(2) == 0)
					}
				}
				// Seldom: what was looked at is not a node of the past any more.
				if rnd.IntN(8) == 0 {
					l.check()
				}
			}
			l.check()
		})
	}
}
