package names

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// fake is a Synthetic.
type fake struct {
	key    any
	mode   uint32 // S_IFMT bits
	traits Traits
	err    error // of Stat, List and Setattr
	origin Origin
	gone   int
	set    int
}

func (s *fake) Key() any       { return s.key }
func (s *fake) Traits() Traits { return s.traits }
func (s *fake) Size() int64    { return 1000 }
func (s *fake) Origin() Origin { return s.origin }
func (s *fake) Gone()          { s.gone++ }

func (s *fake) Stat() (tree.Attr, error) {
	return tree.Attr{Mode: s.mode | 0o440, UID: 5, Ino: 6, Nlink: 7, Rdev: 8, Settled: true}, s.err
}
func (s *fake) Setattr(*tree.SetAttr) error          { s.set++; return s.err }
func (s *fake) Readlink(tree.Caller) (string, error) { return "target", s.err }
func (s *fake) Open(context.Context, tree.Caller, uint32) (Opened, content.Mode, error) {
	return nil, 0, unix.ENXIO
}
func (s *fake) Lookup(context.Context, tree.Caller, *Node, string) (*Node, error) {
	return nil, unix.ENOENT
}
func (s *fake) Create(*Node, string) (*Node, error) { return nil, unix.EROFS }
func (s *fake) Remove(string) error                 { return unix.EROFS }
func (s *fake) List(tree.Caller) ([]tree.DirEntry, error) {
	return []tree.DirEntry{{Name: "x", Mode: unix.S_IFREG}}, s.err
}

// The same key by the same name is the same node; another key, directory or name is another one.
func TestSynthesise(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	d := r.find("d")
	a := &fake{key: "k", mode: unix.S_IFREG}
	n := r.Synthesise(d, "v", ViewIno|1, unix.S_IFREG, a)
	if n.Synth() != a || n.Path() != "d/v" || n.Refs() != 1 || d.Refs() != 2 || n.File() != nil {
		t.Errorf("%s, %d references, %d to its directory", n.Path(), n.Refs(), d.Refs())
	}
	again := &fake{key: "k", mode: unix.S_IFREG}
	if o := r.Synthesise(d, "v", ViewIno|1, unix.S_IFREG, again); o != n || n.Refs() != 2 {
		t.Errorf("another node of the same key; %d references", n.Refs())
	}
	if again.gone != 1 || a.gone != 0 {
		t.Errorf("gone: %d, and %d of the node's own", again.gone, a.gone)
	}
	b := &fake{key: "other", mode: unix.S_IFREG}
	o := r.Synthesise(d, "v", ViewIno|1, unix.S_IFREG, b)
	if o == n || o.ID() == n.ID() {
		t.Error("another key is the same node")
	}
	n.unref(2)
	if a.gone != 1 || r.Get(n.ID()) != nil {
		t.Errorf("gone %d times", a.gone)
	}
	// The name still leads to the other one.
	if p := r.Synthesise(d, "v", ViewIno|1, unix.S_IFREG, &fake{key: "other"}); p != o {
		t.Error("another node, once the first had gone")
	}
	for _, at := range []Alias{{d, "w"}, {r.Root(), "v"}} {
		c := &fake{key: "other"}
		p := r.Synthesise(at.Dir, at.Name, 1, unix.S_IFREG, c)
		if p == o {
			t.Errorf("%s is the same node", at.Name)
		}
		p.Unpin()
		if c.gone != 1 {
			t.Errorf("gone %d times", c.gone)
		}
	}
	// It holds its directory.
	d.Unpin()
	if r.known("d") != d {
		t.Error("the directory of a node is another one")
	}
	o.unref(2)
	if b.gone != 1 || again.gone != 1 || a.gone != 1 {
		t.Errorf("gone %d, %d and %d times", a.gone, again.gone, b.gone)
	}
}

// Who asks for the same name at the same time gets the same node, and all that were offered go.
func TestSynthesiseAtOnce(t *testing.T) {
	r := newRig(t)
	fakes := make([]*fake, 200)
	var asked sync.WaitGroup
	for i := range fakes {
		fakes[i] = &fake{key: i % 3, mode: unix.S_IFREG}
		asked.Go(func() {
			n := r.Synthesise(r.Root(), "v", 1, unix.S_IFREG, fakes[i])
			if n.Synth().Key() != i%3 {
				t.Errorf("key %v, want %d", n.Synth().Key(), i%3)
			}
			n.Unpin()
		})
	}
	asked.Wait()
	for i, s := range fakes {
		if s.gone != 1 {
			t.Errorf("%d is gone %d times", i, s.gone)
		}
	}
}

