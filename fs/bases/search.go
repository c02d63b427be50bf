package bases

import (
	"cmp"
	"io"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

const (
	maxSteps = 2   // of the steps before that are looked at for one name
	maxStep  = 256 // files of a step that are looked at
	// share of a file's bytes in tensors that are found, from which on nothing else is looked for
	enough    = 0.5
	nearlyAll = 0.9     // and from which on nothing else is looked for in the same step
	minLooks  = 16      // manifests that are looked at for a file, at least, and
	maxLooks  = 256     // at most, and
	perLook   = 4 << 20 // one more for so many bytes of the file
)

// search is a search for files with earlier versions of a file's tensors.
type search struct {
	f      *Finder
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

func (f *Finder) newSearch(l *formats.Layout, not func(cas.Hash) bool) *search {
	s := &search{f: f, layout: l, sought: pack.Seek(l.Tensors), not: not, seen: map[cas.Hash]bool{},
		has: make([]bool, len(l.Tensors))}
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
	m, err := s.f.o.Store.Manifest(h)
	if err != nil {
		return nil
	}
	return m
}

// look takes the manifest h if it has tensors that those before it lack; of a file without tensors, if it
// fits.
func (s *search) look(h cas.Hash) {
	m := s.read(h)
	if m == nil {
		return
	}
	found := version{hash: h, m: m}
	more := len(s.layout.Tensors) == 0 && len(s.found) == 0 && s.fits(m)
	for _, match := range s.sought.In(m) {
		found.bytes += match.Bytes
		found.named = found.named || !match.Renamed
		for i, at := range match.At {
			if at >= 0 && !s.has[i] {
				s.has[i], more = true, true
				s.got += s.sought.Bytes(i)
			}
		}
	}
	if more {
		s.found = append(s.found, found)
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
	if h, ok := s.f.paths.Get(p); ok {
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
	for _, rel := range s.f.stepsBefore(names, k) {
		h, ok := s.f.at(rel)
		if ok {
			s.look(h)
		}
		if dir := path.Dir(rel); k < len(names)-1 && dir != folder && !s.covers(nearlyAll) {
			folder = dir
			for _, rel := range s.f.near(dir, maxStep) {
				if h, is := s.f.at(rel); is {
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

// earlier are files that the one at p, of a layout l, may be stored against; was are those of which it is the
// next version, at its path or in its run. not, if not nil, says of a manifest that it is none; what is alike
// is looked for with alike.
func (f *Finder) earlier(p string, l *formats.Layout, not func(cas.Hash) bool,
	alike func(signs []uint64) []cas.Hash) (rel pack.Related, was []cas.Hash) {
	if len(l.Tensors) == 0 && !l.Fine {
		return rel, nil
	}
	s := f.newSearch(l, not)
	s.before(p)
	for _, x := range s.found {
		if x.named {
			was = append(was, x.hash)
		}
	}
	if len(l.Tensors) > 0 && !s.covers(enough) {
		for _, h := range f.parents(p) {
			if s.covers(nearlyAll) {
				break
			}
			s.look(h)
		}
	}
	slices.SortStableFunc(s.found, func(a, b version) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, x := range s.found {
		rel.Before = append(rel.Before, x.m)
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

// Presume is the layout of the file at p if it is one that has grown, as far as can be told without parsing
// it, and the version before it; nil when it is none.
func (f *Finder) Presume(p string, raw io.ReaderAt,
	size int64) (l *formats.Layout, rel pack.Related, err error) {
	if f == nil || f.o.Alone(p) {
		return nil, rel, nil
	}
	as, err := detect.Presume(raw, size)
	if err != nil || as == nil {
		return nil, rel, err
	}
	s := f.newSearch(&formats.Layout{}, nil)
	s.fits = func(m *manifest.Manifest) bool {
		if len(m.Tensors) == 0 && len(m.Regions) == 1 && m.Regions[0].Kind == formats.Blob {
			l = as(m.Format)
		}
		return l != nil
	}
	s.before(p)
	for _, x := range s.found {
		rel = pack.Related{Before: []*manifest.Manifest{x.m}, Presumed: true}
	}
	return l, rel, nil
}
