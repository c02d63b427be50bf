package expected

import (
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// Contents are the contents of the chunks that were decoded last because others are computed of them:
// neighbours are computed of the same, in part. Invariants, under mu:
//
//	bytes  of all that are in all, once they are ready; at most max when no decode is under way
//	refs   of a content counts its place in all, and those who wait for it or hold it
type Contents struct {
	mu    locks.Mutex[placesLock]
	all   *simplelru.LRU[cas.Hash, *content]
	bytes int64
	max   int64
	free  [][]byte // that contents had; at most maxFree
}

// content is what one chunk has.
type content struct {
	bytes []byte
	refs  int
	ready chan struct{} // closed once it was decoded, or was not; from then on
	sure  bool          // it was, and is what it should be
	kept  bool          // it counts in bytes; under mu
}

// maxContents bounds how many there are, beside their bytes.
const maxContents = 1 << 12

// maxFree is how many buffers wait for the next contents.
const maxFree = 8

// Init has no more than so many bytes stay.
func (c *Contents) Init(bytes int64) {
	c.max = bytes
	c.all, _ = simplelru.NewLRU(maxContents, c.leave) // the size is positive
}

// Held are contents that stay, although others are decoded meanwhile, until they are released.
type Held struct {
	c   *Contents
	all []*content
}

// Held holds none yet.
func (c *Contents) Held() Held { return Held{c: c} }

// Get returns the content of h, not to be changed. decode appends it to a buffer with room for n bytes unless
// it is here, and says whether it was held against what it should be, and may stay. Of several calls for one
// chunk one decodes, and the others wait; so decode calls nothing that waits for these.
func (l *Held) Get(h cas.Hash, n int,
	decode func(buf []byte) (out []byte, sure bool, err error)) ([]byte, error) {
	e, err := l.c.hold(h, n, decode)
	if err != nil {
		return nil, err
	}
	l.all = append(l.all, e)
	return e.bytes, nil
}

// Release lets go of all.
func (l *Held) Release() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, e := range l.all {
		l.c.dropLocked(e)
	}
	l.all = nil
}

// hold is Get for one more reference.
func (c *Contents) hold(h cas.Hash, n int,
	decode func(buf []byte) (out []byte, sure bool, err error)) (*content, error) {
	c.mu.Lock()
	e, ok := c.all.Get(h)
	if ok {
		e.refs++
		c.mu.Unlock()
		<-e.ready
		if e.sure {
			return e, nil
		}
		c.mu.Lock()
		c.dropLocked(e)
		c.mu.Unlock()
	}
	mine := &content{refs: 1}
	if !ok {
		mine.refs, mine.ready = 2, make(chan struct{})
		c.all.Add(h, mine)
		c.mu.Unlock()
	}
	out, sure, err := decode(c.room(n))
	mine.bytes = out
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		mine.sure = sure && err == nil && int64(len(out)) <= c.max
		close(mine.ready)
		if now, ok := c.all.Peek(h); ok && now == mine && mine.sure {
			mine.kept = true
			c.bytes += int64(len(out))
		} else if ok && now == mine {
			c.all.Remove(h)
		}
		for c.bytes > c.max {
			c.all.RemoveOldest()
		}
	}
	if err != nil {
		c.dropLocked(mine)
		return nil, err
	}
	return mine, nil
}

// leave is told of one that goes; mu is held.
func (c *Contents) leave(_ cas.Hash, e *content) {
	c.mu.AssertHeld()
	if e.kept {
		c.bytes -= int64(len(e.bytes))
	}
	c.dropLocked(e)
}

// dropLocked drops one reference.
func (c *Contents) dropLocked(e *content) {
	c.mu.AssertHeld()
	if e.refs--; e.refs == 0 && e.bytes != nil {
		if len(c.free) < maxFree {
			c.free = append(c.free, e.bytes[:0])
		}
		e.bytes = nil
	}
}

// room is memory for n bytes.
func (c *Contents) room(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.free) - 1; i >= 0; i-- {
		if p := c.free[i]; cap(p) >= n && cap(p) < n+n/4 {
			c.free = slices.Delete(c.free, i, i+1)
			return p
		}
	}
	return make([]byte, 0, n)
}
