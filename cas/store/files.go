package store

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas/locks"
	"ckptfs/cas/segment"
)

// files keeps the segments open that were read last. One that is evicted while it is read is closed after
// that.
type files struct {
	open func(n uint32) (*segment.Reader, error)

	mu     locks.Mutex[leafLock]
	closed bool
	lru    *simplelru.LRU[uint32, *file]
	gone   map[uint32]bool // retired
}

// file is an open segment. refs counts its users, and one more while it is in the LRU.
type file struct {
	*segment.Reader
	refs int
}

func newFiles(n int, open func(uint32) (*segment.Reader, error)) *files {
	fs := &files{open: open, gone: make(map[uint32]bool)}
	var err error
	if fs.lru, err = simplelru.NewLRU(n, func(_ uint32, f *file) { fs.dropLocked(f) }); err != nil {
		panic(err) // n is positive
	}
	return fs
}

// get returns segment n, open until it is given to put.
func (fs *files) get(n uint32) (*file, error) {
	fs.mu.Lock()
	if f, ok := fs.lru.Get(n); ok {
		f.refs++
		fs.mu.Unlock()
		return f, nil
	}
	fs.mu.Unlock()
	r, err := fs.open(n)
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		r.Close()
		return nil, ErrClosed
	}
	if f, ok := fs.lru.Get(n); ok { // opened by another meanwhile
		r.Close()
		f.refs++
		return f, nil
	}
	if fs.gone[n] {
		return &file{Reader: r, refs: 1}, nil
	}
	f := &file{Reader: r, refs: 2}
	fs.lru.Add(n, f)
	return f, nil
}

func (fs *files) put(f *file) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.dropLocked(f)
}

// dropLocked gives one reference back.
func (fs *files) dropLocked(f *file) {
	fs.mu.AssertHeld()
	if f.refs--; f.refs == 0 {
		f.Close()
	}
}

// retire closes segment n, once it is not being read, for good: its file is about to be removed, and an open
// descriptor would keep its bytes on the disk.
func (fs *files) retire(n uint32) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.gone[n] = true
	fs.lru.Remove(n)
}

func (fs *files) close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.closed = true
	fs.lru.Purge()
}
