package record

import (
	"ckptfs/cas"
	"ckptfs/cas/document"
)

// reader is a document.Reader that knows hashes and ids.
type reader struct{ document.Reader }

func newReader(p []byte, of string) *reader { return &reader{document.Reader{P: p, Of: of}} }

func (r *reader) hash() (h cas.Hash) {
	copy(h[:], r.Take(len(h)))
	return h
}

func (r *reader) id() (id ID) {
	copy(id[:], r.Take(len(id)))
	return id
}

// upTo reads a number that is at most most.
func (r *reader) upTo(most int64) int64 {
	n := r.Num()
	if n > most {
		r.Fail("%d of at most %d", n, most)
		return 0
	}
	return n
}

// many reads how many items follow, each of at least size bytes, and these; nil when there are none.
func many[T any](r *reader, size int, one func() T) []T {
	n := r.Count(size)
	if n == 0 {
		return nil
	}
	items := make([]T, 0, n)
	for i := 0; i < n && r.Err == nil; i++ {
		items = append(items, one())
	}
	return items
}

// uint32 reads a fixed number.
func (r *reader) uint32() uint32 {
	if q := r.Take(4); q != nil {
		return le.Uint32(q)
	}
	return 0
}

// uint64 reads a fixed number.
func (r *reader) uint64() uint64 {
	if q := r.Take(8); q != nil {
		return le.Uint64(q)
	}
	return 0
}
