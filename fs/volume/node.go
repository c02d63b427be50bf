package volume

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// RootID is the mount's root.
const RootID content.NodeID = 1

// alias is one name of a node.
type alias struct {
	dir  *Node
	name string
}

// Node is a file, directory or anything else that has a name in the tree, or is Synthetic.
//
// The fields in the first block never change. names, dead and keep are guarded by Volume.ns (written only under its
// exclusive lock, or under the shared one plus table.mu while the node is new); refs by table.mu; the rest of a regular
// file's state is in file, which has a lock of its own.
type Node struct {
	ns    *Names
	id    content.NodeID
	ino   uint64        // the inode's number; for a view the source's with viewIno set
	mode  uint32        // S_IFMT bits only
	file  *content.File // regular files
	synth Synthetic     // nil for what is in the tree

	names []alias // the names that are known; a hard link may have others
	keep  int     // O_PATH descriptor of the inode of a node without a known name, else -1
	dead  bool    // no name leads here, and only Link of an O_TMPFILE can change that

	// refs counts what keeps the node in the table: one per lookup that the kernel has not forgotten, one per
	// handle, one per name of a child in the table, one per pin (queue, hot list, view of it).
	refs int64

	dirfd cachedFd // directories: guarded by fdCache.mu
}

// IsDir reports whether the node is a directory.
func (n *Node) IsDir() bool { return n.mode == unix.S_IFDIR }

// ID is the node's id in the kernel.
func (n *Node) ID() content.NodeID { return n.id }

// Ino is the inode number that programs see.
func (n *Node) Ino() uint64 { return n.ino }

// Names are the mount's names: nodes by the kernel's id and by inode, looked up, made, moved and removed on the host.
type Names struct {
	v *Volume

	privileged bool // files may be given to others
	ns         sync.RWMutex
	tab        *table
	fds        *fdCache
	root       *Node
	rootFd     int
	moves      *movesLog         // while a marker walks; guarded by ns
	walked     func(path string) // called by a marker behind each directory; for tests
}

func newNames(v *Volume) *Names {
	ns := &Names{v: v, privileged: os.Geteuid() == 0, fds: newFdCache(openDirs), rootFd: -1}
	ns.tab = newTable(ns)
	return ns
}

// inoKey tells inodes of the tree apart. The tree is one filesystem: nothing is mounted in it.
type inoKey uint64

// table finds nodes by the kernel's id and by inode number.
type table struct {
	ns    *Names
	mu    sync.Mutex
	byID  map[content.NodeID]*Node
	byIno map[inoKey]*Node
	next  content.NodeID

	synthetic map[alias]*Node // the nodes that are made up, by their one name, without references
}

func newTable(ns *Names) *table {
	return &table{ns: ns, byID: map[content.NodeID]*Node{}, byIno: map[inoKey]*Node{}, next: RootID, synthetic: map[alias]*Node{}}
}

// get returns the node of a kernel id, or nil.
func (t *table) get(id content.NodeID) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// getRef is get with one reference more.
func (t *table) getRef(id content.NodeID) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n != nil {
		n.refs++
	}
	return n
}

// findIno returns the node of an inode of the tree with one reference more, or nil.
func (t *table) findIno(ino uint64) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byIno[inoKey(ino)]
	if n != nil {
		n.refs++
	}
	return n
}

// each calls f with every node, outside the table's lock; each node is pinned while f runs.
func (ns *Names) eachNode(f func(*Node)) {
	ns.tab.mu.Lock()
	nodes := make([]*Node, 0, len(ns.tab.byID))
	for _, n := range ns.tab.byID {
		n.refs++
		nodes = append(nodes, n)
	}
	ns.tab.mu.Unlock()
	for _, n := range nodes {
		f(n)
		n.unref(1)
	}
}

// intern returns the node of the inode that st describes and that dir/name leads to, with one reference more. The
// caller holds v.ns, shared or exclusive.
func (ns *Names) intern(dir *Node, name string, st *unix.Stat_t) *Node {
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byIno[inoKey(st.Ino)]; n != nil {
		n.refs++
		ns.addAlias(n, dir, name)
		return n
	}
	n := t.insert(st)
	ns.addAlias(n, dir, name)
	return n
}

