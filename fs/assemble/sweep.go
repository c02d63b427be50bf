package assemble

import (
	"slices"

	"ckptfs/cas/locks"
	"ckptfs/formats"
)

// sweep recognises a reader that looks at what stands before each tensor, one after the other, and at none of
// their numbers: so does torch.load of a file that it maps, since a zip has a header there. Each look costs
// it a page, and here a chunk or two; those that come next are decoded before it does.
type sweep struct {
	mu     locks.Mutex[orderLock]
	begins []int64 // where tensors begin, in order; once made
	made   bool
	last   int // the one looked at
	row    int // how many were, in order
	ahead  int // that are expected, up to this one
}

const (
	// maxLook is the most that a look reads, and minSwept the least tensor that one may pass over.
	maxLook  = 64 << 10
	minSwept = 256 << 10
	// headRoom is how long what stands before a tensor is, about: a zip's header with a name and the bytes
	// that align the tensor.
	headRoom = 256
	// sweepAhead is how many tensors ahead are expected, once sweepRow were looked at.
	sweepAhead, sweepRow = 8, 3
)

// look notes a read and calls expect with the pages that are to be read ahead.
func (s *sweep) look(d *doc, off, n int64, expect func(from, to int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > maxLook {
		s.row, s.last = 0, -1
		return
	}
	if !s.made {
		s.made = true
		for _, r := range d.Regions {
			if r.Kind == formats.Data && r.Len >= minSwept {
				s.begins = append(s.begins, r.Off)
			}
		}
		s.last = -1
	}
	// What stands before a tensor may end in the page that it begins in.
	i, _ := slices.BinarySearch(s.begins, off)
	switch {
	case i == len(s.begins) || s.begins[i] >= off+n+page || i == s.last:
		return
	case i == s.last+1:
		s.row++
	default:
		s.row, s.ahead = 1, i
	}
	if s.last = i; s.row < sweepRow {
		return
	}
	to := min(i+sweepAhead, len(s.begins)-1)
	for j := max(s.ahead, i) + 1; j <= to; j++ {
		begin := s.begins[j]
		expect(max(begin-headRoom, 0)&^(page-1), begin+1)
	}
	s.ahead = max(s.ahead, to)
}
