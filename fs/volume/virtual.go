package volume

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
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
	list(v *Volume) ([]tree.DirEntry, error)
}

// changing is a virtualDir in which names are made and removed.
type changing interface {
	create(v *Volume, name string) (virtual, error)
	remove(v *Volume, name string) error
}

// virtual is what a name leads to: of dir, link, data, text, view, set and query one is set.
type virtual struct {
	// key is comparable. While it is the same the name leads to the same node.
	key any
	// src is the node of the tree that this is made of, with a reference, which goes over to the node of the name; or nil.
	src *names.Node

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

// virtualNode is the Synthetic of a virtual file.
type virtualNode struct {
	virtual
	v     *Volume
	mode  uint32 // S_IFMT bits only
	fixed bool
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

func (virtualRoot) list(*Volume) ([]tree.DirEntry, error) {
	var out []tree.DirEntry
	for _, name := range slices.Sorted(maps.Keys(virtualKinds)) {
		out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFDIR})
	}
	return out, nil
}

// isVirtualRoot reports whether dir/name is where the virtual files are, unless something real is there.
func (v *Volume) isVirtualRoot(dir *names.Node, name string) bool {
	return dir == v.names.Root() && name == virtualName && !v.noViews
}

// lookupVirtualRoot is the node of virtualName at the root, with one reference more.
func (v *Volume) lookupVirtualRoot() *names.Node {
	return v.internVirtual(v.names.Root(), virtualName, virtual{dir: virtualRoot{}, key: virtualName})
}

// internVirtual returns the node of w by the name dir/name, with one reference more. It takes w.src's reference.
func (v *Volume) internVirtual(dir *names.Node, name string, w virtual) *names.Node {
	fixed := dir.Synth() == nil || dir.Synth().Key() == virtualName
	return v.names.Synthesise(dir, name, names.InoOf(dir, name), w.mode(), &virtualNode{w, v, w.mode(), fixed})
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

// Key is that of what the name leads to.
func (n *virtualNode) Key() any { return n.key }

// Traits are those of a virtual file.
func (n *virtualNode) Traits() names.Traits {
	return names.Traits{View: n.view != nil, Virtual: true, Fixed: n.fixed, Query: n.query != nil}
}

// Size is what can be read of it, as far as that is known.
func (n *virtualNode) Size() int64 { return n.size() }

// made is the view that it is, or nil.
func (n *virtualNode) made() *viewNode { return n.view }

// Stat describes a virtual file.
func (n *virtualNode) Stat() (a tree.Attr, err error) {
	v := n.v
	switch {
	case n.stat != nil:
		a, err = n.stat(v)
	case n.src != nil:
		a, err = v.Stat(n.src)
		a.Mode = n.mode | withoutWrite(a.Mode, n.mode)
	default:
		a, err = v.Stat(v.names.Root())
		a.Mode = n.mode | withoutWrite(0o444, n.mode)
	}
	if n.mode == unix.S_IFLNK {
		a.Mode = n.mode | 0o777
	}
	return a, err
}

// Setattr cuts what is being asked; of anything else nothing can be changed.
func (n *virtualNode) Setattr(s *tree.SetAttr) error {
	if n.query == nil {
		return unix.EROFS
	}
	if s.Size != nil {
		n.query.mu.Lock()
		defer n.query.mu.Unlock()
		n.query.truncate(*s.Size)
	}
	return nil
}

// Readlink is the target of a symbolic link.
func (n *virtualNode) Readlink() (string, error) {
	if n.link == nil {
		return "", unix.EINVAL
	}
	return n.link(n.v)
}

// Lookup finds a name in a directory.
func (n *virtualNode) Lookup(dir *names.Node, name string) (*names.Node, error) {
	if n.dir == nil {
		return nil, unix.ENOTDIR
	}
	w, err := n.dir.lookup(n.v, name)
	if err != nil {
		return nil, err
	}
	return n.v.internVirtual(dir, name, w), nil
}

// List is the names in a directory.
func (n *virtualNode) List() ([]tree.DirEntry, error) {
	if n.dir == nil {
		return nil, unix.ENOTDIR
	}
	return n.dir.list(n.v)
}

// Create makes a name in a directory that has some made.
func (n *virtualNode) Create(dir *names.Node, name string) (*names.Node, error) {
	d, ok := n.dir.(changing)
	if !ok {
		return nil, unix.EROFS
	}
	w, err := d.create(n.v, name)
	if err != nil {
		return nil, err
	}
	return n.v.internVirtual(dir, name, w), nil
}

// Remove removes a name from a directory that has some made.
func (n *virtualNode) Remove(name string) error {
	d, ok := n.dir.(changing)
	if !ok {
		return unix.EROFS
	}
	return d.remove(n.v, name)
}

// Gone takes the reference to what it is made of back.
func (n *virtualNode) Gone() {
	if n.src != nil {
		n.src.Unpin()
	}
}

// restat has the kernel ask again for the attributes of fixed nodes, which are made of the root's.
func (v *Volume) restat() {
	for _, id := range v.names.FixedIDs() {
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

// Open opens a virtual file.
func (n *virtualNode) Open(flags uint32) (names.Opened, content.Mode, error) {
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	switch {
	case n.query != nil:
		return n.query.open(n.v, write, flags)
	case write || flags&unix.O_TRUNC != 0:
		return nil, 0, unix.EROFS
	case n.view != nil:
		return n.view.open()
	case n.mode != unix.S_IFREG:
		return nil, 0, unix.ENXIO
	case n.set != nil:
		if !n.set.current() || !n.set.retain() {
			return nil, 0, unix.ESTALE
		}
		return openSet{s: n.set}, content.Cached, nil
	case n.text != nil:
		text, err := n.text(n.v)
		return openData{data: text}, content.Direct, err
	}
	return openData{data: n.data}, content.Cached, nil
}

// openData is an open file of these bytes.
type openData struct {
	unwritten
	data []byte
}

func (o openData) Close() {}

func (o openData) Read(p []byte, off int64) (int, error) {
	if off >= int64(len(o.data)) {
		return 0, nil
	}
	return copy(p, o.data[off:]), nil
}
