package names

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// RootID is the mount's root.
const RootID content.NodeID = 1

// Alias is one name of a node.
type Alias struct {
	Dir  *Node
	Name string
}

// Node is a file, directory or anything else that has a name in the tree, or is Synthetic.
//
// The fields in the first block never change. names, dead and keep are guarded by Names.ns (written only
// under its exclusive lock, or under the shared one plus table.mu while the node is new); refs by table.mu;
// the rest of a regular file's state is in file, which has a lock of its own.
type Node struct {
	ns    *Names
	id    content.NodeID
	ino   uint64        // the inode's number; for a view the source's with viewIno set
	mode  uint32        // S_IFMT bits only
	file  *content.File // regular files
	synth Synthetic     // nil for what is in the tree

	names []Alias // the names that are known; a hard link may have others
	keep  int     // O_PATH descriptor of the inode of a node without a known name, else -1
	dead  bool    // no name leads here, and only Link of an O_TMPFILE can change that

	// past: an earlier daemon told the kernel of the node. It never changes. How many references the kernel
	// has is not known then: refs has base, 1 or 0, for all that earlier daemons told, and told for what this
	// one has told since. Sweep alone takes them. Both are guarded by table.mu.
	past   bool
	base   int64
	told   int64
	opened atomic.Bool // see KeepsPages

	holds atomic.Uint32 // directories: see MayHold

	// gen is the generation of a regular file's bytes. It is written down of a file that was viewed:
	// something synthetic was made of it, perhaps by an earlier process. Both are guarded by table.mu.
	gen    uint64
	viewed bool
	named  bool // Crowd.Oldest returned it; guarded by table.mu

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

// Pin adds a reference to a node that has one already.
func (n *Node) Pin() {
	n.ns.tab.mu.Lock()
	n.refs++
	n.ns.tab.mu.Unlock()
}

// Unpin takes one reference.
func (n *Node) Unpin() { n.unref(1) }

// Changes notes which generation of bytes a regular file is about to have.
func (n *Node) Changes(gen uint64) {
	t := n.ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.gen == gen {
		return
	}
	n.gen = gen
	if n.viewed && t.byID[n.id] == n {
		t.heir.Load().put(n)
	}
}

// unref takes k references; the last one removes the node.
func (n *Node) unref(k int64) {
	n.ns.tab.mu.Lock()
	gone := n.ns.tab.unrefLocked(n, k)
	n.ns.tab.mu.Unlock()
	for _, n := range gone {
		n.ns.fds.drop(n)
		if n.keep >= 0 {
			n.unkeep()
		}
		if n.file != nil {
			n.file.CloseAll()
			if n.dead && n.ns.o.Freed != nil {
				n.ns.o.Freed()
			}
		}
		if n.synth != nil {
			n.synth.Gone()
		}
	}
}

// pathLocked is the node's path below the mount's root, for messages; "" for the root. ns and table.mu are held.
func (n *Node) pathLocked() string {
	if len(n.names) == 0 {
		return "(unlinked)"
	}
	a := n.names[0]
	if a.Dir == nil {
		return ""
	}
	if p := a.Dir.pathLocked(); p != "" {
		return p + "/" + a.Name
	}
	return a.Name
}

// Path is the node's path below the mount's root, by one of its names.
func (n *Node) Path() string {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	if n.IsView() && !n.IsVirtual() {
		return n.pathLocked() + " (view)"
	}
	return n.pathLocked()
}

// Paths are the paths of all its names that are known.
func (n *Node) Paths() (all []string) {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	for _, a := range n.names {
		switch {
		case a.Dir == nil:
			all = append(all, "")
		case a.Dir == n.ns.root:
			all = append(all, a.Name)
		default:
			all = append(all, a.Dir.pathLocked()+"/"+a.Name)
		}
	}
	return all
}

// Refs is how many references there are to the node: of the kernel's, of handles, of children and of pins.
func (n *Node) Refs() int64 {
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	return n.refs
}

// File is the bytes of a regular file; nil for anything else.
func (n *Node) File() *content.File { return n.file }

// Synth is what makes a node up that has no inode; nil for what is in the tree.
func (n *Node) Synth() Synthetic { return n.synth }

// Type is the node's S_IFMT bits.
func (n *Node) Type() uint32 { return n.mode }

// KnownNames is how many of its names are known, of at most maxNames.
func (n *Node) KnownNames() int {
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	return len(n.names)
}
