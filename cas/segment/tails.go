package segment

import (
	"cmp"
	"slices"
	"sync"

	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

// Tails are the segments of a store that are being written: those that take records, and those that are full
// and not sealed yet. Invariants, under mu:
//
//	active       by number; at most most of them
//	full         by number; draining has some of them
//	last < next  numbers are given out once; last is the highest of a segment that exists
//
// Of two records of one hash that the segments hold the later one must be the one that a start without an
// index finds last: it may stand for one that was damaged. So only what is sure to be the first is written to
// any of the active segments, and all else to the newest segment that exists.
type Tails struct {
	fs    disk.FS
	dir   string
	store [16]byte
	size  int64 // segments are full about there
	most  int   // that take records at a time

	growing locks.Mutex[growingLock] // held while a segment is created

	mu       locks.Mutex[tailsLock]
	drained  sync.Cond // on mu: a segment is not drained any more
	closed   bool
	active   []*Tail
	full     []*Tail
	draining map[*Tail]bool
	last     uint32
	next     uint32
}

// Tail is a segment that is being written.
type Tail struct {
	*Writer
	// Indexed is for the store: the end of the last record that is in the index, or was durable when it was
	// to go there.
	Indexed int64
}

// writersATail is how many goroutines write to a segment before another one takes records, too: a filesystem
// lets one at a time write to a file, and the next waits for it.
const writersATail = 2

// The locks of this package, in the order in which they may be taken. The store's mutex, of which the order
// is in package store, comes between the second and the third. Files.mu is a leaf.
type (
	growingLock struct{} // Tails.growing
	syncingLock struct{} // Writer.syncing
	tailsLock   struct{} // Tails.mu
	writerLock  struct{} // Writer.mu
)

func (growingLock) Rank() (int, string) { return locks.Store + 50, "segment.Tails.growing" }
func (syncingLock) Rank() (int, string) { return locks.Store + 55, "segment.Writer.syncing" }
func (tailsLock) Rank() (int, string)   { return locks.Store + 75, "segment.Tails.mu" }
func (writerLock) Rank() (int, string)  { return locks.Store + 77, "segment.Writer.mu" }

// Init makes t the tails of a store in dir, none yet. As many as most segments, of about size bytes, take
// records at a time.
func (t *Tails) Init(fs disk.FS, dir string, store [16]byte, size int64, most int) {
	t.fs, t.dir, t.store, t.size, t.most = fs, dir, store, size, most
	t.drained.L = &t.mu
	t.draining = map[*Tail]bool{}
	t.next = 1
}

// Follow has the numbers follow last, the highest of a segment that there is.
func (t *Tails) Follow(last uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.next = last, last+1
}

// Last is the highest number of a segment.
func (t *Tails) Last() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Reserve takes the room of a record whose payload is stored bytes long, in the newest segment or, if first,
// in any: no segment holds another record of its hash. The Slot must be finished. full: a segment was found
// full. The error is ErrClosed, or that of creating a segment.
func (t *Tails) Reserve(stored int, first bool) (w *Tail, s Slot, full bool, err error) {
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil, s, full, ErrClosed
		}
		if w = t.pickLocked(first); w != nil {
			if s, err = w.Reserve(stored); err == nil {
				t.mu.Unlock()
				return w, s, full, nil
			}
			t.retireLocked(w)
			full = true
		}
		t.mu.Unlock()
		if err := t.grow(func() bool { return t.pickLocked(first) == nil }); err != nil {
			return nil, s, full, err
		}
	}
}

// pickLocked is the segment for a record; nil: one is to be created. The lower ones are preferred, so that
// they are filled one after the other and a commit of little has one to sync.
func (t *Tails) pickLocked(first bool) *Tail {
	t.mu.AssertHeld()
	if n := len(t.active); !first && n > 0 && t.active[n-1].Number() == t.last {
		return t.active[n-1]
	}
	if !first || len(t.active) == 0 {
		return nil
	}
	least := slices.MinFunc(t.active, func(a, b *Tail) int {
		return cmp.Compare(max(a.writing.Load(), writersATail-1), max(b.writing.Load(), writersATail-1))
	})
	if least.writing.Load() >= writersATail && len(t.active) < t.most {
		return nil
	}
	return least
}

