package expected

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/pages"
	"ckptfs/cas/segment"
)

const (
	// stretchSize is the most that a stretch has, fewBytes the most that one in a smaller buffer has, and
	// minStretch the least worth that.
	stretchSize = 1 << 20
	fewBytes    = 256 << 10
	minStretch  = 64 << 10
	// maxReading is how many stretches are read at a time.
	maxReading = 4
	// maxOnce bounds Stretches.once: 8 GiB that were read.
	maxOnce = 1 << 13
	// patience is how long is waited for others' buffers. All of them are decoded in less. Who waited in vain
	// has nobody wait for ten times as long.
	patience = 100 * time.Millisecond
)

// A Stretch is whole blocks of a segment that several records lie in. It is read past the page cache, and
// decoded where it is: the pages would be allocated, filled and copied from in as much processor time as
// decoding takes. What is read a second time is read through the page cache: other files have it too. Not so
// what is read once, into a copy that stays.
type Stretch struct {
	Again bool  // it was read before, and is to have pages
	first block // its first one
	end   int64 // of the last one
	refs  int   // how many expect it, read it, or decode from it; under Stretches.mu
	pool  *pages.Pool
	buf   *pages.Buffer
	ready chan struct{} // closed once it was read; from then on
	got   []byte        // what was
}

// block is where one begins.
type block struct {
	segment uint32
	off     int64
}

// Stretches are those that are expected.
type Stretches struct {
	mu      locks.Mutex[placesLock]
	closed  bool
	all     []*Stretch
	max     int64                       // bytes of buffers; what is expected beyond is read to the page cache
	room    *semaphore.Weighted         // what is left of max, and no one has reserved
	hurry   atomic.Int64                // nobody waits for room until then, in ns since 1970
	once    *lru.Cache[block, struct{}] // those that were read
	reading sync.WaitGroup
	slots   chan struct{} // one in it for each that is being read
}

var stretchBuffers, smallBuffers = pages.NewPool(stretchSize), pages.NewPool(fewBytes)

// Init has no more than so many bytes in buffers.
func (a *Stretches) Init(bytes int64) {
	a.max = bytes
	a.room = semaphore.NewWeighted(bytes)
	a.once, _ = lru.New[block, struct{}](maxOnce) // the size is positive
	a.slots = make(chan struct{}, maxReading)
}

// blocks widens a range to whole blocks.
func blocks(from, to int64) (int64, int64) {
	return from &^ (disk.BlockSize - 1), (to + disk.BlockSize - 1) &^ (disk.BlockSize - 1)
}

// Fits reports whether one stretch can have the range.
func Fits(from, to int64) bool {
	from, to = blocks(from, to)
	return to-from <= stretchSize
}

// sizeOf is what the buffer of the stretch takes that has the range; 0: it would be too short or too long.
func sizeOf(from, to int64) int64 {
	if to-from < minStretch || !Fits(from, to) {
		return 0
	}
	if from, to = blocks(from, to); to-from <= fewBytes {
		return fewBytes
	}
	return stretchSize
}

// reserve returns how many bytes of buffers may be added, of those wanted, to be given back to a.room. If
// wait, it waits for others to be released, if only for some: reading through the page cache instead takes
// longer. But what holds them may wait for a remote.
func (a *Stretches) reserve(want int64, wait bool) int64 {
	const few = 2 * stretchSize
	want = min(want, a.max)
	if want == 0 || a.room.TryAcquire(want) {
		return want
	}
	if !wait || a.max < 2*few || time.Now().UnixNano() < a.hurry.Load() {
		return 0
	}
	want = min(want, few)
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if a.room.Acquire(ctx, want) != nil {
		a.hurry.Store(time.Now().Add(10 * patience).UnixNano())
		return 0
	}
	return want
}

// Add returns a new stretch, for its caller and for Read, and takes its buffer off what was reserved, if that
// is enough; nil: it would be too short or too long, or there are too many. once says that it is not likely
// to be read again.
func (a *Stretches) Add(number uint32, from, to int64, once bool, reserved *int64) *Stretch {
	size := sizeOf(from, to)
	if size == 0 {
		return nil
	}
	if more := size - *reserved; more > 0 {
		if !a.room.TryAcquire(more) {
			return nil
		}
		*reserved = size
	}
	from, to = blocks(from, to)
	pool := stretchBuffers
	if size == fewBytes {
		pool = smallBuffers
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	*reserved -= size
	t := &Stretch{first: block{number, from}, end: to, refs: 2, pool: pool, buf: pool.Get(),
		ready: make(chan struct{})}
	again, _ := a.once.ContainsOrAdd(t.first, struct{}{})
	t.Again = again && !once
	a.all = append(a.all, t)
	a.reading.Add(1)
	return t
}

// Read reads a stretch, for which it was added. A reader that needs what could not be read tries again
// itself, and learns why.
func (a *Stretches) Read(t *Stretch, f *segment.Reader) {
	defer a.reading.Done()
	a.slots <- struct{}{}
	n, _ := f.ReadBlocks(t.buf.Bytes[:t.end-t.first.off], t.first.off, t.Again)
	<-a.slots
	t.got = t.buf.Bytes[:n]
	close(t.ready)
	a.Release(t)
}

// Find returns the stretch that n bytes of a segment lie in, to be released; nil: there is none.
func (a *Stretches) Find(number uint32, off int64, n int) *Stretch {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.all, func(t *Stretch) bool {
		return t.first.segment == number && t.first.off <= off && off+int64(n) <= t.end
	})
	if i < 0 {
		return nil
	}
	a.all[i].refs++
	return a.all[i]
}

// Borrow returns n bytes of a segment, once they are read, if they are expected; nil: they are not. They stay
// until the stretch is released.
func (a *Stretches) Borrow(number uint32, off int64, n int) ([]byte, *Stretch) {
	t := a.Find(number, off, n)
	if t == nil {
		return nil, nil
	}
	<-t.ready
	at := int(off - t.first.off)
	if at+n > len(t.got) {
		a.Release(t)
		return nil, nil
	}
	return t.got[at : at+n : at+n], t
}

// Release drops one reference to each.
func (a *Stretches) Release(ts ...*Stretch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range ts {
		if t.refs--; t.refs == 0 {
			a.all = slices.DeleteFunc(a.all, func(o *Stretch) bool { return o == t })
			a.room.Release(int64(len(t.buf.Bytes)))
			t.pool.Put(t.buf)
		}
	}
}

// Close waits for what is being read. No stretch is added any more.
func (a *Stretches) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.reading.Wait()
}

// All lists those that there are.
func (a *Stretches) All() []*Stretch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// Idle reports whether nobody has a buffer, or reserved one.
func (a *Stretches) Idle() bool {
	if !a.room.TryAcquire(a.max) {
		return false
	}
	a.room.Release(a.max)
	return true
}

// Wait waits for what is being read.
func (a *Stretches) Wait() { a.reading.Wait() }
