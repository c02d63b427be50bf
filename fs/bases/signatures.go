package bases

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

const (
	maxLikes = 256 // files whose signs are remembered: some 75 KiB
	maxSigns = 32  // of a file that are
	maxAlike = 16  // files that are alike and looked at
)

// Signatures finds files whose tensors end alike in their names and have the same shapes. Of each it
// remembers the least of its tensors' signs, which are a sample: the share of them that another file has is
// about its share of the tensors. A file takes the place of those of which it is the next version, so that a
// long run leaves room for others. The zero value is ready for use, by several goroutines at once.
type Signatures struct {
	mu    locks.Mutex[signaturesLock]
	files []signature // what was noted last comes last
}

// signature is what is remembered of one file.
type signature struct {
	manifest cas.Hash
	signs    []uint64
	slight   bool // it follows nearly wholly from others, which are relatives as near
}

// common is how many of its signs are among others, which are in order.
func (f *signature) common(signs []uint64) (n int) {
	for _, sign := range f.signs {
		if _, ok := slices.BinarySearch(signs, sign); ok {
			n++
		}
	}
	return n
}

// mostly reports whether so many signs in common are a quarter of its own. Of fewer than four signs a quarter
// is none.
func (f *signature) mostly(common int) bool { return common > 0 && common >= len(f.signs)/4 }

// Note remembers the signs of h, in order, in place of those of was.
func (s *Signatures) Note(all []uint64, h cas.Hash, was []cas.Hash) { s.note(all, h, was, false) }

func (s *Signatures) note(all []uint64, h cas.Hash, was []cas.Hash, slight bool) {
	if len(all) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = slices.DeleteFunc(s.files, func(f signature) bool {
		return f.manifest == h || slices.Contains(was, f.manifest)
	})
	if len(s.files) == maxLikes {
		s.files = slices.Delete(s.files, 0, 1)
	}
	s.files = append(s.files, signature{h, least(all), slight})
}

// recall remembers the signs of h as what was noted first.
func (s *Signatures) recall(all []uint64, h cas.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(all) > 0 && len(s.files) < maxLikes &&
		!slices.ContainsFunc(s.files, func(f signature) bool { return f.manifest == h }) {
		s.files = slices.Insert(s.files, 0, signature{manifest: h, signs: least(all)})
	}
}

func least(all []uint64) []uint64 { return slices.Clone(all[:min(maxSigns, len(all))]) }

// of lists the manifests of files with signs such as these, which are in order: those that were noted last
// first, after them those that follow from others, so that many merges do not hide what they were merged of,
// and then those that have few.
func (s *Signatures) of(signs []uint64) []cas.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	var most, slight, few []cas.Hash
	for _, f := range slices.Backward(s.files) {
		switch common := f.common(signs); {
		case f.mostly(common) && f.slight:
			slight = append(slight, f.manifest)
		case f.mostly(common):
			most = append(most, f.manifest)
		case common > 0:
			few = append(few, f.manifest)
		}
	}
	all := slices.Concat(most, slight, few)
	return all[:min(len(all), maxAlike)]
}
