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
//	bytes ≤ max    when no decode is under way
//	refs           of an entry counts its place in all, and the calls that wait for it or copy from it
type Contents struct {
	mu    locks.Mutex[placesLock]
	all   *simplelru.LRU[cas.Hash, *content]
	bytes int64
	max   int64
	free  [][]byte // that entries had; at most maxFree
}

// content is what one chunk has.
type content struct {
	refs  int
	ready chan struct{} // closed once it was decoded, or was not; from then on
	buf   []byte        // has it; nil: it was not
}

// maxContents bounds how many entries there are, beside their bytes.
const maxContents = 1 << 12

// maxFree is how many buffers wait for the next entries. They are no longer than what they had: those of
// package scratch may have room for all bases of a recipe.
const maxFree = 8

// Init has no more than so many bytes stay.
func (c *Contents) Init(bytes int64) {
	c.max = bytes
	c.all, _ = simplelru.NewLRU(maxContents, c.leave) // the size is positive
}

// Append appends the content of h to dst, which decode appends unless it is here. decode says whether it was
// held against what it should be, and may stay. Of several calls for one chunk one decodes, and the others
// wait; so decode calls nothing that waits for these.
func (c *Contents) Append(dst []byte, h cas.Hash,
	decode func(dst []byte) (out []byte, sure bool, err error)) ([]byte, error) {
	c.mu.Lock()
	if e, ok := c.all.Get(h); ok {
		e.refs++
		c.mu.Unlock()
		<-e.ready
		here := e.buf != nil
		if here {
			dst = append(dst, e.buf...)
		}
		c.mu.Lock()
		c.dropLocked(e)
		c.mu.Unlock()
		if here {
			return dst, nil
		}
		out, _, err := decode(dst)
		return out, err
	}
	e := &content{refs: 2, ready: make(chan struct{})}
	c.all.Add(h, e)
	c.mu.Unlock()
	n := len(dst)
	out, sure, err := decode(dst)
	sure = sure && err == nil && int64(len(out)-n) <= c.max
	if sure {
		e.buf = append(c.room(len(out)-n), out[n:]...)
	}
	close(e.ready)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.all.Peek(h); ok && now == e && !sure {
		c.all.Remove(h)
	}
	if sure {
		c.bytes += int64(len(out) - n)
	}
	c.dropLocked(e)
	for c.bytes > c.max && c.all.Len() > 0 {
		c.all.RemoveOldest()
	}
	return out, err
}

// leave is told of an entry that goes; mu is held.
func (c *Contents) leave(_ cas.Hash, e *content) { c.dropLocked(e) }

// dropLocked drops one reference.
func (c *Contents) dropLocked(e *content) {
	c.mu.AssertHeld()
	if e.refs--; e.refs == 0 && e.buf != nil {
		c.bytes -= int64(len(e.buf))
		if len(c.free) < maxFree {
			c.free = append(c.free, e.buf[:0])
		}
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