// retireLocked has w take no more.
func (t *Tails) retireLocked(w *Tail) {
	t.mu.AssertHeld()
	t.active = slices.DeleteFunc(t.active, func(a *Tail) bool { return a == w })
	i, _ := slices.BinarySearchFunc(t.full, w, func(a, b *Tail) int {
		return cmp.Compare(a.Number(), b.Number())
	})
	t.full = slices.Insert(t.full, i, w)
}

// Grow creates a segment unless there is one of a higher number than n. Without an error it does neither once
// t is closed.
func (t *Tails) Grow(n uint32) error { return t.grow(func() bool { return t.last <= n }) }

// grow creates a segment that takes records, if needed, which is called with mu held.
func (t *Tails) grow(needed func() bool) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	t.mu.Lock()
	if t.closed || !needed() {
		t.mu.Unlock()
		return nil
	}
	n := t.next
	t.next++ // also when it fails: the name may be taken now
	t.mu.Unlock()

	w, err := Create(t.fs, t.dir, ID{t.store, n}, t.size)
	if err != nil {
		_ = t.fs.Remove(Path(t.dir, n)) // holds nothing
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = n
	if t.closed {
		return w.Close() // an empty segment stays
	}
	t.active = append(t.active, &Tail{Writer: w, Indexed: FileHeaderSize})
	return nil
}

// Retire has the segments take no more that have something, and returns ErrClosed once t is closed.
func (t *Tails) Retire() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	for _, w := range slices.Clone(t.active) {
		if w.Size() > FileHeaderSize {
			t.retireLocked(w)
		}
	}
	return nil
}

// Close has all segments take no more, and none be created.
func (t *Tails) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, w := range slices.Clone(t.active) {
		t.retireLocked(w)
	}
}

// All lists the segments by number, and says which is the newest that exists.
func (t *Tails) All() (all []*Tail, last uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = slices.Concat(t.full, t.active)
	slices.SortFunc(all, func(a, b *Tail) int { return cmp.Compare(a.Number(), b.Number()) })
	return all, t.last
}

// Takes reports whether w takes records.
func (t *Tails) Takes(w *Tail) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.active, w)
}

// Remove ends what Tails has to do with w, and reports whether it was one of them.
func (t *Tails) Remove(w *Tail) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.active) + len(t.full)
	is := func(a *Tail) bool { return a == w }
	t.active, t.full = slices.DeleteFunc(t.active, is), slices.DeleteFunc(t.full, is)
	return len(t.active)+len(t.full) < n
}

// Drain lists the full segments that nobody drains. Their caller does then, and says of each when that ends.
func (t *Tails) Drain() (full []*Tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.full {
		if !t.draining[w] {
			t.draining[w] = true
			full = append(full, w)
		}
	}
	return full
}

// Drained says that w is drained no more.
func (t *Tails) Drained(w *Tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.draining, w)
	t.drained.Broadcast()
}

// AwaitDrained waits until at most n of those that are drained now still are.
func (t *Tails) AwaitDrained(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	full := slices.Clone(t.full)
	for {
		full = slices.DeleteFunc(full, func(w *Tail) bool { return !t.draining[w] })
		if len(full) <= n {
			return
		}
		t.drained.Wait()
	}
}

// Sealed lists the segments of the directory that are not being written, ascending.
func (t *Tails) Sealed() ([]uint32, error) {
	all, last := t.All()
	numbers, err := Numbers(t.fs, t.dir)
	return slices.DeleteFunc(numbers, func(n uint32) bool {
		return n > last || slices.ContainsFunc(all, func(w *Tail) bool { return w.Number() == n })
	}), err
}
