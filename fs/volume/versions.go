package volume

import (
	"cmp"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// versions finds, for a file that is to be packed, those before it to store it against. Nothing hangs on what it finds: a manifest that does
// not match costs a look, and one that was forgotten some bytes. It looks, in this order and until most of the file's tensors are found, at
//
//	the same path      as it was packed or opened for writing last
//	the steps before   the same path with a lower number in one of its names, the closest first: model-100.pt beside
//	                   model-200.pt, checkpoint-100/model.pt beside checkpoint-200/model.pt; and what else is in its folder there, since a
//	                   step may be one file and the next one several
//	the parent         that the file's step says it has: what is called as the file is there, and what else is
//	what is alike      files packed before whose tensors end alike in their names and have the same shapes: a run's base, say. They may
//	                   have nothing else in common: that is for samples to tell
//
// Of each it takes what has tensors that are not found yet, by the names that package pack finds them under. After a start the first two are
// found by the names as they are, and what is alike among the files that were packed last.
type versions struct {
	paths    *lru.Cache[string, cas.Hash]
	likes    likes
	recalled sync.Once
}

const (
	rememberedPaths = 4096

	maxSiblings = 4096    // names looked at in a directory
	maxSteps    = 2       // of the steps before that are looked at for one name
	enough      = 0.5     // share of a file's bytes in tensors that are found, from which on nothing else is looked for
	nearlyAll   = 0.9     // and from which on nothing else is looked for in the same step
	minLooks    = 16      // manifests that are looked at for a file, at least, and
	maxLooks    = 256     // at most, and
	perLook     = 4 << 20 // one more for so many bytes of the file
)

func newVersions() *versions {
	r := &versions{}
	r.paths, _ = lru.New[string, cas.Hash](rememberedPaths) // the size is positive
	return r
}

// noteVersion remembers that a file has, or had, a manifest. l is nil when only the path matters; was are those of which it is the next
// version.
func (v *Volume) noteVersion(n *Node, h cas.Hash, l *formats.Layout, was []cas.Hash) {
	if v.versions == nil {
		return
	}
	v.versions.paths.Add(n.Path(), h)
	if l != nil {
		v.versions.likes.note(pack.Signs(l.Tensors), h, was)
	}
}

// search is a search for files with earlier versions of a file's tensors.
type search struct {
	v      *Volume
	layout *formats.Layout
	fits   func(m *manifest.Manifest) bool // whether m may be a version before of a file without tensors
	sought *pack.Sought
	not    func(cas.Hash) bool // nil, or says of a manifest that it is none
	seen   map[cas.Hash]bool
	looks  int // that are left

	found    []version
	has      []bool // tensors that are found
	got, all int64  // bytes of tensors that are found, and of all
}

// version is a manifest with tensors that are sought.
type version struct {
	hash  cas.Hash
	m     *manifest.Manifest
	bytes int64
	named bool // it has some under the same names
}

func (v *Volume) newSearch(l *formats.Layout, not func(cas.Hash) bool) *search {
	s := &search{v: v, layout: l, sought: pack.Seek(l.Tensors), not: not, seen: map[cas.Hash]bool{}, has: make([]bool, len(l.Tensors))}
	s.fits = func(m *manifest.Manifest) bool { return m.Format == l.Format }
	for i := range l.Tensors {
		s.all += s.sought.Bytes(i)
	}
	s.looks = int(min(minLooks+s.all/perLook, maxLooks))
	return s
}

// read is the manifest of h, unless it was seen before or is none.
func (s *search) read(h cas.Hash) *manifest.Manifest {
	if s.seen[h] || s.looks == 0 || s.not != nil && s.not(h) {
		return nil
	}
	s.seen[h] = true
	s.looks--
	m, err := s.v.asm.Manifest(h)
	if err != nil {
		return nil
	}
	return m
}

// look takes the manifest h if it has tensors that those before it lack; of a file without tensors, if it fits.
func (s *search) look(h cas.Hash) {
	m := s.read(h)
	if m == nil {
		return
	}
	f := version{hash: h, m: m}
	more := len(s.layout.Tensors) == 0 && len(s.found) == 0 && s.fits(m)
	for _, match := range s.sought.In(m) {
		f.bytes += match.Bytes
		f.named = f.named || !match.Renamed
		for i, at := range match.At {
			if at >= 0 && !s.has[i] {
				s.has[i], more = true, true
				s.got += s.sought.Bytes(i)
			}
		}
	}
	if more {
		s.found = append(s.found, f)
	}
}

// covers reports whether so much of the file is found.
func (s *search) covers(share float64) bool {
	if len(s.layout.Tensors) == 0 {
		return len(s.found) > 0
	}
	return float64(s.got) >= share*float64(s.all)
}

// before looks at the path of the file and at the steps before it.
func (s *search) before(p string) {
	if h, ok := s.v.versions.paths.Get(p); ok {
		s.look(h)
	}
	names := strings.Split(p, "/")
	levels := 0
	for k := len(names) - 1; k >= 0 && levels < runs.Levels && !s.covers(enough); k-- {
		if _, numbers := runs.Numbers(names[k]); len(numbers) == 0 || runs.IsRun(names, k) {
			continue
		}
		levels++
		s.stepsBefore(names, k)
	}
}

// stepsBefore looks at the steps before by the number in names[k].
func (s *search) stepsBefore(names []string, k int) {
	steps, folder := 0, ""
	for _, rel := range s.v.stepsBefore(names, k) {
		h, ok := s.v.versionAt(rel)
		if ok {
			s.look(h)
		}
		if dir := path.Dir(rel); k < len(names)-1 && dir != folder && !s.covers(nearlyAll) {
			folder = dir
			for _, rel := range s.v.near(dir, maxStep) {
				if h, is := s.v.versionAt(rel); is {
					s.look(h)
					ok = true
				}
			}
		}
		if ok {
			steps++
		}
		if s.covers(enough) || steps == maxSteps {
			return
		}
	}
}

// earlier are files that the one at p, of a layout l, may be stored against; was are those of which it is the next version, at its path or
// in its run. not, if not nil, says of a manifest that it is none; what is alike is looked for with alike.
func (v *Volume) earlier(p string, l *formats.Layout, not func(cas.Hash) bool, alike func(signs []uint64) []cas.Hash) (rel pack.Related, was []cas.Hash) {
	if len(l.Tensors) == 0 && !l.Fine {
		return rel, nil
	}
	s := v.newSearch(l, not)
	s.before(p)
	for _, f := range s.found {
		if f.named {
			was = append(was, f.hash)
		}
	}
	if len(l.Tensors) > 0 && !s.covers(enough) {
		for _, h := range v.parents(p) {
			if s.covers(nearlyAll) {
				break
			}
			s.look(h)
		}
	}
	slices.SortStableFunc(s.found, func(a, b version) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, f := range s.found {
		rel.Before = append(rel.Before, f.m)
	}
	if len(l.Tensors) > 0 && !s.covers(enough) {
		for _, h := range alike(pack.Signs(l.Tensors)) {
			if m := s.read(h); m != nil {
				rel.Alike = append(rel.Alike, m)
			}
		}
	}
	return rel, was
}

// presume is the layout of the file at p if it is one that has grown, as far as can be told without parsing it, and the version before it; nil when it
// is none.
func (v *Volume) presume(p string, raw io.ReaderAt, size int64) (l *formats.Layout, rel pack.Related, err error) {
	if v.versions == nil {
		return nil, rel, nil
	}
	as, err := detect.Presume(raw, size)
	if err != nil || as == nil {
		return nil, rel, err
	}
	s := v.newSearch(&formats.Layout{}, nil)
	s.fits = func(m *manifest.Manifest) bool {
		if len(m.Tensors) == 0 && len(m.Regions) == 1 && m.Regions[0].Kind == formats.Blob {
			l = as(m.Format)
		}
		return l != nil
	}
	s.before(p)
	for _, f := range s.found {
		rel = pack.Related{Before: []*manifest.Manifest{f.m}, Presumed: true}
	}
	return l, rel, nil
}

// versionAt is the manifest of the file at a path below the mount's root, without looking through symbolic links.
func (v *Volume) versionAt(rel string) (cas.Hash, bool) {
	if h, ok := v.versions.paths.Get(rel); ok {
		return h, true // it may not be published yet
	}
	fd, err := v.openBelow(rel, unix.O_PATH)
	if err != nil {
		return cas.Hash{}, false
	}
	defer unix.Close(fd)
	var b [tree.RecordSize + 1]byte
	k, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(fd), tree.XattrName, b[:])
	if err != nil {
		return cas.Hash{}, false
	}
	rec, err := tree.DecodeRecord(b[:k])
	return rec.Manifest, err == nil && rec.Packed()
}

func (v *Volume) openBelow(rel string, flags uint64) (int, error) {
	return unix.Openat2(v.names.rootFd, rel, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// namesIn lists names in a folder below the mount's root, at most maxSiblings.
func (v *Volume) namesIn(dir string) []string {
	fd, err := v.openBelow(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	names, _ := d.Readdirnames(maxSiblings)
	return names
}

// stepsBefore lists the paths that differ from names in a lower number in names[k], the closest first, and perhaps in that
// number in what lies below. There may be nothing at them.
func (v *Volume) stepsBefore(names []string, k int) (rels []string) {
	dir, own := path.Join(names[:k]...), names[k]
	if dir == "" {
		dir = "."
	}
	pattern, number := runs.Numbers(own)
	type step struct {
		name   string
		number []string
	}
	var before []step
	for _, s := range v.namesIn(dir) {
		if pat, num := runs.Numbers(s); pat == pattern && runs.CompareNumbers(num, number) < 0 {
			before = append(before, step{s, num})
		}
	}
	slices.SortFunc(before, func(a, b step) int { return runs.CompareNumbers(b.number, a.number) })
	rest := path.Join(names[k+1:]...)
	for _, s := range before[:min(len(before), 4*maxSteps)] {
		rels = append(rels, path.Join(dir, s.name, rest))
		other := rest
		for i := range number {
			// Names are anybody's, and may make it longer each time; zero has no digits to look for.
			if number[i] != "" && len(other) < unix.PathMax {
				other = strings.ReplaceAll(other, number[i], cmp.Or(s.number[i], "0"))
			}
		}
		if other != rest && len(other) < unix.PathMax {
			rels = append(rels, path.Join(dir, s.name, other))
		}
	}
	return rels
}
