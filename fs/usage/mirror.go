package usage

import (
	"path"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/spilled"
	"ckptfs/fs/steps"
)

// mirror is what the tree was when it was looked at last: its folders, and of each file what is counted.
type mirror struct {
	root    *folder
	folders map[uint64]*folder // by inode
	dirs    []*folder          // the same, by number; nil: it is free
	unused  []uint32           // numbers of folders that are gone

	files map[uint64]*file // by inode
	room  *spilled.Slab[file]
	more  map[*file][]in // names in other runs, of files with hard links

	sum     sizes
	runs    []sizes           // by number; the first is no run's
	names   []string          // of the runs, by number; "": it is free
	numbers map[string]uint32 // and the other way round
	held    []int             // by number: how many folders, and files, are in the run
	unheld  []uint32          // numbers that nothing was in; something may be again
	free    []uint32          // numbers of runs that are gone

	changes []delta   // of manifests, which counts does not know yet
	moved   []*folder // that were taken from where they were
	gone    []*folder // that were dropped, whose numbers files still have
	left    []uint64  // files that had no name any more
	other   []uint64  // files that lost the name that they were known by, and have others
}

// sizes are what files are.
type sizes struct {
	files, packed, lost               int64
	bytes, packedBytes, remote, local int64
	copies                            int64 // the part of local that is copies of packed files
}

// folder is a directory of the tree.
type folder struct {
	ino    uint64
	number uint32
	name   string
	parent *folder // nil: it is the root, or not in the tree
	run    uint32  // that its files are in
	subs   []*folder
	files  []uint64 // inodes in ascending order; one that has two names here twice
}

// file is a regular file of the tree. It has no pointers, see spilled.Slab.
type file struct {
	dir    uint32 // number of a folder that has a name of it
	linked bool   // it has names in other runs, see mirror.more
	names  in
	state
}

// in says how many names a file has in a run.
type in struct{ run, names uint32 }

// state is what is counted of a file.
type state struct {
	known       bool     // it was looked at
	lost        bool     // the disk did not take all that was written
	remote      bool     // the remote alone has its bytes
	manifest    cas.Hash // zero: it is not packed
	uid         uint32   // of the owner
	size, local int64    // bytes of it, and those that it takes in the tree
}

// delta is a manifest that a run gets, or with by -1 loses, by one of its files.
type delta struct {
	manifest cas.Hash
	run      uint32
	by       int64
}

// newMirror makes the mirror of a tree of which the root's inode is known. What it says of files may lie in a
// folder's files.
func newMirror(root uint64, at *disk.Folder) *mirror {
	d := &folder{ino: root}
	return &mirror{root: d, folders: map[uint64]*folder{root: d}, dirs: []*folder{d},
		files: map[uint64]*file{}, room: spilled.NewSlab[file](at), more: map[*file][]in{},
		runs: make([]sizes, 1), names: make([]string, 1), numbers: map[string]uint32{}, held: make([]int, 1)}
}

// add makes a folder, which is nowhere in the tree yet.
func (m *mirror) add(ino uint64) *folder {
	d := &folder{ino: ino}
	if n := len(m.unused); n > 0 {
		d.number, m.unused = m.unused[n-1], m.unused[:n-1]
		m.dirs[d.number] = d
	} else {
		d.number = uint32(len(m.dirs))
		m.dirs = append(m.dirs, d)
	}
	m.folders[ino] = d
	m.hold(noRun, 1)
	return d
}

// dirOf is a folder that has a name of a file.
func (m *mirror) dirOf(f *file) *folder { return m.dirs[f.dir] }

// path is that of a folder in the tree.
func (d *folder) path() string {
	if d.parent == nil {
		return ""
	}
	return path.Join(d.parent.path(), d.name)
}

// depth is the number of folders above a folder.
func (d *folder) depth() (n int) {
	for ; d.parent != nil; d = d.parent {
		n++
	}
	return n
}

// holdsFiles reports whether there is a file at any depth.
func (d *folder) holdsFiles() bool {
	return len(d.files) > 0 || slices.ContainsFunc(d.subs, (*folder).holdsFiles)
}

