package segment

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas/locks"
)

// Files keeps the segments open that were read last. One that is evicted while it is read is closed after
// that.
type Files struct {
	open func(n uint32) (*Reader, error)

	mu     locks.Mutex[filesLock]
	closed bool
	lru    *simplelru.LRU[uint32, *File]
	gone   map[uint32]bool // retired
}

// File is an open segment. refs counts its users, and one more while it is in the LRU.
type File struct {
	*Reader
	refs int
}

// NewFiles keeps n segments open, n > 0, which open opens.
func NewFiles(n int, open func(uint32) (*Reader, error)) *Files {
	fs := &Files{open: open, gone: make(map[uint32]bool)}
	var err error
	if fs.lru, err = simplelru.NewLRU(n, func(_ uint32, f *File) { fs.dropLocked(f) }); err != nil {
		panic(err) // n is positive
	}
	return fs
}

// Get returns segment n, open until it is given to Put.
func (fs *Files) Get(n uint32) (*File, error) {
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
		return &File{Reader: r, refs: 1}, nil
	}
	f := &File{Reader: r, refs: 2}
	fs.lru.Add(n, f)
	return f, nil
}

// Put returns what Get returned.
func (fs *Files) Put(f *File) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.dropLocked(f)
}

// dropLocked gives one reference back.
func (fs *Files) dropLocked(f *File) {
	fs.mu.AssertHeld()
	if f.refs--; f.refs == 0 {
		f.Close()
	}
}

// Retire closes segment n, once it is not being read, for good: its file is about to be removed, and an open
// descriptor would keep its bytes on the disk.
func (fs *Files) Retire(n uint32) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.gone[n] = true
	fs.lru.Remove(n)
}

// Close closes the segments, each once it is not being read, and lets Get fail with ErrClosed.
func (fs *Files) Close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.closed = true
	fs.lru.Purge()
}

// Len is how many segments are kept open.
func (fs *Files) Len() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.lru.Len()
}

// filesLock is the rank of Files.mu, a leaf: nothing is locked under it.
type filesLock struct{}

func (filesLock) Rank() (int, string) { return locks.Store + 990, "segment.Files.mu" }
