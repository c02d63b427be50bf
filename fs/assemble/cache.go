package assemble

import (
	"math"
	"math/bits"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

type lru[V any] = simplelru.LRU[cas.Hash, V]

func newLRU[V any]() *lru[V] {
	l, _ := simplelru.NewLRU[cas.Hash, V](math.MaxInt, nil) // bounded in bytes by its owner; fails only for a size of 0
	return l
}

// cache holds decoded chunks, and those on their way.
//
//	queued → running → held or failed
//
// Whoever moves an entry from queued to running (claim) must load it. Everyone who got it from acquire must release it.
//
// Invariants, under mu:
//
//	an entry is in coming while queued or running, in lru while held and not evicted, in neither once failed or evicted
//	bytes = sum of the buffers of the entries in lru
//	bytes <= max once loaded returns
//	gone has those of lru that readers in order have passed by, oldest first, and passed the sum of their buffers
//	passed <= maxPassed once pass returns
type cache struct {
	mu           sync.Mutex
	coming       map[cas.Hash]*entry
	lru          *lru[*entry]
	bytes, max   int64
	gone         *lru[*entry]
	passed       int64
	hits, misses int64
}

// maxPassed bounds the chunks kept that readers in order have passed by. Their bytes lie in the kernel's cache by then, and
// new chunks are better decoded into warm buffers than into memory that has to be faulted in. Some are kept, since the
// kernel's requests overtake each other.
const maxPassed = 4 << 20

type entry struct {
	span manifest.Span
	done chan struct{} // closed when held or failed; then data and err stay

	refs    int // acquirers, and one while in lru; under mu
	claimed bool
	buf     *buffer // data's, or nil
	data    []byte
	err     error
}

func newCache(max int64) *cache {
	return &cache{coming: map[cas.Hash]*entry{}, lru: newLRU[*entry](), gone: newLRU[*entry](), max: max}
}

// acquire returns the entry of a chunk, a new one if there is none, and whether it needs to be claimed and loaded.
func (c *cache) acquire(s manifest.Span) (e *entry, queued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.lru.Get(s.Hash); ok {
		c.hits++
		e.refs++
		c.recall(e)
		return e, false
	}
	c.misses++
	e, ok := c.coming[s.Hash]
	if !ok {
		e = &entry{span: s, done: make(chan struct{})}
		c.coming[s.Hash] = e
	}
	e.refs++
	return e, !e.claimed
}

// peek returns the entry of a chunk that is held, acquired, or nil.
func (c *cache) peek(h cas.Hash) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Get(h)
	if !ok {
		c.misses++
		return nil
	}
	c.hits++
	e.refs++
	c.recall(e)
	return e
}

// recall takes back that e was passed by.
func (c *cache) recall(e *entry) {
	if c.gone.Remove(e.span.Hash) {
		c.passed -= e.size()
	}
}

// pass says that a reader in order is past e, which the caller has acquired.
func (c *cache) pass(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, ok := c.lru.Peek(e.span.Hash); !ok || held != e || c.gone.Contains(e.span.Hash) {
		return
	}
	c.gone.Add(e.span.Hash, e)
	for c.passed += e.size(); c.passed > maxPassed; {
		h, old, _ := c.gone.RemoveOldest()
		c.passed -= old.size()
		c.lru.Remove(h)
		c.bytes -= old.size()
		c.unref(old)
	}
}

// expect returns an entry to be loaded ahead of its readers, acquired, or nil when the chunk is held or on its way.
func (c *cache) expect(s manifest.Span) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(s.Hash) || c.coming[s.Hash] != nil {
		return nil
	}
	e := &entry{span: s, done: make(chan struct{}), refs: 1}
	c.coming[s.Hash] = e
	return e
}

func (c *cache) claim(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := e.claimed
	e.claimed = true
	return !was
}

// loaded ends what claim began. data lies in b, or in memory of its own.
func (c *cache) loaded(e *entry, b *buffer, data []byte, err error) {
	if err != nil || &data[0] != &b.bytes[0] {
		b.free()
		b = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.buf, e.data, e.err = b, data, err
	delete(c.coming, e.span.Hash)
	if err == nil {
		e.refs++
		c.lru.Add(e.span.Hash, e)
		for c.bytes += e.size(); c.bytes > c.max; {
			_, old, _ := c.lru.RemoveOldest()
			c.recall(old)
			c.bytes -= old.size()
			c.unref(old)
		}
	}
	close(e.done)
}

// size is the memory that a held entry takes.
func (e *entry) size() int64 {
	if e.buf != nil {
		return int64(len(e.buf.bytes))
	}
	return int64(cap(e.data))
}

func (c *cache) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unref(e)
}

func (c *cache) unref(e *entry) {
	if e.refs--; e.refs > 0 {
		return
	}
	if !e.claimed {
		delete(c.coming, e.span.Hash) // nobody wants it any more
	}
	if e.buf != nil {
		e.buf.free()
		e.buf, e.data = nil, nil
	}
}

func (c *cache) stats() (hits, misses, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits, c.misses, c.bytes
}

// buffer holds one decoded chunk.
type buffer struct {
	bytes []byte
	class int // index into pools; -1: none
}

// The pools' buffers have 4 KiB to 256 KiB, powers of two.
const (
	minClass = 12
	maxClass = 18
)

var pools [maxClass - minClass + 1]sync.Pool

func newBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1))-minClass, 0)
	if class >= len(pools) {
		return &buffer{bytes: make([]byte, n), class: -1}
	}
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{bytes: make([]byte, 1<<(class+minClass)), class: class}
}

func (b *buffer) free() {
	if b.class >= 0 {
		pools[b.class].Put(b)
	}
}
