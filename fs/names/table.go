package names

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// inoKey tells inodes of the tree apart. The tree is one filesystem: nothing is mounted in it.
type inoKey uint64

// table finds nodes by the kernel's id and by inode number.
type table struct {
	ns    *Names
	mu    locks.Mutex[leafLock]
	byID  map[content.NodeID]*Node
	byIno map[inoKey]*Node
	next  content.NodeID

	synthetic map[Alias]*Node // the nodes that are made up, by their one name, without references

	heir  atomic.Pointer[Heir] // who is told of every node, or nil
	crowd Crowd
	past  past // what an earlier process knew, and this one has not looked at yet
}

func newTable(ns *Names) *table {
	t := &table{
		ns: ns, next: RootID, byID: map[content.NodeID]*Node{}, byIno: map[inoKey]*Node{},
		synthetic: map[Alias]*Node{}, past: newPast(), crowd: Crowd{told: make(chan struct{}, 1)},
	}
	t.crowd.of = t
	return t
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

// findLocked returns the node of the inode that st describes and that dir/name leads to, with one reference
// more, or nil: this process does not know it, nor does the kernel from an earlier one. ns is held.
func (ns *Names) findLocked(dir *Node, name string, st *unix.Stat_t) *Node {
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byIno[inoKey(st.Ino)]; n != nil {
		n.refs++
		return n
	}
	was := t.past.inodeLocked(st)
	if was.ID == 0 {
		return nil
	}
	n := t.insertLocked(st, was)
	t.addAliasLocked(n, dir, name)
	return n
}

// Known returns the node of an inode, with one reference more, or nil: this process does not know it. The
// names that a node is known by are the inode's, since every change of a name passes through here.
func (ns *Names) Known(ino uint64) *Node {
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byIno[inoKey(ino)]
	if n != nil {
		n.refs++
	}
	return n
}

// Each calls f with every node, outside the table's lock; each node is pinned while f runs.
func (ns *Names) Each(f func(*Node)) {
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

// internLocked returns the node of the inode that st describes and that dir/name leads to, with one reference
// more. ns is held, shared or exclusively.
func (ns *Names) internLocked(dir *Node, name string, st *unix.Stat_t) *Node {
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byIno[inoKey(st.Ino)]; n != nil {
		n.refs++
		t.addAliasLocked(n, dir, name)
		return n
	}
	n := t.insertLocked(st, t.past.inodeLocked(st))
	t.addAliasLocked(n, dir, name)
	return n
}

// newNodeLocked adds a node with one reference. id is 0 or, of a node that an earlier daemon told the kernel
// of, the one that it has there; then there is one reference more, for all that the kernel has from then.
func (t *table) newNodeLocked(id content.NodeID, ino uint64, mode uint32) *Node {
	n := &Node{ns: t.ns, id: id, ino: ino, mode: mode, keep: -1, refs: 1, dirfd: cachedFd{fd: -1}}
	if id == 0 {
		n.id = t.next
		t.next++
		t.heir.Load().next(t.next)
	} else {
		n.past, n.base = true, 1
		n.refs++
	}
	t.byID[n.id] = n
	t.crowd.cameLocked(len(t.byID))
	return n
}

// insertLocked adds the node of an inode. was is what an earlier process wrote down of it; without an id:
// nothing.
func (t *table) insertLocked(st *unix.Stat_t, was handover.Node) *Node {
	n := t.newNodeLocked(content.NodeID(was.ID), st.Ino, st.Mode&unix.S_IFMT)
	switch {
	case n.mode != unix.S_IFREG:
	case n.past:
		n.gen, n.viewed = was.Gen, true
		n.file = content.FileOfPast(t.ns.o.Files, n, was.Gen)
	default:
		n.file = content.NewFile(t.ns.o.Files, n)
	}
	t.byIno[inoKey(n.ino)] = n
	return n
}

// MaxNames is how many names of a node are kept: any leads to it, and each new one is looked for among them.
const MaxNames = 32

// addAliasLocked records a name, unless enough are known.
func (t *table) addAliasLocked(n, dir *Node, name string) {
	for _, a := range n.names {
		if a.Dir == dir && a.Name == name {
			return
		}
	}
	if len(n.names) >= MaxNames {
		return
	}
	if dir != nil {
		dir.refs++
	}
	n.names = append(n.names, Alias{dir, name})
	if len(n.names) == 1 {
		t.heir.Load().put(n)
	}
}

// dropAliasLocked forgets a name. ns is held exclusively.
func (ns *Names) dropAliasLocked(n, dir *Node, name string) {
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	for i, a := range n.names {
		if a.Dir == dir && a.Name == name {
			n.names = append(n.names[:i], n.names[i+1:]...)
			if i == 0 {
				ns.tab.heir.Load().put(n)
			}
			ns.tab.unrefLocked(dir, 1)
			return
		}
	}
}

// unrefLocked returns the nodes that went, the node itself and parents that only its names held.
func (t *table) unrefLocked(n *Node, k int64) (gone []*Node) {
	for n != nil {
		n.refs -= k
		if n.refs > 0 {
			return gone
		}
		delete(t.byID, n.id)
		t.crowd.wentLocked(len(t.byID))
		t.heir.Load().drop(n)
		if n.file != nil && !n.dead {
			t.ns.o.Files.Forgotten(n.file)
		}
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
			gone = append(gone, t.unrefLocked(a.Dir, 1)...)
		}
		n, k = names[0].Dir, 1
	}
	return gone
}

// Forget takes nlookup of the kernel's references to a node.
func (ns *Names) Forget(id content.NodeID, nlookup uint64) {
	if n := ns.tab.forget(id); n != nil && n != ns.root {
		n.unref(int64(nlookup))
	}
}

// Leftover describes the nodes but the root, with the references to each, and says how many directories are
// open besides it. Once the kernel has forgotten all that it knew there are none.
func (ns *Names) Leftover() (nodes []string, openDirs int) {
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	ns.tab.mu.Lock()
	for _, n := range ns.tab.byID {
		if n != ns.root {
			nodes = append(nodes, fmt.Sprintf("%s, %d references", n.pathLocked(), n.refs))
		}
	}
	if len(ns.tab.byIno) > len(ns.tab.byID) {
		nodes = append(nodes, fmt.Sprintf("%d inodes of %d nodes", len(ns.tab.byIno), len(ns.tab.byID)))
	}
	ns.tab.mu.Unlock()
	ns.fds.mu.Lock()
	defer ns.fds.mu.Unlock()
	return nodes, ns.fds.open
}

// KeepOpen sets how many directories are kept open, at most; openDirs at first.
func (ns *Names) KeepOpen(most int) {
	ns.fds.mu.Lock()
	defer ns.fds.mu.Unlock()
	ns.fds.max = most
	ns.fds.shrinkLocked()
}
