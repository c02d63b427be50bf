package spilled

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sort"
	"unsafe"

	"ckptfs/cas/disk"
)

// Slab has room for very many values of one type, which has no pointers: the collector does not see them.
// What reads or writes them is called by Guard. A slab and its values go together.
type Slab[T any] struct {
	dir    *disk.Folder
	free   []*T
	chunks [][]T
	chunk  []T   // what is left of the last one
	starts []int // how many values lie in the chunks before
	values int
	heap   int
	files  []*mapping
}

// slabBytes is how much is mapped at a time.
const slabBytes = 4 << 20

// NewSlab makes an empty one, whose files would be made in dir. nil: it stays in memory, as it does where no
// file can be made, and while it is small.
func NewSlab[T any](dir *disk.Folder) *Slab[T] { return &Slab[T]{dir: dir} }

// New is a value that is zero.
func (s *Slab[T]) New() *T {
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		clear(unsafe.Slice(p, 1))
		return p
	}
	if len(s.chunk) == 0 {
		s.grow()
	}
	p := &s.chunk[0]
	s.chunk = s.chunk[1:]
	return p
}

// At is the value that was made after i others.
func (s *Slab[T]) At(i int) *T {
	k := sort.SearchInts(s.starts, i+1) - 1
	return &s.chunks[k][i-s.starts[k]]
}

// Free gives a value back.
func (s *Slab[T]) Free(p *T) { s.free = append(s.free, p) }

// Memory is how many bytes it takes in memory.
func (s *Slab[T]) Memory() int64 {
	return int64(s.heap)*int64(unsafe.Sizeof(*new(T))) + 8*int64(cap(s.free))
}

func (s *Slab[T]) grow() {
	n := min(max(firstHomes, s.values), slabBytes/int(unsafe.Sizeof(*new(T))))
	s.starts = append(s.starts, s.values)
	s.values += n
	if size := n * int(unsafe.Sizeof(*new(T))); s.dir != nil && size >= mappedFrom*slotBytes {
		if m := newMapping(s.dir, size); m != nil {
			s.files = append(s.files, m)
			s.begin(unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.bytes))), n))
			return
		}
	}
	s.heap += n
	s.begin(make([]T, n))
}

func (s *Slab[T]) begin(chunk []T) { s.chunks, s.chunk = append(s.chunks, chunk), chunk }

// Each calls f with all values, in the order in which they were made, also with those that were given back.
// An error of f ends it.
func (s *Slab[T]) Each(f func(*T) error) error {
	defer runtime.KeepAlive(s) // what lies in its files is not the collector's
	for i, chunk := range s.chunks {
		if i == len(s.chunks)-1 {
			chunk = chunk[:len(chunk)-len(s.chunk)]
		}
		for k := range chunk {
			if err := f(&chunk[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrLost says that the disk does not give back what the kernel wrote out.
var ErrLost = errors.New("the disk does not give back a table that the kernel wrote out")

// Guard calls do. Where the disk does not give back what do reads or writes, it ends there, with ErrLost.
func Guard(do func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if _, fault := r.(interface{ Addr() uintptr }); !fault {
			panic(r)
		}
		err = ErrLost
	}()
	return do()
}
