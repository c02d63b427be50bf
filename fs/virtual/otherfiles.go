package virtual

import (
	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

// otherFiles are files that were seen to be no safetensors files: a list of a folder below .ckptfs/make asks
// that of each file in it, and then each name of the list does.
type otherFiles struct {
	mu locks.Mutex[leafLock]
	of map[otherFile]struct{}
}

// otherFile is one generation of a file.
type otherFile struct {
	id  content.NodeID
	gen uint64
}

// maxOtherFiles bounds them; beyond it all are forgotten.
const maxOtherFiles = 1 << 15

func (s *otherFiles) has(o *operand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.of[otherFile{o.n.ID(), o.gen}]
	return ok
}

func (s *otherFiles) add(o *operand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || len(s.of) >= maxOtherFiles {
		s.of = make(map[otherFile]struct{})
	}
	s.of[otherFile{o.n.ID(), o.gen}] = struct{}{}
}
