package assemble

import (
	"math"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/pages"
	"ckptfs/index/manifest"
)

type lru[V any] = simplelru.LRU[cas.Hash, V]

func newLRU[V any]() *lru[V] {
	// bounded in bytes by its owner; fails only for a size of 0
	l, _ := simplelru.NewLRU[cas.Hash, V](math.MaxInt, nil)
	return l
}

// cache holds decoded chunks, and those on their way.
//
//	queued → running → held or failed
//
// The goroutine that moves an entry from queued to running (claim) must load it. Each that got it from
// acquire must release it.
//
// Invariants, under mu:
//
//	an entry is in coming while queued or running, in lru while held and not evicted, in neither once failed
//	or evicted
//	bytes = sum of the buffers of the entries in lru, and inSlots the number of them that have a slot
//	bytes <= max once loaded returns, and no more than a slab above max with the slots that are free
//	gone has those of lru that readers in order have passed by, oldest first, and passed the sum of their
//	buffers
//	passed <= maxPassed once pass returns
type cache struct {
	mu           locks.Mutex[leafLock]
	coming       map[cas.Hash]*entry
	lru          *lru[*entry]
	bytes, max   int64
	most         int64 // that max may be: see yield
	gone         *lru[*entry]
	passed       int64
	hits, misses int64
	slots        *pages.Slots // of chunks of about full size; nil: the cache is too small for it
	inSlots      int
}

// minSlots is the least cache that has its chunks in slots.
const minSlots = 32 << 20

// maxPassed bounds the chunks kept that readers in order have passed by. Their bytes lie in the kernel's
// cache by then, and new chunks are better decoded into warm buffers than into memory that has to be faulted
// in. Some are kept, since the kernel's requests overtake each other.
const maxPassed = 4 << 20

type entry struct {
	span  manifest.Span
	phase int           // where in a page the chunk begins, in the file that it was first wanted for
	done  chan struct{} // closed when held or failed; then data and err stay

	seen    atomic.Int64 // bytes of it that readers got
	refs    int          // acquirers, and one while in lru; under mu
	claimed bool
	buf     *buffer // data's, or nil
	data    []byte
	err     error
}

func newCache(max int64, tell func(mapped int64)) *cache {
	c := &cache{coming: map[cas.Hash]*entry{}, lru: newLRU[*entry](), gone: newLRU[*entry](), max: max,
		most: max}
	if max >= minSlots {
		c.slots = pages.NewSlots(slotSize, tell)
	}
	return c
}

// acquire returns the entry of a chunk that begins at that place of a file, a new one if there is none, and
// whether it needs to be claimed and loaded.
func (c *cache) acquire(s manifest.Span, at int64) (e *entry, queued bool) {
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
		e = &entry{span: s, phase: phase(at), done: make(chan struct{})}
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
		_, old, _ := c.gone.GetOldest()
		c.evict(old)
	}
}

// evict lets go of an entry of lru.
func (c *cache) evict(e *entry) {
	c.recall(e)
	c.lru.Remove(e.span.Hash)
	c.bytes -= e.size()
	if e.inSlot() {
		c.inSlots--
	}
	c.unref(e)
}

// evictOldest reports whether there was one.
func (c *cache) evictOldest() bool {
	_, e, ok := c.lru.GetOldest()
	if ok {
		c.evict(e)
	}
	return ok
}

// expect returns an entry to be loaded ahead of its readers, acquired, or nil when the chunk is held or on
// its way.
func (c *cache) expect(s manifest.Span, at int64) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(s.Hash) || c.coming[s.Hash] != nil {
		return nil
	}
	e := &entry{span: s, phase: phase(at), done: make(chan struct{}), refs: 1}
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

// buffer returns one for the chunk of an entry that is to be loaded, which it may begin in where the entry's
// phase is.
func (c *cache) buffer(e *entry) *buffer {
	n := int(e.span.Len)
	if c.slots == nil || n <= slotFrom || n > cas.ChunkSize {
		return newBuffer(n, e.phase)
	}
	c.mu.Lock()
	for {
		// Rather than that another slab is mapped, what was used least recently goes.
		mapped, free := c.slots.Room()
		if free > 0 || c.heap()+mapped+pages.SlabSize <= c.max || !c.evictOldest() {
			break
		}
	}
	c.mu.Unlock()
	if s := c.slots.Get(); s != nil {
		return &buffer{bytes: s.Bytes, at: e.phase, class: -1, slot: s, slots: c.slots}
	}
	return newBuffer(n, e.phase)
}

// clear lets go of all that is held.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.evictOldest() {
	}
}

// yield has the cache be n bytes smaller than it may be, but not below a quarter.
func (c *cache) yield(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = max(c.most-n, c.most/4)
	for c.bytes > c.max && c.evictOldest() {
	}
	if c.slots != nil {
		c.shrink()
	}
}

// heap is the sum of the buffers in lru that are not slots.
func (c *cache) heap() int64 { return c.bytes - int64(c.inSlots)*c.slots.Each() }

// shrink keeps slabs of which little is used from taking more than is the cache's.
func (c *cache) shrink() {
	for {
		_, free := c.slots.Room()
		if c.bytes+int64(free)*c.slots.Each() <= c.max+pages.SlabSize {
			return
		}
		slab, some := c.slots.Emptiest(), false
		for _, e := range c.lru.Values() {
			if e.inSlot() && e.buf.slot.Of() == slab {
				c.evict(e)
				some = true
			}
		}
		if c.slots.Trim(); !some {
			return
		}
	}
}

// loaded ends what claim began. data lies in b, or in memory of its own.
func (c *cache) loaded(e *entry, b *buffer, data []byte, err error) {
	if err != nil || &data[0] != &b.bytes[b.at] {
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
		if e.inSlot() {
			c.inSlots++
		}
		for c.bytes += e.size(); c.bytes > c.max && c.evictOldest(); {
		}
		if c.slots != nil {
			c.shrink()
		}
	}
	close(e.done)
}

// inSlot reports whether a held entry's chunk lies in a slot.
func (e *entry) inSlot() bool { return e.buf != nil && e.buf.slot != nil }

// size is the memory that a held entry takes.
func (e *entry) size() int64 {
	switch {
	case e.inSlot():
		return e.buf.slots.Each()
	case e.buf != nil:
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
		delete(c.coming, e.span.Hash) // no reader wants it any more
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

// The locks of this package, in the order in which they may be taken. Under a leaf is locked what cas locks.
type (
	orderLock struct{} // streams.mu and sweep.mu: what they find is queued under them
	leafLock  struct{} // the others
)

func (orderLock) Rank() (int, string) { return locks.Volume + 955, "streams.mu or sweep.mu" }
func (leafLock) Rank() (int, string)  { return locks.Volume + 960, "a leaf of fs/assemble" }
