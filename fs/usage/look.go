package usage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// looker has a mirror show what the tree is now where some inodes changed. What changes meanwhile is told
// again.
type looker struct {
	*mirror
	u    *Usage
	inos map[uint64]bool

	queue  []*folder
	missed map[*folder]bool // that were not where they were to be
	again  []uint64         // files that were not

	parts []part
	files int // in parts
}

// part are files of one folder that are to be looked at. There is a reference to the folder's node.
type part struct {
	dir   *names.Node
	files []tree.DirEntry
}

const (
	lookFiles = 4096 // files are looked at and counted at a time
	partFiles = 64   // of them by one goroutine at a time
)

// look brings the mirror, and what is counted, up to date with the inodes. Those of them are left in again
// that could not be found.
func (u *Usage) look(ctx context.Context, inos map[uint64]bool) (again []uint64, err error) {
	l := &looker{mirror: u.mirror, u: u, inos: inos, missed: map[*folder]bool{}}
	defer l.release()
	for l.enqueue(); len(l.queue) > 0; l.forget() {
		if err := l.drain(ctx); err != nil {
			return nil, err
		}
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	l.mirror.release()
	for ino := range inos {
		f := l.mirror.files[ino]
		if l.missed[l.folders[ino]] || f != nil && l.missed[l.dirOf(f)] {
			l.again = append(l.again, ino)
		}
	}
	return l.again, nil
}

// drain looks at the folders in the queue, and at those that are found on the way.
func (l *looker) drain(ctx context.Context) error {
	for len(l.queue) > 0 {
		d := l.queue[0]
		l.queue = l.queue[1:]
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.folder(d); err != nil {
			return err
		}
		if l.files >= lookFiles {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget is the mirror's. Files that it finds elsewhere are looked at there.
func (l *looker) forget() {
	l.mirror.forget()
	l.elsewhere(func(ino uint64, d *folder) {
		if l.inos[ino] {
			l.queue = append(l.queue, d)
		}
	})
}

// enqueue finds the folders that are to be looked at, those above others first.
func (l *looker) enqueue() {
	depths := map[*folder]int{}
	for ino := range l.inos {
		if d := l.folders[ino]; d != nil {
			depths[d] = d.depth()
		}
		if f := l.mirror.files[ino]; f != nil {
			depths[l.dirOf(f)] = l.dirOf(f).depth()
		}
	}
	for d := range depths {
		l.queue = append(l.queue, d)
	}
	slices.SortFunc(l.queue, func(a, b *folder) int { return cmp.Compare(depths[a], depths[b]) })
}

// folder looks at the names in a folder.
func (l *looker) folder(d *folder) error {
	if !d.within(l.root) {
		l.missed[d] = true
		return nil
	}
	node, err := l.u.o.Names.Resolve(d.path())
	if err == nil {
		defer node.Unpin()
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
	case err != nil:
		return err
	case node.IsVirtual():
		return nil
	}
	if err != nil || node.Ino() != d.ino || !node.IsDir() {
		l.missed[d] = true
		return nil
	}
	entries, err := node.ListQuietly()
	if err == unix.ENOENT {
		l.missed[d] = true
		return nil
	}
	if err != nil && err != unix.EACCES { // without privileges, of another user
		return err
	}
	l.compare(d, node, entries)
	return nil
}

// compare compares what is in a folder with what was in it.
func (l *looker) compare(d *folder, node *names.Node, entries []tree.DirEntry) {
	var inos []uint64
	subs := map[uint64]bool{}
	for _, e := range entries {
		switch e.Mode {
		case unix.S_IFREG:
			inos = append(inos, e.Ino)
		case unix.S_IFDIR:
			if e.Name != "." && e.Name != ".." {
				subs[e.Ino] = true
				l.sub(d, e)
			}
		}
	}
	d.subs = slices.DeleteFunc(d.subs, func(sub *folder) bool {
		gone := !subs[sub.ino]
		if gone {
			sub.parent, l.moved = nil, append(l.moved, sub)
		}
		return gone
	})
	slices.Sort(inos)
	l.list(d, inos)
	var files []tree.DirEntry
	for _, e := range entries {
		if e.Mode == unix.S_IFREG && (l.inos[e.Ino] || !l.mirror.files[e.Ino].known) {
			files = append(files, e)
		}
	}
	l.files += len(files)
	for some := range slices.Chunk(files, partFiles) {
		node.Pin()
		l.parts = append(l.parts, part{node, some})
	}
}

// sub notes a folder in a folder.
func (l *looker) sub(d *folder, e tree.DirEntry) {
	sub := l.folders[e.Ino]
	if sub != nil && sub.parent == d && sub.name == e.Name {
		return
	}
	if sub == nil {
		sub = l.add(e.Ino)
	}
	if !l.put(sub, d, e.Name) {
		l.missed[d] = true
		return
	}
	l.queue = append(l.queue, sub) // another folder may have got the inode
}

// flush looks at the files that are to be looked at, and counts what changed.
func (l *looker) flush(ctx context.Context) error {
	defer l.release()
	var mu sync.Mutex
	found := map[uint64]state{}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for _, p := range l.parts {
		g.Go(func() error {
			for _, e := range p.files {
				s, err := l.u.state(p.dir, e)
				if err != nil {
					return err
				}
				mu.Lock()
				found[e.Ino] = s
				mu.Unlock()
			}
			return inner.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for ino, s := range found {
		if f := l.mirror.files[ino]; f != nil && s.known {
			l.set(f, s)
		} else { // it moved, of which we are told, or is gone
			l.again = append(l.again, ino)
		}
	}
	changes := l.changes
	l.changes = nil
	return l.u.counts.apply(ctx, changes, l.mirror.names)
}

// release lets go of the nodes that are to be looked at.
func (l *looker) release() {
	for _, p := range l.parts {
		p.dir.Unpin()
	}
	l.parts, l.files = nil, 0
}

// state looks at a file; a state that is not known: it is there no more.
func (u *Usage) state(dir *names.Node, e tree.DirEntry) (state, error) {
	n, _, err := u.o.Names.Child(dir, e.Name)
	if err == unix.ENOENT {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	defer n.Unpin()
	f := n.File()
	if f == nil || n.Ino() != e.Ino {
		return state{}, nil
	}
	f.Lock()
	defer f.Unlock()
	a, err := n.AttrLocked()
	if err == unix.ENOENT {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	rec := f.StateLocked().Record
	s := state{known: true, lost: rec.Lost, manifest: rec.Manifest, uid: a.UID, size: a.Size}
	if rec.Remote {
		s.remote, s.manifest = true, cas.Hash{} // what it needs is not this store's
	}
	var st unix.Stat_t
	if !rec.Hollow && n.Stat(&st) == nil {
		s.local = st.Blocks * 512
	}
	return s, nil
}
