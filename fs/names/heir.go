package names

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// Heir is what outlives this process: in it each node is written down, for the process that serves the mount
// next. Its methods do nothing of a nil one.
type Heir struct {
	Nodes *handover.Nodes // guarded by table.mu
	// Keep keeps a descriptor of the inode of a node that no known name leads to any more, until Unkeep. It
	// is called before the last name goes.
	Keep   func(id uint64, fd int)
	Unkeep func(id uint64)
}

// HandOn has every node written down, those that are there already and those that come.
func (ns *Names) HandOn(h *Heir) {
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	ns.tab.heir.Store(h)
	h.next(ns.tab.next)
	for _, n := range ns.tab.byID {
		h.put(n)
		if n.keep >= 0 {
			h.keep(n.id, n.keep)
		}
	}
}

// next notes that no id below this one will be used again. table.mu is held.
func (h *Heir) next(id content.NodeID) {
	if h != nil {
		h.Nodes.SetNext(uint64(id))
	}
}

// put writes down by which name a node is found; none: by the descriptor that is kept. A node for which there
// is no room is one that the next process does not know. table.mu is held.
func (h *Heir) put(n *Node) {
	if h == nil || n == n.ns.root || n.id == RootID {
		return
	}
	r := handover.Node{ID: uint64(n.id), Ino: n.ino, Type: n.mode}
	switch {
	case n.synth != nil && n.synth.Traits().Passing:
		return
	case n.synth != nil:
		o := n.synth.Origin()
		r.Synthetic, r.Source, r.Gen, r.Size = true, uint64(o.id()), o.Gen, uint64(o.Size)
	case n.viewed:
		r.Gen = n.gen
	}
	if len(n.names) > 0 {
		r.Parent, r.Name = uint64(n.names[0].Dir.id), n.names[0].Name
	}
	_ = h.Nodes.Put(r)
}

// drop forgets a node. table.mu is held.
func (h *Heir) drop(n *Node) {
	if h != nil {
		h.Nodes.Drop(uint64(n.id))
	}
}

func (h *Heir) keep(id content.NodeID, fd int) {
	if h != nil {
		h.Keep(uint64(id), fd)
	}
}

func (h *Heir) unkeep(id content.NodeID) {
	if h != nil {
		h.Unkeep(uint64(id))
	}
}

// InoAt is the number of the inode that a name leads to, 0 if it leads to none.
func (ns *Names) InoAt(dir *Node, name string) uint64 {
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	fd, err := dir.dirFdLocked()
	if err != nil {
		return 0
	}
	defer dir.releaseDir()
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}
