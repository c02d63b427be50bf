package names

import (
	"context"
	"hash/fnv"
	"io"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// Synthetic is what a node is that has no inode of its own: a view, or a name below .ckptfs. The node has a
// reference to its directory, and Synthetic to whatever it is made of. Key, Traits and Origin take no lock,
// since they are called with table.mu held; when another method is called no lock is. What a Caller is told
// is for that Caller alone: another may be told that there is no such name.
type Synthetic interface {
	// Key is comparable. While it is the same a name leads to the same node.
	Key() any
	Traits() Traits
	// Origin is what it is made of. It never changes.
	Origin() Origin
	// Stat describes it: owner, times, permissions and S_IFMT bits. The rest of Attr follows from the node,
	// Size and Traits. Settled counts of a fixed one.
	Stat() (tree.Attr, error)
	Setattr(s *tree.SetAttr) error
	Size() int64
	Readlink(c tree.Caller) (string, error)
	// Open ends early, with the error of ctx, when its caller has gone.
	Open(ctx context.Context, c tree.Caller, flags uint32) (Opened, content.Mode, error)
	// Lookup finds a name in it, as dir, with one reference more.
	Lookup(ctx context.Context, c tree.Caller, dir *Node, name string) (*Node, error)
	// List is the names in it, with Name and the S_IFMT bits of Mode.
	List(c tree.Caller) ([]tree.DirEntry, error)
	// Create makes a regular file in it, as dir, with one reference more.
	Create(dir *Node, name string) (*Node, error)
	Remove(name string) error
	// Gone is called once, when the node has left the table.
	Gone()
}

// Traits are what those who have a node have to know of a Synthetic.
type Traits struct {
	View    bool // made of a file's bytes; it stands beside that file unless Virtual
	Virtual bool // below .ckptfs: it may go, or be another, without a request of the kernel's
	Fixed   bool // .ckptfs or a folder in it, which are always there
	Query   bool // below .ckptfs/query
	Passing bool // it ends with this process: the next one knows nothing of it
	Brief   bool // its name leads all callers to the same: the kernel may keep both for a tick of its clock
}

// Origin is what a Synthetic is made of, for the process that serves the mount next: by one name, what has
// the same origin is the same node, and has the same bytes.
type Origin struct {
	Src  *Node   // nil: none
	Gen  uint64  // the generation of its bytes, as content.State has it, of a file that is made of them
	Size int64   // of such a file
	Also []*Node // of a file that is made of several: the others. Gen tells of the generations of all
}

// id is the node's id, 0 if there is none.
func (o *Origin) id() content.NodeID {
	if o.Src == nil {
		return 0
	}
	return o.Src.id
}

// Opened is an open Synthetic.
type Opened interface {
	// Read reads into p at off. Fewer bytes than asked for mean the end.
	Read(p []byte, off int64) (int, error)
	Write(p []byte, off int64) (int, error)
	// Flush is a close(2).
	Flush(ctx context.Context) error
	Close()
}

// IsView reports whether the node is made of a file's bytes.
func (n *Node) IsView() bool { return n.synth != nil && n.synth.Traits().View }

// IsVirtual reports whether the node is below .ckptfs: it may go, or be another, without a request of the
// kernel's.
func (n *Node) IsVirtual() bool { return n.synth != nil && n.synth.Traits().Virtual }

// IsFixed reports whether a virtual node is .ckptfs or a folder in it, which are always there.
func (n *Node) IsFixed() bool { return n.synth != nil && n.synth.Traits().Fixed }

// IsQuery reports whether the node is a name below .ckptfs/query.
func (n *Node) IsQuery() bool { return n.synth != nil && n.synth.Traits().Query }

// IsBrief reports whether the kernel may keep the node's name and attributes for a tick of its clock.
func (n *Node) IsBrief() bool { return n.synth != nil && n.synth.Traits().Brief }

// Synthesise returns the node of s by the name dir/name, with one reference more. Where the name leads to the
// same already, s is gone.
func (ns *Names) Synthesise(dir *Node, name string, ino uint64, mode uint32, s Synthetic) *Node {
	at := Alias{dir, name}
	t := ns.tab
	t.mu.Lock()
	if n := t.synthetic[at]; n != nil && n.synth.Key() == s.Key() {
		n.refs++
		t.mu.Unlock()
		s.Gone()
		return n
	}
	defer t.mu.Unlock()
	o := s.Origin()
	n := t.newNodeLocked(t.past.syntheticLocked(at, o, ino, mode), ino, mode)
	n.synth, n.names = s, []Alias{at}
	dir.refs++
	if was := t.synthetic[at]; was == nil || was.id < n.id { // else it is an older one that is still open
		t.synthetic[at] = n
	}
	t.viewLocked(o.Src)
	for _, src := range o.Also {
		t.viewLocked(src)
	}
	t.heir.Load().put(n)
	return n
}

// viewLocked notes that something is made of a node: its generation is written down from now on.
func (t *table) viewLocked(src *Node) {
	if src != nil && src.file != nil && !src.viewed {
		src.viewed = true
		t.heir.Load().put(src)
	}
}

// KeepsPages reports whether an open may say that the pages which the kernel has of a synthetic node are
// right. The first open of a node of the past does not: nothing tells who filled them.
func (n *Node) KeepsPages() bool { return !n.past || n.opened.Swap(true) }

// attrOfSynthetic describes a node that has no inode.
func attrOfSynthetic(n *Node) (tree.Attr, error) {
	a, err := n.synth.Stat()
	if err != nil {
		return tree.Attr{}, err
	}
	a.Ino, a.Nlink, a.Rdev, a.Settled = n.ino, 1, 0, a.Settled && n.IsFixed()
	a.Size = n.synth.Size()
	a.Blocks = min(a.Size, 1) // it takes none, of which tar -S makes a file of zeros without looking
	return a, nil
}

// listSynthetic is the names in a synthetic directory, "." and ".." among them.
func listSynthetic(n *Node, c tree.Caller) ([]tree.DirEntry, error) {
	names, err := n.synth.List(c)
	if err != nil {
		return nil, err
	}
	out := append([]tree.DirEntry{
		{Name: ".", Ino: n.ino, Mode: unix.S_IFDIR},
		{Name: "..", Ino: n.names[0].Dir.ino, Mode: unix.S_IFDIR},
	}, names...)
	for i := 2; i < len(out); i++ {
		out[i].Ino = InoOf(n, out[i].Name)
	}
	return out, nil
}

// ViewIno marks the inode numbers of views. The source's number is below it on every filesystem in use.
const ViewIno = 1 << 62

// virtualIno marks the inode numbers of virtual files, as ViewIno does those of views.
const virtualIno = 1 << 63

// InoOf is the inode number of a virtual name, as long as it is there.
func InoOf(dir *Node, name string) uint64 {
	sum := fnv.New64a()
	io.WriteString(sum, name)
	return (sum.Sum64()^dir.ino*31)&^(ViewIno|virtualIno) | virtualIno
}

// FixedIDs are the kernel's ids of the nodes that are always there: .ckptfs and the folders in it.
func (ns *Names) FixedIDs() (ids []content.NodeID) {
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	for _, n := range ns.tab.synthetic {
		if n.IsFixed() {
			ids = append(ids, n.id)
		}
	}
	return ids
}
