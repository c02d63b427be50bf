package volume

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// Synthetic is what a node is that has no inode of its own: a view, or a name below .ckptfs. The node has a reference to its
// directory, and Synthetic to whatever it is made of. No lock is held when a method is called.
type Synthetic interface {
	// Key is comparable. While it is the same a name leads to the same node.
	Key() any
	Traits() Traits
	// Stat describes it: owner, times, permissions and S_IFMT bits. The rest of Attr follows from the node, Size and Traits.
	Stat() (tree.Attr, error)
	Setattr(s *tree.SetAttr) error
	Size() int64
	Readlink() (string, error)
	Open(flags uint32) (Opened, content.Mode, error)
	// Lookup finds a name in it, as dir, with one reference more.
	Lookup(dir *Node, name string) (*Node, error)
	// List is the names in it, with Name and the S_IFMT bits of Mode.
	List() ([]DirEntry, error)
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

// IsVirtual reports whether the node is below .ckptfs: it may go, or be another, without a request of the kernel's.
func (n *Node) IsVirtual() bool { return n.synth != nil && n.synth.Traits().Virtual }

// IsFixed reports whether a virtual node is .ckptfs or a folder in it, which are always there.
func (n *Node) IsFixed() bool { return n.synth != nil && n.synth.Traits().Fixed }

// IsQuery reports whether the node is a name below .ckptfs/query.
func (n *Node) IsQuery() bool { return n.synth != nil && n.synth.Traits().Query }

// synthesise returns the node of s by the name dir/name, with one reference more. Where the name leads to the same already, s is
// gone.
func (ns *Names) synthesise(dir *Node, name string, ino uint64, mode uint32, s Synthetic) *Node {
	at := alias{dir, name}
	t := ns.tab
	t.mu.Lock()
	if n := t.synthetic[at]; n != nil && n.synth.Key() == s.Key() {
		n.refs++
		t.mu.Unlock()
		s.Gone()
		return n
	}
	defer t.mu.Unlock()
	n := &Node{ns: ns, id: t.next, ino: ino, mode: mode, synth: s, names: []alias{at}, keep: -1, refs: 1, dirfd: cachedFd{fd: -1}}
	t.next++
	dir.refs++
	t.byID[n.id] = n
	t.synthetic[at] = n
	return n
}

// statSynthetic describes a node that has no inode.
func statSynthetic(n *Node) (tree.Attr, error) {
	a, err := n.synth.Stat()
	if err != nil {
		return tree.Attr{}, err
	}
	a.Ino, a.Nlink, a.Rdev, a.Settled = n.ino, 1, 0, n.IsFixed()
	a.Size = n.synth.Size()
	a.Blocks = (a.Size + 511) / 512
	return a, nil
}

// found is what Lookup returns of a synthetic node, whose reference it takes if there is an error.
func found(n *Node, err error) (*Node, tree.Attr, error) {
	if err != nil {
		return nil, tree.Attr{}, err
	}
	a, err := statSynthetic(n)
	if err != nil {
		n.unref(1)
		return nil, tree.Attr{}, err
	}
	return n, a, nil
}

// listSynthetic is the names in a synthetic directory, "." and ".." among them.
func listSynthetic(n *Node) ([]DirEntry, error) {
	names, err := n.synth.List()
	if err != nil {
		return nil, err
	}
	out := append([]DirEntry{
		{Name: ".", Ino: n.ino, Mode: unix.S_IFDIR}, {Name: "..", Ino: n.names[0].dir.ino, Mode: unix.S_IFDIR},
	}, names...)
	for i := 2; i < len(out); i++ {
		out[i].Ino = virtualInoOf(n, out[i].Name)
	}
	return out, nil
}

// openSynthetic opens a node that has no inode.
func (v *Volume) openSynthetic(n *Node, flags uint32) (*Handle, error) {
	o, mode, err := n.synth.Open(flags)
	if err != nil {
		return nil, err
	}
	n.Pin()
	v.content.Count.Handles.Add(1)
	return &Handle{Node: n, Mode: mode, KeepCache: mode == content.Cached, write: flags&unix.O_ACCMODE != unix.O_RDONLY, synth: o}, nil
}

// Answer asks what was written by a handle, if it is one of a query; EINVAL when that is no graph. Every close(2) comes here.
func (v *Volume) Answer(ctx context.Context, h *Handle) error {
	if h.synth == nil {
		return nil
	}
	return h.synth.Flush(ctx)
}
