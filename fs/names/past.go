package names

import (
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// past is what an earlier process wrote down of the nodes that the kernel may ask for. A node is taken from
// it when it is found: by its id (revive), or since a lookup leads to it. table.mu guards it.
//
// How many references the kernel has to such a node is not known, as long as it lives. So none of them is
// given back when the kernel forgets some: the node is in doubt, and Sweep asks the kernel whether it has any
// left.
type past struct {
	byID   map[content.NodeID]handover.Node
	byIno  map[inoKey]content.NodeID
	byName map[pastName]content.NodeID // synthetic nodes
	doubt  map[content.NodeID]struct{} // what the kernel forgot, or may have
	spared map[content.NodeID]struct{} // what it forgot, and other nodes of the past need
	any    bool                        // there was an earlier process; set before anything is served
}

// pastName is a synthetic node by its name, in a directory that need not have a Node yet, and what it is made
// of. A name may have several: a view that is open is of the bytes that its source had.
type pastName struct {
	dir, src content.NodeID
	gen      uint64
	name     string
}

func nameOf(r *handover.Node) pastName {
	return pastName{content.NodeID(r.Parent), content.NodeID(r.Source), r.Gen, r.Name}
}

func newPast() past {
	return past{
		byID: map[content.NodeID]handover.Node{}, byIno: map[inoKey]content.NodeID{},
		byName: map[pastName]content.NodeID{}, doubt: map[content.NodeID]struct{}{},
		spared: map[content.NodeID]struct{}{},
	}
}

// reserve makes room for n nodes: the mount's callers wait meanwhile.
func (p *past) reserve(n int) {
	p.byID, p.byIno = make(map[content.NodeID]handover.Node, n), make(map[inoKey]content.NodeID, n)
}

func (p *past) addLocked(r handover.Node) {
	id := content.NodeID(r.ID)
	p.byID[id] = r
	switch {
	case r.Synthetic:
		if at := nameOf(&r); p.byName[at] < id { // ids grow: as below
			p.byName[at] = id
		}
	case r.Name != "":
		// What was written down of an inode that went may not have been taken back, and its number may be
		// another's by now: ids grow.
		if was := p.byIno[inoKey(r.Ino)]; was < id {
			p.byIno[inoKey(r.Ino)] = id
		}
	}
}

func (p *past) removeLocked(id content.NodeID) {
	r, ok := p.byID[id]
	if !ok {
		return
	}
	delete(p.byID, id)
	if at := nameOf(&r); r.Synthetic && p.byName[at] == id {
		delete(p.byName, at)
	}
	for _, up := range []content.NodeID{content.NodeID(r.Parent), content.NodeID(r.Source)} {
		if _, ok := p.spared[up]; ok { // perhaps for this one alone
			delete(p.spared, up)
			p.doubt[up] = struct{}{}
		}
	}
	if p.byIno[inoKey(r.Ino)] == id {
		delete(p.byIno, inoKey(r.Ino))
	}
}

// inodeLocked takes what is known of an inode out of the past. Without an id: nothing is.
func (p *past) inodeLocked(st *unix.Stat_t) handover.Node {
	id := p.byIno[inoKey(st.Ino)]
	r := p.byID[id]
	if id == 0 || r.Type != st.Mode&unix.S_IFMT {
		return handover.Node{}
	}
	p.removeLocked(id)
	return r
}

// syntheticLocked takes the id of what has this name and origin out of the past, or returns 0.
func (p *past) syntheticLocked(at Alias, o Origin, ino uint64, mode uint32) content.NodeID {
	id := p.byName[pastName{at.Dir.id, o.id(), o.Gen, at.Name}]
	if r := p.byID[id]; id == 0 || r.Ino != ino || r.Type != mode {
		return 0
	}
	p.removeLocked(id)
	return id
}

// TakeOver makes known the nodes that an earlier process wrote down. h gets what comes. It is called before
// anything is looked up. TakeKept is called next, or after Moved.
func (ns *Names) TakeOver(h *Heir, nodes map[uint64]handover.Node) {
	t := ns.tab
	t.mu.Lock()
	t.heir.Store(h)
	t.past.any = true
	t.past.reserve(len(nodes))
	t.next = max(t.next, content.NodeID(h.Nodes.Next()))
	for _, r := range nodes {
		if r.ID != uint64(RootID) {
			t.past.addLocked(r)
		}
	}
	t.mu.Unlock()
}

// TakeKept makes known the descriptors that an earlier process kept, by node. They are this process's from
// now on.
func (ns *Names) TakeKept(kept map[uint64]int) {
	for id, fd := range kept {
		ns.takeKept(content.NodeID(id), fd)
	}
}

// takeKept makes the node of a descriptor that an earlier process kept, unless it has a name after all: that
// process was killed before the name went.
func (ns *Names) takeKept(id content.NodeID, fd int) {
	t := ns.tab
	h := t.heir.Load()
	t.mu.Lock()
	r, known := t.past.byID[id]
	t.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !known || r.Name != "" && ns.leadsTo(r, &st) {
		h.unkeep(id)
		unix.Close(fd)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past.removeLocked(id)
	n := t.insertLocked(&st, r)
	n.keep = fd
	n.refs-- // the kernel's are all there is
	if n.dead = st.Nlink == 0; n.dead {
		delete(t.byIno, inoKey(n.ino))
	}
	h.put(n)
}

// leadsTo reports whether a node's name of then leads to the inode that st describes.
func (ns *Names) leadsTo(r handover.Node, st *unix.Stat_t) bool {
	dir := ns.Get(content.NodeID(r.Parent))
	return dir != nil && ns.InoAt(dir, r.Name) == st.Ino
}

// Moved notes that the name dir/name may have been given to a known inode by a rename that an earlier process
// did not come to write down. It reports whether it knows what the name leads to.
func (ns *Names) Moved(dir content.NodeID, name string) bool {
	d := ns.Get(dir)
	if d == nil {
		return false
	}
	ino := ns.InoAt(d, name)
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.past.byIno[inoKey(ino)]
	if id == 0 {
		return t.byIno[inoKey(ino)] != nil
	}
	r := t.past.byID[id]
	if content.NodeID(r.Parent) != dir || r.Name != name {
		r.Parent, r.Name = uint64(dir), name
		t.past.byID[id] = r
		_ = t.heir.Load().Nodes.Put(r)
	}
	return true
}

// revive finds the node of an id that an earlier process gave out, or returns nil. Its reference is the
// kernel's.
func (ns *Names) revive(id content.NodeID) *Node {
	ns.tab.mu.Lock()
	r, ok := ns.tab.past.byID[id]
	ns.tab.mu.Unlock()
	if !ok || r.Name == "" {
		return ns.tab.get(id) // found meanwhile
	}
	dir := ns.GetPinned(content.NodeID(r.Parent))
	if dir == nil {
		return nil
	}
	defer dir.Unpin()
	var n *Node
	if r.Synthetic {
		n = ns.again(dir, &r)
	} else if child, _, err := ns.Child(dir, r.Name); err == nil {
		n = child
	}
	if n == nil {
		return nil
	}
	defer n.Unpin()
	if n.id != id {
		return nil
	}
	return n
}

// again finds a synthetic node that an earlier process knew, or another that has its name by now, with one
// reference more; nil if there is none.
func (ns *Names) again(dir *Node, r *handover.Node) *Node {
	if r.Source != 0 && ns.o.Again != nil {
		if src := ns.GetPinned(content.NodeID(r.Source)); src != nil {
			n := ns.o.Again(dir, r.Name, Origin{Src: src, Gen: r.Gen, Size: int64(r.Size)})
			src.Unpin()
			if n != nil {
				return n
			}
		}
	}
	if ns.o.Synthetic == nil {
		return nil
	}
	n, err := ns.o.Synthetic(dir, r.Name)
	if err != nil {
		return nil
	}
	return n
}

// Folders are the paths of the folders that the kernel may know: it may know names in them, and that there is
// none of a name.
func Folders(ns *Names) (paths []string) {
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(id content.NodeID) {
		if p, ok := t.folderLocked(id); ok {
			paths = append(paths, p)
		}
	}
	for id := range t.byID {
		add(id)
	}
	for id := range t.past.byID {
		add(id)
	}
	return paths
}

// IsPast reports whether the kernel knows an inode from an earlier process.
func IsPast(ns *Names, ino uint64) bool {
	t := ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byIno[inoKey(ino)]; n != nil {
		return n.past
	}
	return t.past.byIno[inoKey(ino)] != 0
}

// folderLocked is the path of a folder, by what was written down where this process does not know it.
func (t *table) folderLocked(id content.NodeID) (p string, ok bool) {
	for range unix.PathMax {
		if n := t.byID[id]; n != nil {
			return path.Join(n.pathLocked(), p), n.IsDir() && n.synth == nil && len(n.names) > 0
		}
		r := t.past.byID[id]
		if r.Type != unix.S_IFDIR || r.Synthetic || r.Name == "" {
			break
		}
		p, id = path.Join(r.Name, p), content.NodeID(r.Parent)
	}
	return "", false
}

// Tell notes that an answer names the node to the kernel once more: its reference is the one that the lookup
// took.
func (n *Node) Tell() {
	t := n.ns.tab
	if !t.past.any {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.past {
		n.told++
	}
}

// forget returns the node whose references the kernel gives back; nil if there is none, or if it is not known
// how many it has.
func (t *table) forget(id content.NodeID) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n != nil && !n.past {
		return n
	}
	if _, ok := t.past.byID[id]; ok || n != nil {
		t.past.doubt[id] = struct{}{}
	}
	return nil
}

// Sweep gives back the references of nodes that the kernel knows no more. all: it looks at each that an
// earlier process told the kernel of, not only at those that the kernel forgot since. known asks the kernel
// for a node. settle returns when every request that was under way has been answered: the answer to a lookup
// is a reference that the kernel does not know of yet.
func (ns *Names) Sweep(all bool, known func(content.NodeID) bool, settle func()) {
	t := ns.tab
	told := map[content.NodeID]int64{}
	t.mu.Lock()
	if all {
		for id := range t.past.byID {
			told[id] = 0
		}
		for id, n := range t.byID {
			if n.past {
				told[id] = n.told
			}
		}
	} else {
		for id := range t.past.doubt {
			if n := t.byID[id]; n != nil {
				told[id] = n.told
			} else {
				told[id] = 0
			}
		}
	}
	clear(t.past.doubt)
	t.mu.Unlock()
	if len(told) == 0 {
		return
	}
	settle()
	for id := range told {
		if known(id) {
			delete(told, id)
		}
	}
	var gone []*Node
	t.mu.Lock()
	needed := t.past.neededLocked(told)
	for id, k := range told {
		n := t.byID[id]
		if needed[id] {
			t.past.spared[id] = struct{}{}
			continue
		}
		if n == nil {
			if r, ok := t.past.byID[id]; ok {
				t.past.removeLocked(id)
				t.heir.Load().Nodes.Drop(r.ID)
			}
		}
		if n != nil && n.past && n.told == k && n.base+k > 0 {
			// The kernel may still say that it forgets what is taken here: it stays a node of the past, of
			// which Forget takes nothing.
			n.refs++ // Unpin takes it
			t.unrefLocked(n, n.base+k)
			n.base, n.told = 0, 0
			gone = append(gone, n)
		}
	}
	t.mu.Unlock()
	for _, n := range gone {
		n.Unpin()
	}
}

// neededLocked are the directories that lead to nodes of the past but those in leave, and what these are made
// of.
func (p *past) neededLocked(leave map[content.NodeID]int64) map[content.NodeID]bool {
	needed := map[content.NodeID]bool{}
	for id, r := range p.byID {
		if _, ok := leave[id]; ok {
			continue
		}
		for _, from := range []uint64{r.Parent, r.Source} {
			for at := content.NodeID(from); !needed[at]; {
				needed[at] = true
				up, ok := p.byID[at]
				if !ok {
					break
				}
				at = content.NodeID(up.Parent)
			}
		}
	}
	return needed
}

// InDoubt reports whether the kernel forgot nodes that Sweep has not asked it about.
func (ns *Names) InDoubt() bool {
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	return len(ns.tab.past.doubt) > 0
}
