package usage

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strconv"

	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// maxParts bounds the parts of an answer.
const maxParts = 1000

// selection is names of files.
type selection []name

// name is one name of a file, in a folder of the mirror.
type name struct {
	ino uint64
	dir uint32 // its number
}

func (n name) compare(o name) int {
	return cmp.Or(cmp.Compare(n.ino, o.ino), cmp.Compare(n.dir, o.dir))
}

// place is what a path leads to.
type place struct {
	path string
	dir  *folder // nil: it is no folder
	file name    // of what is none; zero: it is not a regular file
}

// Du says what the files below some paths take, and what removing them gives back. It is exact for a prune
// without grace, of what has a name in the tree: what programs have open that has none, or was moved to
// lost+found, may need some of it.
//
// What the files need is counted as all files are, in a table of its own. What goes with them is what their
// manifests leave unneeded when they are taken away from what is counted, which stays as it is: the table
// lies over that of all. So it takes as long as reading the manifests of these files does.
func (u *Usage) Du(ctx context.Context, o control.DuOptions) (*control.Du, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	return answer(ctx, u, func() (*control.Du, error) {
		for range mostCounts {
			d, err := u.duLocked(ctx, o)
			if err != errStale {
				return d, err
			}
			u.counts.spoil()
			if err := u.settleLocked(u.ctx); err != nil {
				return nil, err
			}
		}
		return nil, errStale
	})
}

func (u *Usage) duLocked(ctx context.Context, o control.DuOptions) (*control.Du, error) {
	u.mu.AssertHeld()
	places, err := u.places(o.Paths)
	if err != nil {
		return nil, err
	}
	var all selection
	for _, p := range places {
		all = append(all, u.mirror.at(p)...)
	}
	d := &control.Du{}
	if len(places) == 1 {
		d.Name = places[0].path
	}
	if o.Only == control.DuSizes {
		u.mirror.removal(all, &d.Use)
		return d, u.parts(ctx, d, places, all, o)
	}
	if o.Only == control.DuParts {
		return d, u.parts(ctx, d, places, all, o)
	}
	t, err := u.use(ctx, all, &d.Use)
	if err != nil {
		return nil, err
	}
	d.YoungBytes = u.young(t)
	if o.Brief {
		return d, nil
	}
	if o.Only != control.DuSharers {
		if err := u.parts(ctx, d, places, all, o); err != nil {
			return nil, err
		}
	}
	return d, u.sharers(ctx, d, t, all)
}

// use is what the files take whose names s has.
func (u *Usage) use(ctx context.Context, s selection, use *control.Use) (*taken, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	needs, goes := u.mirror.removal(s, use)
	t, err := u.take(ctx, needs, goes)
	if err == nil {
		use.StoredBytes, use.AloneBytes = t.stored(), t.alone()
	}
	return t, err
}

// removal counts what files are in the tree, and finds the manifests that they need, and those that runs lose
// when these names of theirs go. It sorts s.
func (m *mirror) removal(s selection, use *control.Use) (needs, goes []delta) {
	slices.SortFunc(s, name.compare)
	for len(s) > 0 {
		n := slices.IndexFunc(s, func(o name) bool { return o.ino != s[0].ino })
		if n < 0 {
			n = len(s)
		}
		names := s[:n]
		s = s[n:]
		f := m.files[names[0].ino]
		if f == nil || !f.known {
			continue
		}
		use.Files++
		use.LogicalBytes += f.size
		use.LocalBytes += f.local
		packed := !f.manifest.IsZero()
		if packed {
			needs = append(needs, delta{f.manifest, noRun, 1})
		}
		stays := false
		for _, in := range append(slices.Clone(m.more[f]), f.names) {
			gone := uint32(0)
			for _, n := range names {
				if m.dirs[n.dir].run == in.run {
					gone++
				}
			}
			if gone < in.names {
				stays = true
			} else if packed {
				goes = append(goes, delta{f.manifest, in.run, -1})
			}
		}
		if !stays {
			use.FreedBytes += f.local
		}
	}
	return needs, goes
}

