package anchors

import (
	"os"
	"slices"
	"sort"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/disk"
)

// run is a sorted run.
type run struct {
	f           disk.File
	path        string
	first, last uint32
	size        int64
	fences      []uint32
	bad         atomic.Bool // a page of it is damaged

	entries, tensors, manifests section
}

const (
	ordinalBits = anchor.KeyBits - 16
	maxTensors  = 1 << ordinalBits // of a run

	// perKey is how many tensors one anchor names at most. Those that were noted last count.
	perKey = 64
	// maxEqual is how many tensors with one anchor are read.
	maxEqual = 1024
)

func entryOf(k anchor.Key, ordinal uint32) uint64 { return uint64(k)<<ordinalBits | uint64(ordinal) }

func openRun(fsys disk.FS, path string, store [16]byte, first, last uint32) (*run, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	r := &run{f: f, path: path, first: first, last: last}
	if err := r.open(store); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *run) open(store [16]byte) error {
	h, err := readHeader(r.f, store, r.first, r.last)
	if err != nil {
		return err
	}
	if r.size, err = r.f.Size(); err != nil {
		return err
	}
	if h.entries > uint64(r.size) || h.tensors > maxTensors || h.manifests > h.tensors || r.last < r.first {
		return corrupt("more than the file can have")
	}
	fences := r.lay(int64(h.entries), int64(h.tensors), int64(h.manifests))
	if (fences.first+fences.pages())*pageSize != r.size {
		return corrupt("a file of %d bytes", r.size)
	}
	in := reader{f: r.f, s: fences}
	r.fences = make([]uint32, 0, fences.n)
	for {
		p, err := in.next()
		if err != nil {
			return err
		}
		if p == nil {
			break
		}
		r.fences = append(r.fences, be.Uint32(p))
	}
	if !slices.IsSorted(r.fences) {
		return corrupt("fences out of order")
	}
	return nil
}

// lay says where the parts of a run of so many lie.
func (r *run) lay(entries, tensors, manifests int64) (fences section) {
	r.entries = section{1, entries, 8}
	r.tensors = section{1 + r.entries.pages(), tensors, 8}
	r.manifests = section{r.tensors.first + r.tensors.pages(), manifests, cas.HashSize}
	return section{r.manifests.first + r.manifests.pages(), r.entries.pages(), 4}
}

func (r *run) remove(fsys disk.FS) {
	r.f.Close()
	fsys.Remove(r.path) // or the next start does
}

// find adds the tensors that have at least so many of keys, which are in order.
func (r *run) find(hits []Hit, keys []anchor.Key, least int) ([]Hit, error) {
	if r.bad.Load() {
		return hits, nil
	}
	buf := make([]byte, pageSize)
	var page []byte
	at := int64(-1)
	counts := map[uint32]int{}
	var equal []uint32
	for _, key := range keys {
		top := uint32(key >> (anchor.KeyBits - 32))
		// The page before the first that begins with top or more may end with it.
		k := int64(sort.Search(len(r.fences), func(i int) bool { return r.fences[i] >= top })) - 1
		equal = equal[:0]
		for k = max(k, 0); k < int64(len(r.fences)) && r.fences[k] <= top && len(equal) < maxEqual; k++ {
			if k != at {
				var err error
				at = -1
				if page, err = r.entries.read(r.f, k, buf); err != nil {
					return hits, err
				}
				at = k
			}
			n := len(page) / 8
			from := entryOf(key, 0)
			i := sort.Search(n, func(i int) bool { return be.Uint64(page[8*i:]) >= from })
			for ; i < n; i++ {
				e := be.Uint64(page[8*i:])
				if e>>ordinalBits != uint64(key) {
					break
				}
				equal = append(equal, uint32(e&(maxTensors-1)))
			}
			if i < n {
				break
			}
		}
		for _, o := range equal[max(0, len(equal)-perKey):] {
			counts[o]++
		}
	}
	return r.resolve(hits, counts, least, buf)
}

// resolve adds the tensors that were counted at least so often.
func (r *run) resolve(hits []Hit, counts map[uint32]int, least int, buf []byte) ([]Hit, error) {
	var found []uint32
	for o, n := range counts {
		if n >= least {
			found = append(found, o)
		}
	}
	slices.Sort(found)
	for _, o := range slices.Backward(found) {
		h := Hit{Keys: counts[o]}
		p, err := r.tensors.record(r.f, int64(o), buf)
		if err != nil {
			return hits, err
		}
		m := be.Uint32(p)
		h.Tensor = be.Uint32(p[4:])
		if p, err = r.manifests.record(r.f, int64(m), buf); err != nil {
			return hits, err
		}
		h.Manifest = cas.Hash(p)
		hits = append(hits, h)
	}
	return hits, nil
}

// each is Index.Each.
func (r *run) each(f func(m cas.Hash, tensor uint32) bool) (more bool, err error) {
	if r.bad.Load() {
		return true, nil
	}
	in := reader{f: r.f, s: r.tensors}
	buf := make([]byte, pageSize)
	var hash cas.Hash
	of := int64(-1)
	for {
		p, err := in.next()
		if err != nil || p == nil {
			return true, err
		}
		if m := int64(be.Uint32(p)); m != of {
			h, err := r.manifests.record(r.f, m, buf)
			if err != nil {
				return true, err
			}
			of, hash = m, cas.Hash(h)
		}
		if !f(hash, be.Uint32(p[4:])) {
			return false, nil
		}
	}
}