// within reports whether a folder is another one, or below it.
func (d *folder) within(of *folder) bool {
	for ; d != nil; d = d.parent {
		if d == of {
			return true
		}
	}
	return false
}

// runOf is the run that the files of a folder are in, by where it is.
func (m *mirror) runOf(d *folder) uint32 {
	if d.parent == nil || d.parent.parent != m.root || d.parent.name != steps.Dir {
		if d.parent == nil {
			return noRun
		}
		return d.parent.run
	}
	n, ok := m.numbers[d.name]
	if !ok {
		n = m.number()
		m.numbers[d.name], m.names[n] = n, d.name
	}
	return n
}

// number is one that no run has.
func (m *mirror) number() (n uint32) {
	if last := len(m.free) - 1; last >= 0 {
		n, m.free = m.free[last], m.free[:last]
		return n
	}
	m.runs, m.names, m.held = append(m.runs, sizes{}), append(m.names, ""), append(m.held, 0)
	return uint32(len(m.runs) - 1)
}

// hold notes that a folder, or a file, is in a run, or with by -1 is there no more.
func (m *mirror) hold(run uint32, by int) {
	if m.held[run] += by; m.held[run] == 0 {
		m.unheld = append(m.unheld, run)
	}
}

// release takes their numbers from runs that are gone. Nothing is left to be counted for them.
func (m *mirror) release() {
	for _, n := range m.unheld {
		if n == noRun || m.held[n] > 0 || m.names[n] == "" {
			continue
		}
		delete(m.numbers, m.names[n])
		m.names[n], m.free = "", append(m.free, n)
	}
	m.unheld = nil
}

// put has a folder be where a name in dir leads to. false: dir is below it, as far as is known.
func (m *mirror) put(d, dir *folder, name string) bool {
	if dir.within(d) {
		return false
	}
	m.detach(d)
	d.parent, d.name = dir, name
	dir.subs = append(dir.subs, d)
	m.enter(d)
	return true
}

// detach takes a folder from where it was. It may be found elsewhere.
func (m *mirror) detach(d *folder) {
	if d.parent != nil {
		d.parent.subs = slices.DeleteFunc(d.parent.subs, func(o *folder) bool { return o == d })
		d.parent = nil
	}
}

// enter has the files of a folder be in the run that they are in where it is.
func (m *mirror) enter(d *folder) {
	if run := m.runOf(d); run != d.run {
		for _, ino := range d.files {
			m.named(m.files[ino], run, 1)
			m.named(m.files[ino], d.run, -1)
		}
		m.hold(run, 1)
		m.hold(d.run, -1)
		d.run = run
	}
	for _, sub := range d.subs {
		m.enter(sub)
	}
}

// drop forgets a folder that is in the tree no more, and what is in it.
func (m *mirror) drop(d *folder) {
	if m.folders[d.ino] != d {
		return // it moved twice
	}
	delete(m.folders, d.ino)
	m.gone = append(m.gone, d)
	m.hold(d.run, -1)
	files := d.files
	d.files = nil
	for _, ino := range files {
		m.remove(d, ino)
	}
	for _, sub := range d.subs {
		m.drop(sub)
	}
}

// list notes which files have names in a folder. files are inodes in ascending order.
func (m *mirror) list(d *folder, files []uint64) {
	before := d.files
	d.files = files
	var came, went []uint64
	for len(files) > 0 || len(before) > 0 {
		switch {
		case len(before) == 0 || len(files) > 0 && files[0] < before[0]:
			came, files = append(came, files[0]), files[1:]
		case len(files) == 0 || before[0] < files[0]:
			went, before = append(went, before[0]), before[1:]
		default:
			files, before = files[1:], before[1:]
		}
	}
	for _, ino := range came {
		f := m.files[ino]
		if f == nil {
			f = m.room.New()
			m.files[ino] = f
		}
		f.dir = d.number
		m.named(f, d.run, 1)
	}
	for _, ino := range went {
		m.remove(d, ino)
	}
}