// insert adds a node with one reference. t.mu is held.
func (t *table) insert(st *unix.Stat_t) *Node {
	n := &Node{ns: t.ns, id: t.next, ino: st.Ino, mode: st.Mode & unix.S_IFMT, keep: -1, refs: 1, dirfd: cachedFd{fd: -1}}
	t.next++
	if n.mode == unix.S_IFREG {
		n.file = content.NewFile(t.ns.v.content, n)
	}
	t.byID[n.id] = n
	t.byIno[inoKey(n.ino)] = n
	return n
}

// maxNames is how many names of a node are kept: any leads to it, and each new one is looked for among them.
const maxNames = 32

// addAlias records a name, unless enough are known. table.mu is held.
func (ns *Names) addAlias(n, dir *Node, name string) {
	for _, a := range n.names {
		if a.dir == dir && a.name == name {
			return
		}
	}
	if len(n.names) >= maxNames {
		return
	}
	if dir != nil {
		dir.refs++
	}
	n.names = append(n.names, alias{dir, name})
}

// dropAlias forgets a name. v.ns is held exclusively.
func (ns *Names) dropAlias(n, dir *Node, name string) {
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	for i, a := range n.names {
		if a.dir == dir && a.name == name {
			n.names = append(n.names[:i], n.names[i+1:]...)
			ns.tab.unref(dir, 1)
			return
		}
	}
}

// Pin adds a reference to a node that has one already.
func (n *Node) Pin() {
	n.ns.tab.mu.Lock()
	n.refs++
	n.ns.tab.mu.Unlock()
}

// Unpin takes one reference.
func (n *Node) Unpin() { n.unref(1) }

// unref takes k references; the last one removes the node.
func (n *Node) unref(k int64) {
	n.ns.tab.mu.Lock()
	gone := n.ns.tab.unref(n, k)
	n.ns.tab.mu.Unlock()
	for _, n := range gone {
		n.ns.fds.drop(n)
		if n.keep >= 0 {
			unix.Close(n.keep)
			n.keep = -1
		}
		if n.file != nil {
			n.file.CloseAll()
		}
		if n.synth != nil {
			n.synth.Gone()
		}
	}
}

// unref returns the nodes that went, the node itself and parents that only its names held. t.mu is held.
func (t *table) unref(n *Node, k int64) (gone []*Node) {
	for n != nil {
		n.refs -= k
		if n.refs > 0 {
			return gone
		}
		delete(t.byID, n.id)
		if t.byIno[inoKey(n.ino)] == n {
			delete(t.byIno, inoKey(n.ino))
		}
		if n.synth != nil && t.synthetic[n.names[0]] == n {
			delete(t.synthetic, n.names[0])
		}
		gone = append(gone, n)
		names := n.names
		n.names = nil
		if len(names) == 0 {
			return gone
		}
		for _, a := range names[1:] {
			gone = append(gone, t.unref(a.dir, 1)...)
		}
		n, k = names[0].dir, 1
	}
	return gone
}

// Forget takes nlookup of the kernel's references to a node.
func (ns *Names) Forget(id content.NodeID, nlookup uint64) {
	if n := ns.tab.get(id); n != nil && n != ns.root {
		n.unref(int64(nlookup))
	}
}

// path is the node's path below the mount's root, for messages; "" for the root. v.ns and table.mu are held.
func (n *Node) path() string {
	if len(n.names) == 0 {
		return "(unlinked)"
	}
	a := n.names[0]
	if a.dir == nil {
		return ""
	}
	if p := a.dir.path(); p != "" {
		return p + "/" + a.name
	}
	return a.name
}

// Path is the node's path below the mount's root, by one of its names.
func (n *Node) Path() string {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	if n.IsView() && !n.IsVirtual() {
		return n.path() + " (view)"
	}
	return n.path()
}
