package names

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// The kernel may count several lookups and forget them at once; a node that it holds stays the same node.
func TestNodeIdentity(t *testing.T) {
	r := newRig(t)
	r.write("f")
	a, b := r.find("f"), r.find("f")
	if a != b {
		t.Fatal("two nodes of one file")
	}
	r.must("rename", r.rename("f", "g", 0))
	if c := r.find("g"); c != a {
		t.Error("a rename made another node")
	}
	if r.Get(a.ID()) != a {
		t.Error("not found by its id")
	}
	id := a.ID()
	if n := r.GetPinned(id); n != a || a.Refs() != 4 {
		t.Errorf("%d references", a.Refs())
	}
	r.Forget(id, 3)
	if r.Get(id) != a {
		t.Error("gone, and referred to")
	}
	r.Forget(id, 1)
	if r.Get(id) != nil || r.GetPinned(id) != nil {
		t.Error("still known")
	}
	r.Forget(id, 1) // late, and of nobody
	c := r.find("g")
	if c.ID() == id {
		t.Error("a node id was used twice")
	}
	c.Unpin()
	r.Forget(RootID, 1<<40)
	if r.Get(RootID) != r.Root() {
		t.Error("the root went")
	}
}

// No id is used twice, whatever becomes of the nodes.
func TestIDs(t *testing.T) {
	r := newRig(t)
	seen := map[content.NodeID]bool{RootID: true}
	see := func(n *Node) {
		t.Helper()
		if seen[n.ID()] {
			t.Errorf("id %d is used twice", n.ID())
		}
		seen[n.ID()] = true
		n.Unpin()
	}
	r.write("f")
	for range 10 {
		see(r.find("f"))
		m, err := r.MakeUnnamed(r.Root(), 0o600, unix.O_RDONLY, r.me)
		r.must("make", err)
		m.Close()
		see(m.Node)
		s := &fake{key: 1, mode: unix.S_IFREG}
		see(r.Synthesise(r.Root(), "s", 1, unix.S_IFREG, s))
		n, err := r.make("g") // the host may use the inode number again
		r.must("make", err)
		r.must("unlink", r.unlink("g"))
		see(n)
	}
}

// What has several names is one node, by whichever of them it is found; as long as it is known, so are the
// directories of its names.
func TestNodeOfSeveralNames(t *testing.T) {
	r := newRig(t)
	r.mkdir("a", "b")
	r.write("a/f")
	r.must("link", r.link("a/f", "b/g"))
	r.must("link", r.link("b/g", "b/h"))
	n := r.find("a/f")
	if n.KnownNames() != 1 {
		t.Errorf("%d names are known", n.KnownNames())
	}
	for _, p := range []string{"b/g", "b/h", "a/f", "b/g"} {
		if o := r.find(p); o != n {
			t.Errorf("%s is another node", p)
		}
		n.Unpin()
	}
	if n.KnownNames() != 3 || n.Refs() != 1 {
		t.Errorf("%d names are known, %d references", n.KnownNames(), n.Refs())
	}
	for p, refs := range map[string]int64{"a": 1, "b": 2} {
		if dir := r.known(p); dir.Refs() != refs {
			t.Errorf("%s has %d references, want %d", p, dir.Refs(), refs)
		}
	}
	// It lives by any of them.
	r.must("unlink", r.unlink("a/f"))
	if n.Dead() || n.Path() != "b/g" && n.Path() != "b/h" {
		t.Errorf("dead: %v, path %s", n.Dead(), n.Path())
	}
	r.must("unlink", r.unlink("b/g"))
	r.must("unlink", r.unlink("b/h"))
	if !n.Dead() || n.Path() != "(unlinked)" || r.read(n) != "a/f" {
		t.Errorf("dead: %v, path %s", n.Dead(), n.Path())
	}
	n.Unpin()
}