// parts are what the answer is made of.
func (u *Usage) parts(ctx context.Context, d *control.Du, places []place, all selection,
	o control.DuOptions) error {
	add := func(name string, s selection) error {
		if len(d.Parts) == 2*maxParts {
			largest(d)
		}
		part := control.Use{Name: name}
		var err error
		if o.Only == control.DuSizes {
			u.mirror.removal(s, &part)
			err = ctx.Err()
		} else {
			_, err = u.use(ctx, s, &part)
		}
		d.Parts = append(d.Parts, part)
		return err
	}
	defer func() {
		largest(d)
		slices.SortFunc(d.Parts, func(a, b control.Use) int { return runs.Compare(a.Name, b.Name) })
	}()
	switch {
	case o.ByUser:
		owned := map[uint32]selection{}
		for _, n := range all {
			if f := u.mirror.files[n.ino]; f != nil && f.known {
				owned[f.uid] = append(owned[f.uid], n)
			}
		}
		for uid, s := range owned {
			if err := add(strconv.FormatUint(uint64(uid), 10), s); err != nil {
				return err
			}
		}
		return nil
	case len(places) == 1 && places[0].dir == nil:
		return nil
	case len(places) == 1:
		inside, err := u.inside(places[0])
		if err != nil {
			return err
		}
		places = inside
	}
	for _, p := range places {
		if err := add(p.path, u.mirror.at(p)); err != nil {
			return err
		}
	}
	return nil
}

// largest leaves the parts that take most.
func largest(d *control.Du) {
	slices.SortFunc(d.Parts, func(a, b control.Use) int {
		return cmp.Or(cmp.Compare(b.AloneBytes+b.FreedBytes, a.AloneBytes+a.FreedBytes),
			cmp.Compare(b.StoredBytes, a.StoredBytes), cmp.Compare(b.LogicalBytes, a.LogicalBytes), runs.Compare(a.Name, b.Name))
	})
	n := min(len(d.Parts), maxParts)
	d.MoreParts += len(d.Parts) - n
	d.Parts = d.Parts[:n]
}

// errMoved: a path leads to what was not looked at yet.
var errMoved = errors.New("the names change too fast to be counted")

// places are what paths lead to, without those that lie in others.
func (u *Usage) places(paths []string) (places []place, err error) {
	u.mu.AssertHeld()
	paths = slices.Clone(paths)
	slices.Sort(paths)
	taken := map[string]bool{}
	for _, p := range paths {
		if within(p, taken) {
			continue
		}
		taken[p] = true
		at, err := u.place(p)
		if err == errMoved { // it was made since, and we were told
			if err = u.settleLocked(u.ctx); err == nil {
				at, err = u.place(p)
			}
		}
		if err != nil {
			return nil, err
		}
		places = append(places, at)
	}
	return places, nil
}

// within reports whether a path, or one above it, is among some.
func within(p string, some map[string]bool) bool {
	for ; p != "." && p != "" && !some[p]; p = path.Dir(p) {
	}
	return some[p] || some[""]
}

// place is what a path leads to. The error is errMoved where the mirror does not have it.
func (u *Usage) place(p string) (place, error) {
	node, err := u.o.Names.Resolve(p)
	if err != nil {
		return place{}, control.NotFound("%s: %v among the store's files; views take nothing", p, err)
	}
	defer node.Unpin()
	at := place{path: p}
	if node.IsDir() {
		if at.dir = u.mirror.folders[node.Ino()]; at.dir == nil {
			return at, errMoved
		}
		return at, nil
	}
	if node.File() == nil {
		return at, nil
	}
	parent, err := u.o.Names.Resolve(path.Dir(p))
	if err != nil {
		return at, errMoved
	}
	defer parent.Unpin()
	dir := u.mirror.folders[parent.Ino()]
	if dir == nil || !slices.Contains(dir.files, node.Ino()) {
		return at, errMoved
	}
	at.file = name{node.Ino(), dir.number}
	return at, nil
}

// inside are the folders and files in a folder. What came since the mirror was made is passed over.
func (u *Usage) inside(p place) (all []place, err error) {
	for _, sub := range p.dir.subs {
		all = append(all, place{path: path.Join(p.path, sub.name), dir: sub})
	}
	err = u.namesIn(p.dir, func(ino uint64, of string) {
		all = append(all, place{path: path.Join(p.path, of), file: name{ino, p.dir.number}})
	})
	return all, err
}

// namesIn calls f with the names of the files in a folder.
func (u *Usage) namesIn(d *folder, f func(ino uint64, name string)) error {
	node, err := u.o.Names.Resolve(d.path())
	if err != nil {
		return nil // it went since
	}
	defer node.Unpin()
	entries, err := node.ListQuietly()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, found := slices.BinarySearch(d.files, e.Ino); found {
			f(e.Ino, e.Name)
		}
	}
	return nil
}

// at are the names of the files that a place is, or has below it.
func (m *mirror) at(p place) (s selection) {
	if p.dir != nil {
		return m.below(nil, p.dir)
	}
	if p.file.ino != 0 {
		s = selection{p.file}
	}
	return s
}

// below appends the names of the files below a folder.
func (m *mirror) below(s selection, d *folder) selection {
	for _, ino := range d.files {
		s = append(s, name{ino, d.number})
	}
	for _, sub := range d.subs {
		s = m.below(s, sub)
	}
	return s
}