// remove takes a name in d from a file.
func (m *mirror) remove(d *folder, ino uint64) {
	f := m.files[ino]
	m.named(f, d.run, -1)
	if f.names.names == 0 {
		m.left = append(m.left, ino)
	} else if f.dir == d.number {
		m.other = append(m.other, ino)
	}
}

// elsewhere has the files that lost the name that they were known by be known by another one. f is called
// with each and its folder. Nothing is known by a folder that is gone from then on.
func (m *mirror) elsewhere(f func(ino uint64, d *folder)) {
	defer func() {
		for _, d := range m.gone {
			m.dirs[d.number], m.unused = nil, append(m.unused, d.number)
		}
		m.gone = nil
	}()
	if len(m.other) == 0 {
		return
	}
	wanted := map[uint64]bool{}
	for _, ino := range m.other {
		wanted[ino] = true
	}
	m.other = nil
	for _, d := range m.folders {
		for _, ino := range d.files {
			if wanted[ino] {
				m.files[ino].dir = d.number
				f(ino, d)
			}
		}
	}
}

// named notes that a file has a name more, or less, in a run.
func (m *mirror) named(f *file, run uint32, by int) {
	var more []in
	if f.linked {
		more = m.more[f]
	}
	at := &f.names
	if i := slices.IndexFunc(more, func(x in) bool { return x.run == run }); i >= 0 {
		at = &more[i]
	} else if at.names > 0 && at.run != run {
		more = append(more, in{run: run})
		at = &more[len(more)-1]
	}
	at.run = run
	first := at.names == 0
	at.names += uint32(by)
	if first || at.names == 0 {
		m.hold(run, by)
		m.inRun(f, run, int64(by), true)
	}
	if at.names == 0 {
		more = slices.DeleteFunc(more, func(x in) bool { return x.names == 0 })
		if n := len(more); n > 0 && f.names.names == 0 {
			f.names, more = more[n-1], more[:n-1]
		}
	}
	if len(more) > 0 {
		f.linked, m.more[f] = true, more
	} else if f.linked {
		f.linked = false
		delete(m.more, f)
	}
}

// set notes what a file is now.
func (m *mirror) set(f *file, now state) {
	packed := f.manifest != now.manifest
	m.count(f, -1, packed)
	f.state = now
	m.count(f, 1, packed)
}

// forget forgets the folders and files that have no name any more.
func (m *mirror) forget() {
	for _, d := range m.moved {
		if d.parent == nil {
			m.drop(d)
		}
	}
	for _, ino := range m.left {
		if f := m.files[ino]; f != nil && f.names.names == 0 {
			m.count(f, -1, true)
			delete(m.files, ino)
			m.room.Free(f)
		}
	}
	m.moved, m.left = nil, nil
}

// count adds a file, or takes it away; with packed its manifest, too.
func (m *mirror) count(f *file, by int64, packed bool) {
	if !f.known {
		return
	}
	m.sum.add(&f.state, by)
	if f.names.names > 0 {
		m.inRun(f, f.names.run, by, packed)
	}
	if f.linked {
		for _, x := range m.more[f] {
			m.inRun(f, x.run, by, packed)
		}
	}
}

// inRun is count for one run that has names of the file.
func (m *mirror) inRun(f *file, run uint32, by int64, packed bool) {
	if !f.known {
		return
	}
	m.runs[run].add(&f.state, by)
	if packed && !f.manifest.IsZero() {
		m.changes = append(m.changes, delta{f.manifest, run, by})
	}
}

func (z *sizes) add(s *state, by int64) {
	z.files += by
	z.bytes += by * s.size
	z.local += by * s.local
	if !s.manifest.IsZero() || s.remote {
		z.copies += by * s.local
	}
	if !s.manifest.IsZero() {
		z.packed += by
		z.packedBytes += by * s.size
	}
	if s.remote {
		z.remote += by * s.size
	}
	if s.lost {
		z.lost += by
	}
}
