package volume

import (
	"slices"
	"sync"

	"ckptfs/cas"
)

const (
	maxLikes = 256 // files whose signs are remembered: some 75 KiB
	maxSigns = 32  // of a file that are
	maxAlike = 16  // files that are alike and looked at
)

// likes finds files whose tensors end alike in their names and have the same shapes. Of each it remembers the least of its tensors' signs,
// which are a sample: the share of them that another file has is about its share of the tensors. A file takes the place of those of which it is the
// next version, so that a long run leaves room for others.
type likes struct {
	mu    sync.Mutex
	files []likeness // what was noted last comes last
}

type likeness struct {
	manifest cas.Hash
	signs    []uint64
}

// note remembers the signs of h, in order, in place of those of was.
func (l *likes) note(all []uint64, h cas.Hash, was []cas.Hash) {
	if len(all) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = slices.DeleteFunc(l.files, func(f likeness) bool { return f.manifest == h || slices.Contains(was, f.manifest) })
	if len(l.files) == maxLikes {
		l.files = slices.Delete(l.files, 0, 1)
	}
	l.files = append(l.files, likeness{h, least(all)})
}

// recall remembers the signs of h as what was noted first.
func (l *likes) recall(all []uint64, h cas.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(all) > 0 && len(l.files) < maxLikes && !slices.ContainsFunc(l.files, func(f likeness) bool { return f.manifest == h }) {
		l.files = slices.Insert(l.files, 0, likeness{h, least(all)})
	}
}

func least(all []uint64) []uint64 { return slices.Clone(all[:min(maxSigns, len(all))]) }

// of lists the manifests of files with signs such as these, which are in order: those that were noted last first, and after them those
// that have few.
func (l *likes) of(signs []uint64) []cas.Hash {
	l.mu.Lock()
	defer l.mu.Unlock()
	var most, few []cas.Hash
	for _, f := range slices.Backward(l.files) {
		common := 0
		for _, s := range f.signs {
			if _, ok := slices.BinarySearch(signs, s); ok {
				common++
			}
		}
		switch {
		case common >= len(f.signs)/4:
			most = append(most, f.manifest)
		case common > 0:
			few = append(few, f.manifest)
		}
	}
	all := append(most, few...)
	return all[:min(len(all), maxAlike)]
}