// What is no inode's fact comes from the node.
func TestSyntheticAttr(t *testing.T) {
	r := newRig(t)
	s := &fake{key: 1, mode: unix.S_IFREG, traits: Traits{View: true}}
	n := r.Synthesise(r.Root(), "v", ViewIno|77, unix.S_IFREG, s)
	defer n.Unpin()
	want := tree.Attr{Ino: ViewIno | 77, Mode: unix.S_IFREG | 0o440, UID: 5, Nlink: 1, Size: 1000, Blocks: 1}
	if a, err := n.Attr(); err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := n.SetAttr(&tree.SetAttr{}); err != nil || a != want || s.set != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if to, err := n.Readlink(); err != nil || to != "target" {
		t.Errorf("%q, %v", to, err)
	}
	if got := n.Path(); got != "v (view)" {
		t.Errorf("path %q", got)
	}
	s.err = unix.ESTALE
	_, err := n.Attr()
	r.want("attr", err, unix.ESTALE)
	_, err = n.SetAttr(&tree.SetAttr{})
	r.want("setattr", err, unix.ESTALE)
	_, err = r.Link(n, r.Root(), "x")
	r.want("link", err, unix.EPERM)
}

// A synthetic directory is listed, and no name of the tree's can be made in it.
func TestSyntheticDirectory(t *testing.T) {
	r := newRig(t)
	s := &fake{key: 1, mode: unix.S_IFDIR, traits: Traits{Virtual: true, Fixed: true}}
	n := r.Synthesise(r.Root(), "v", InoOf(r.Root(), "v"), unix.S_IFDIR, s)
	defer n.Unpin()
	d, err := n.OpenDir()
	r.must("open", err)
	shown := func(*Node, []tree.DirEntry) []tree.DirEntry { t.Error("what is shown of a synthetic one"); return nil }
	l, err := d.Entries(r.me, 0, shown)
	want := inOrder([]tree.DirEntry{
		{Name: ".", Ino: n.Ino(), Mode: unix.S_IFDIR}, {Name: "..", Ino: r.Root().Ino(), Mode: unix.S_IFDIR},
		{Name: "x", Ino: InoOf(n, "x"), Mode: unix.S_IFREG},
	})
	if err != nil || !slices.Equal(l, want) {
		t.Errorf("%+v, %v", l, err)
	}
	r.must("fsync", d.Fsync())
	s.err = unix.EIO
	_, err = d.Entries(r.me, 0, shown)
	r.want("list", err, unix.EIO)
	d.Release()
	if ids := r.FixedIDs(); !slices.Equal(ids, []content.NodeID{n.ID()}) {
		t.Errorf("fixed: %v", ids)
	}

	_, err = r.MakeFile(n, "f", 0o644, 0, r.me)
	r.want("create", err, unix.EROFS)
	_, err = r.MakeUnnamed(n, 0o644, 0, r.me)
	r.want("unnamed", err, unix.EROFS)
	_, _, err = r.Make(n, "f", r.me, nil, func(int) error { t.Error("called"); return nil })
	r.want("mkdir", err, unix.EROFS)
	_, err = r.Remove(n, "f", 0)
	r.want("unlink", err, unix.EROFS)
	r.write("f")
	f := r.find("f")
	defer f.Unpin()
	_, err = r.Link(f, n, "g")
	r.want("link", err, unix.EROFS)
	_, _, err = r.Rename(r.Root(), "f", n, "g", 0)
	r.want("rename into it", err, unix.EROFS)
	_, _, err = r.Rename(n, "x", r.Root(), "g", 0)
	r.want("rename out of it", err, unix.EROFS)
	_, _, err = r.Child(n, "x")
	r.want("child", err, unix.EROFS)
	r.same("f", "f")
}

// The inode numbers of virtual names are marked, and differ by name and by directory.
func TestInoOf(t *testing.T) {
	r := newRig(t)
	r.mkdir("d")
	d := r.find("d")
	defer d.Unpin()
	seen := map[uint64]bool{}
	for _, dir := range []*Node{r.Root(), d} {
		for _, name := range []string{"", "a", "b", "ab", strings.Repeat("n", 255)} {
			ino := InoOf(dir, name)
			if ino&virtualIno == 0 || ino&ViewIno != 0 || seen[ino] || ino != InoOf(dir, name) {
				t.Errorf("%s/%s: %#x", dir.Path(), name, ino)
			}
			seen[ino] = true
		}
	}
}
