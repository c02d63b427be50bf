package volume

import (
	"ckptfs/fs/content"
	"ckptfs/fs/tree"
	"hash/fnv"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Virtual files are names that the daemon answers for, below .ckptfs at the mount's root. They are not listed there, cannot be
// changed (EROFS), and a real .ckptfs in the tree comes before them. Options.NoViews turns them off.
//
//	.ckptfs/tensors/PATH/TENSOR.npy     one tensor of a file; see tensorTree
//	.ckptfs/query/NAME                  write a GRAPH.json, read the match; see queryRoot
//	.ckptfs/lcp/RUN/STEP                the match of a stored model; see lcpRoot
//	.ckptfs/best/RUN/METRIC.min         a symbolic link to a run's best step; .max likewise; see bestRoot
//	.ckptfs/artifacts/ID.safetensors    the tensors of an artifact id; see XattrArtifact
//
// A kind of them is an entry of virtualKinds: a virtualDir, which says what its names lead to. Nothing is kept but the nodes
// that the kernel knows. A name is looked up anew each time, and leads to the node that it led to before as long as it means
// the same thing (virtual.key).

// virtualName is the directory of the virtual files.
const virtualName = ".ckptfs"

// virtualKinds are the directories in it, and what each name leads to.
var virtualKinds = map[string]func(v *Volume) virtual{
	"query":     queryRoot{}.virtual,
	"artifacts": func(*Volume) virtual { return virtual{dir: artifactDir{}, key: "artifacts", stat: statArtifacts} },
	"best":      bestRoot{}.virtual,
	"lcp":       lcpRoot{}.virtual,
	"tensors":   func(*Volume) virtual { return virtual{dir: tensorRoot{}, key: "tensors"} },
}

// virtualDir is a directory of names that the daemon answers for. No lock is held when its methods are called.
type virtualDir interface {
	// lookup finds a name; ENOENT when there is none.
	lookup(v *Volume, name string) (virtual, error)
	// list is the names in it, with Name and the S_IFMT bits of Mode. It may leave out names that lookup finds.
	list(v *Volume) ([]DirEntry, error)
}

// virtual is what a name leads to: of dir, link, data, text, view, set and query one is set.
type virtual struct {
	// key is comparable. While it is the same the name leads to the same node.
	key any
	// src is the node of the tree that this is made of, with a reference, which goes over to the node of the name; or nil.
	src *Node

	dir  virtualDir
	link func(v *Volume) (string, error) // the target of a symbolic link, asked for each time
	data []byte                          // a file's bytes
	text func(v *Volume) ([]byte, error) // a file's bytes, found anew by each open; its size is 0 as in /proc
	view *viewNode                       // a file over src's bytes; at is set by who gets it

	set   *setView // a file over those of a set
	query *query   // a file that may be written; see queryRoot

	// stat describes it: owner, times, and the permissions and S_IFMT bits of Mode; the rest is filled in. nil: src's
	// (without write permission), or, without one, the store's folder's, readable by all.
	stat func(v *Volume) (tree.Attr, error)
}

// virtualNode is the part of a Node that a virtual file has.
type virtualNode struct {
	virtual
	at alias
}

// virtualRoot is .ckptfs.
type virtualRoot struct{}

func (virtualRoot) lookup(v *Volume, name string) (virtual, error) {
	kind, ok := virtualKinds[name]
	if !ok {
		return virtual{}, unix.ENOENT
	}
	return kind(v), nil
}

func (virtualRoot) list(*Volume) ([]DirEntry, error) {
	var out []DirEntry
	for _, name := range slices.Sorted(maps.Keys(virtualKinds)) {
		out = append(out, DirEntry{Name: name, Mode: unix.S_IFDIR})
	}
	return out, nil
}

// isVirtualRoot reports whether dir/name is where the virtual files are, unless something real is there.
func (v *Volume) isVirtualRoot(dir *Node, name string) bool {
	return dir == v.names.root && name == virtualName && !v.noViews
}

// lookupVirtual finds what a name leads to in a virtual directory, or virtualName at the root, with one reference more.
func (v *Volume) lookupVirtual(dir *Node, name string) (*Node, tree.Attr, error) {
	w := virtual{dir: virtualRoot{}, key: virtualName}
	if dir != v.names.root {
		if dir.virt.dir == nil {
			return nil, tree.Attr{}, unix.ENOTDIR
		}
		var err error
		if w, err = dir.virt.dir.lookup(v, name); err != nil {
			return nil, tree.Attr{}, err
		}
	}
	n := v.internVirtual(dir, name, w)
	a, err := v.statVirtual(n)
	if err != nil {
		n.unref(1)
		return nil, tree.Attr{}, err
	}
	return n, a, nil
}

// internVirtual returns the node of w by the name dir/name, with one reference more. It takes w.src's reference.
func (v *Volume) internVirtual(dir *Node, name string, w virtual) *Node {
	at := alias{dir, name}
	t := v.names.tab
	t.mu.Lock()
	if n := t.virtual[at]; n != nil && n.virt.key == w.key {
		n.refs++
		t.mu.Unlock()
		if w.src != nil {
			w.src.unref(1)
		}
		return n
	}
	defer t.mu.Unlock()
	n := &Node{ns: v.names, id: t.newID(), mode: w.mode(), keep: -1, refs: 1, dirfd: cachedFd{fd: -1}, virt: &virtualNode{w, at}}
	n.ino = virtualInoOf(dir, name)
	if n.view = w.view; n.view != nil {
		n.view.at = at
	}
	dir.refs++
	t.byID[n.id] = n
	t.virtual[at] = n
	return n
}

// virtualIno marks the inode numbers of virtual files, as viewIno does those of views.
const virtualIno = 1 << 63

// virtualInoOf is the number of a name, as long as it is there.
func virtualInoOf(dir *Node, name string) uint64 {
	sum := fnv.New64a()
	io.WriteString(sum, name)
	return (sum.Sum64()^dir.ino*31)&^(viewIno|virtualIno) | virtualIno
}

func (w *virtual) mode() uint32 {
	switch {
	case w.dir != nil:
		return unix.S_IFDIR
	case w.link != nil:
		return unix.S_IFLNK
	}
	return unix.S_IFREG
}

func (w *virtual) size() int64 {
	if w.view != nil {
		return w.view.size
	}
	if w.set != nil {
		return w.set.plan.Size()
	}
	if w.query != nil {
		return w.query.size()
	}
	return int64(len(w.data))
}

// statVirtual describes a virtual file.
func (v *Volume) statVirtual(n *Node) (a tree.Attr, err error) {
	w := n.virt
	switch {
	case w.stat != nil:
		a, err = w.stat(v)
	case w.src != nil:
		a, err = v.Stat(w.src)
		a.Mode = n.mode | withoutWrite(a.Mode, n.mode)
	default:
		a, err = v.Stat(v.names.root)
		a.Mode = n.mode | withoutWrite(0o444, n.mode)
	}
	if err != nil {
		return tree.Attr{}, err
	}
	a.Ino, a.Nlink, a.Rdev, a.Settled = n.ino, 1, 0, n.IsFixed()
	if a.Size = w.size(); n.mode == unix.S_IFLNK {
		a.Mode = n.mode | 0o777
	}
	a.Blocks = (a.Size + 511) / 512
	return a, nil
}

// restat has the kernel ask again for the attributes of fixed nodes, which are made of the root's.
func (v *Volume) restat() {
	var ids []content.NodeID
	v.names.tab.mu.Lock()
	for _, n := range v.names.tab.virtual {
		if n.IsFixed() {
			ids = append(ids, n.id)
		}
	}
	v.names.tab.mu.Unlock()
	for _, id := range ids {
		v.content.Kernel.InvalidateData(id, -1, 0)
	}
}

// withoutWrite is what is left of a mode's permissions for something of type kind that nobody may change. Who may read a
// file may enter the directory that it is shown as.
func withoutWrite(mode, kind uint32) uint32 {
	read := mode & 0o444
	switch {
	case kind != unix.S_IFDIR:
		return read
	case mode&unix.S_IFMT == unix.S_IFDIR:
		return mode & 0o555
	}
	return read | read>>2
}

// listVirtual is the names in a virtual directory, "." and ".." among them.
func (v *Volume) listVirtual(n *Node) ([]DirEntry, error) {
	names, err := n.virt.dir.list(v)
	if err != nil {
		return nil, err
	}
	out := append([]DirEntry{
		{Name: ".", Ino: n.ino, Mode: unix.S_IFDIR}, {Name: "..", Ino: n.virt.at.dir.ino, Mode: unix.S_IFDIR},
	}, names...)
	for i := 2; i < len(out); i++ {
		out[i].Ino = virtualInoOf(n, out[i].Name)
	}
	return out, nil
}

// openVirtual opens a virtual file that is no view.
func (v *Volume) openVirtual(n *Node, flags uint32) (*Handle, error) {
	if n.virt.query != nil {
		return v.openQuery(n, flags)
	}
	switch {
	case flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0:
		return nil, unix.EROFS
	case n.mode != unix.S_IFREG:
		return nil, unix.ENXIO
	case n.virt.set != nil && (!n.virt.set.current() || !n.virt.set.retain()):
		return nil, unix.ESTALE
	}
	h := &Handle{Node: n, Mode: content.Cached, KeepCache: true}
	if n.virt.text != nil {
		text, err := n.virt.text(v)
		if err != nil {
			return nil, err
		}
		h = &Handle{Node: n, Mode: content.Direct, text: text}
	}
	n.Pin()
	v.content.Count.Handles.Add(1)
	return h, nil
}

// readVirtual reads a virtual file that is no view.
func readVirtual(h *Handle, p []byte, off int64) (int, error) {
	data := h.Node.virt.data
	switch {
	case h.Node.virt.set != nil:
		return h.Node.virt.set.read(p, off)
	case h.Node.virt.query != nil:
		return h.Node.virt.query.read(p, off), nil
	case h.text != nil:
		data = h.text
	}
	if off >= int64(len(data)) {
		return 0, nil
	}
	return copy(p, data[off:]), nil
}
