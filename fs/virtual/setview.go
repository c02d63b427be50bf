package virtual

import (
	"fmt"
	"io"
	"path"
	"sort"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/formats"
	"ckptfs/fs/content"
	"ckptfs/fs/models"
	"ckptfs/fs/view"
)

// setView is one safetensors file of the tensors of several files. The files are kept open until the last
// user of the view closes it. The plan of a view has one source: here that is the files one behind the other.
type setView struct {
	v    *Virtual
	plan *view.View
	held int64 // bytes that the plan takes, of what is kept of files' tensors

	mu    locks.Mutex[leafLock]
	users int // open handles and pins; 0: the files are closed

	parts []setPart // ascending by start
	size  int64     // of all parts
}

type setPart struct {
	h     *content.Handle
	file  *content.File
	gen   uint64 // of its bytes
	start int64
}

// maxSetFiles bounds the files that one setView keeps open.
const maxSetFiles = 512

// openSet opens the files of a set, for one user. ENOENT when a file does not have the tensors that the index
// lists; view.ErrNoView when safetensors cannot express them; ENOMEM when other sets take what may be taken.
func (v *Virtual) openSet(set *models.Shards) (s *setView, err error) {
	opened := &setView{v: v, users: 1}
	s = opened
	defer func() {
		if err != nil {
			opened.release()
		}
	}()
	if len(set.Files) > maxSetFiles {
		return nil, fmt.Errorf("%d files, of at most %d: %w", len(set.Files), maxSetFiles, view.ErrNoView)
	}
	var all formats.Layout
	for _, file := range set.Files {
		l, err := s.add(path.Join(path.Dir(set.Index), file))
		if err != nil {
			return nil, err
		}
		first, start := len(all.Regions), s.parts[len(s.parts)-1].start
		for _, r := range l.Regions {
			r.Off += start
			all.Regions = append(all.Regions, r)
			s.size = max(s.size, r.Off+r.Len)
		}
		for _, t := range l.Tensors {
			if set.FileOf[t.Name] != file {
				continue
			}
			if t.Region >= 0 {
				t.Region += first
			}
			all.Tensors = append(all.Tensors, t)
		}
	}
	if len(all.Tensors) != len(set.FileOf) {
		return nil, unix.ENOENT
	}
	plan, err := view.Safetensors(all.Regions, all.Tensors)
	if err != nil {
		return nil, err
	}
	if !v.tensors.hold(plan.Memory()) {
		return nil, fmt.Errorf("plans of sets take too much memory already: %w", unix.ENOMEM)
	}
	s.plan, s.held = plan, plan.Memory()
	return s, nil
}

// add opens one more file, which begins at s.size.
func (s *setView) add(p string) (*formats.Layout, error) {
	n, err := s.v.o.Names.Resolve(p)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	if n.File() == nil {
		return nil, unix.ENOENT
	}
	h, err := n.File().Open(unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	n.File().Lock()
	defer n.File().Unlock()
	s.parts = append(s.parts, setPart{h, n.File(), n.File().StateLocked().Gen, s.size})
	return n.File().LayoutLocked()
}

// retain adds a user; false when the files are closed.
func (s *setView) retain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

func (s *setView) release() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if !last {
		return
	}
	for _, p := range s.parts {
		p.h.Release()
	}
	if s.plan != nil {
		s.plan.Drop()
		s.v.tensors.hold(-s.held)
	}
}

// current reports whether the files have the bytes that they had when they were opened.
func (s *setView) current() bool {
	for _, p := range s.parts {
		f := p.file
		f.Lock()
		gen := f.StateLocked().Gen
		f.Unlock()
		if gen != p.gen {
			return false
		}
	}
	return true
}

// openSet is an open setView.
type openSet struct {
	unwritten
	s *setView
}

func (o openSet) Read(p []byte, off int64) (int, error) { return o.s.read(p, off) }
func (o openSet) Close()                                { o.s.release() }

// read reads the view; ESTALE when a file has other bytes by now.
func (s *setView) read(p []byte, off int64) (int, error) {
	n, err := s.plan.ReadAt(setSource{s}, p, off)
	if !s.current() {
		return 0, unix.ESTALE
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// setSource is the files of a setView, one behind the other.
type setSource struct{ s *setView }

func (r setSource) ReadAt(p []byte, off int64) (n int, err error) {
	s := r.s
	for n < len(p) && off < s.size {
		i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].start > off }) - 1
		end := s.size
		if i+1 < len(s.parts) {
			end = s.parts[i+1].start
		}
		k, err := s.parts[i].h.Read(p[n:min(int64(len(p)), int64(n)+end-off)], off-s.parts[i].start)
		if err != nil {
			return n, err
		}
		if k == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += k
		off += int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
