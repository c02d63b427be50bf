package view

import (
	"io"

	"ckptfs/cas/locks"
)

const (
	// A strided tensor that is read in order is gathered in blocks, since a pass over its storage costs about
	// the same for a page as for a block: reads of 4 KiB would make a transposed tensor's cost quadratic in
	// its size.
	minBlock = 128 << 10
	maxBlock = 8 << 20
	// nearby is how far from the end of the last read one may begin and still be in order: the kernel's
	// read-ahead requests overtake each other.
	nearby = 2 << 20
	// slots is how many tensors can be read in order at a time.
	slots = 3
)

// blocks holds what was gathered ahead of readers.
type blocks struct {
	mu   locks.Mutex[leafLock] // guards all but the slots' insides
	slot [slots]*block
	tick int64
}

// block is a part of one tensor.
type block struct {
	used int64 // tick of the last read
	t    *tensor

	// held while the block is gathered: a reader that comes meanwhile mostly wants the same
	mu   locks.Mutex[blockLock]
	last int64 // end of the last read, relative to the tensor
	size int64 // of the next block; grows while reads stay in order
	off  int64 // where buf begins, relative to the tensor
	buf  []byte
}

// read fills p with the tensor's bytes from `from` on.
func (bs *blocks) read(src io.ReaderAt, t *tensor, p []byte, from int64) (int, error) {
	b := bs.pick(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(p) {
		at := from + int64(n)
		if at >= b.off && at < b.off+int64(len(b.buf)) {
			n += copy(p[n:], b.buf[at-b.off:])
			continue
		}
		if before := b.off - at; before > 0 && before <= nearby && len(b.buf) > 0 {
			// Overtaken by the read that filled the block: keep that.
			m := min(int64(len(p)-n), before)
			if err := gather(src, t, p[n:n+int(m)], at); err != nil {
				return n, err
			}
			n += int(m)
			continue
		}
		if !b.inOrder(at) || int64(len(p)-n) >= maxBlock || b.fill(src, at) != nil {
			// A reader that jumps gets what it asked for and no more; so does one whose block has
			// bytes that cannot be read.
			if err := gather(src, t, p[n:], at); err != nil {
				return n, err
			}
			n = len(p)
		}
	}
	b.last = from + int64(n)
	return n, nil
}

// pick is the tensor's slot, or the least recently used one emptied for it.
func (bs *blocks) pick(t *tensor) *block {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.tick++
	old := 0
	for i, b := range bs.slot {
		if b == nil {
			old = i
			continue
		}
		if b.t == t {
			b.used = bs.tick
			return b
		}
		if o := bs.slot[old]; o != nil && b.used < o.used {
			old = i
		}
	}
	b := &block{t: t, used: bs.tick, last: -1}
	bs.slot[old] = b
	return b
}

func (bs *blocks) drop() {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.slot = [slots]*block{}
}

func (b *block) inOrder(at int64) bool {
	if b.last >= 0 && at >= b.last-nearby && at <= b.last+nearby {
		b.size = min(max(b.size*4, minBlock), maxBlock)
		return true
	}
	b.size = 0
	return false
}

// fill gathers the block that has byte at. Blocks of one size lie on a grid, so that a request that was
// overtaken mostly finds its bytes in the block that the other asked for.
func (b *block) fill(src io.ReaderAt, at int64) error {
	off := at / b.size * b.size
	n := min(b.size, b.t.end-b.t.start-off)
	buf := b.buf
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	b.buf = b.buf[:0]
	if err := gather(src, b.t, buf[:n], off); err != nil {
		return err
	}
	b.off, b.buf = off, buf[:n]
	return nil
}

// The locks of this package. What a source locks while it is read comes between them.
type (
	blockLock struct{} // block.mu
	leafLock  struct{} // blocks.mu
)

func (blockLock) Rank() (int, string) { return locks.Volume + 930, "view.block.mu" }
func (leafLock) Rank() (int, string)  { return locks.Volume + 990, "view.blocks.mu" }