// Some of very many names are enough, whichever of them go.
func TestManyNames(t *testing.T) {
	r := newRig(t)
	r.write("f")
	for i := range 3 * MaxNames {
		r.must("link", r.link("f", fmt.Sprint("l", i)))
	}
	n := r.find("f")
	defer n.Unpin()
	for i := range 3 * MaxNames {
		r.find(fmt.Sprint("l", i)).Unpin()
	}
	if n.KnownNames() != MaxNames {
		t.Errorf("%d names are kept", n.KnownNames())
	}
	r.must("unlink", r.unlink("f"))
	for i := range 3*MaxNames - 1 {
		r.must("unlink", r.unlink(fmt.Sprint("l", i)))
		if a, err := n.Attr(); err != nil || int(a.Nlink) != 3*MaxNames-1-i {
			t.Fatalf("after %d: %d names, %v", i, a.Nlink, err)
		}
	}
	r.must("rename", r.rename(fmt.Sprint("l", 3*MaxNames-1), "x", 0))
	r.same("x", "f")
	if r.known("x") != n || n.KnownNames() != 1 {
		t.Errorf("another node, or %d names are known", n.KnownNames())
	}
	r.must("unlink", r.unlink("x"))
	if got := r.read(n); got != "f" || !n.Dead() {
		t.Errorf("what has no name: %q, dead %v", got, n.Dead())
	}
}

// A node may get to be known by another of its names while somebody asks where it is.
func TestPathOfLinks(t *testing.T) {
	for what, ask := range map[string]func(n *Node) bool{
		"Path":  func(n *Node) bool { return n.Path() == "a/f" },
		"Below": func(n *Node) bool { return n.Below("a") && !n.Below("b") },
		"Stat":  func(n *Node) bool { var st unix.Stat_t; return n.Stat(&st) == nil },
		"Ways": func(n *Node) bool {
			ways := n.Ways()
			for _, way := range ways {
				for _, dir := range way {
					dir.Unpin()
				}
			}
			return len(ways) >= 1 && len(ways[0]) == 2
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.mkdir("a", "b")
			r.write("a/f")
			for i := range 30 {
				r.must("link", r.link("a/f", fmt.Sprint("b/", i)))
			}
			n := r.find("a/f")
			defer n.Unpin()
			var asked sync.WaitGroup
			asked.Go(func() {
				for range 1000 {
					if !ask(n) {
						t.Error("it is elsewhere")
						return
					}
				}
			})
			for i := range 30 {
				r.find(fmt.Sprint("b/", i)).Unpin()
			}
			asked.Wait()
		})
	}
}

// Ways are, of each known name, the folders above it, the next one first and the root last; none of what has
// no name.
func TestWays(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b/c", "d")
	r.write("a/b/c/f")
	r.must("link", r.link("a/b/c/f", "d/g"))
	n := r.find("a/b/c/f")
	r.find("d/g").Unpin()
	paths := func(n *Node) (paths []string) {
		for _, way := range n.Ways() {
			p := "-"
			for _, dir := range way {
				p += " " + dir.Path()
				dir.Unpin()
			}
			paths = append(paths, p)
		}
		return paths
	}
	if got := paths(n); !slices.Equal(got, []string{"- a/b/c a/b a ", "- d "}) {
		t.Errorf("%q", got)
	}
	if !n.Below("a") || n.Below("b") || n.Below("c") || r.Root().Below("a") {
		t.Error("below the wrong folder")
	}
	r.must("unlink", r.unlink("a/b/c/f"))
	r.must("unlink", r.unlink("d/g"))
	if got := paths(n); len(got) != 0 || n.Below("a") {
		t.Errorf("without a name: %q", got)
	}
	n.Unpin()
	if got := paths(r.Root()); !slices.Equal(got, []string{"-"}) {
		t.Errorf("of the root: %q", got)
	}
}

// Each node is pinned while it is looked at, and may be forgotten meanwhile.
func TestEach(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	r.write("d/f", "g")
	f, g := r.find("d/f"), r.find("g")
	r.must("unlink", r.unlink("g"))
	seen := map[*Node]bool{}
	r.Each(func(n *Node) {
		if len(seen) == 0 {
			f.Unpin()
			g.Unpin()
		}
		seen[n] = true
		if n.Refs() < 1 {
			t.Errorf("%s has %d references", n.Path(), n.Refs())
		}
	})
	if len(seen) != 4 || !seen[f] || !seen[g] || !seen[r.Root()] {
		t.Errorf("%d nodes", len(seen))
	}
}
