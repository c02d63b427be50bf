package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"ckptfs/fs/tree"
)

const (
	// readsStill is for how long nobody read packed files before one is filled in: a loader opens a file twice before it reads it, and
	// the next shard when it has read one, and what is decoded beside it is decoded twice.
	readsStill = 500 * time.Millisecond
	// maxHydrateWait is after how long a file is filled in though packed files are read all the time.
	maxHydrateWait = time.Minute
	maxWaiting     = 256 // files
)

// hydrator fills in the bytes of packed files that proved hot, one after the other, while nobody reads packed files.
type hydrator struct {
	v     *Volume
	still time.Duration                        // readsStill; not above 0: nothing waits
	after func(time.Duration) <-chan time.Time // time.After
	kick  chan struct{}
	quit  chan struct{}
	end   sync.WaitGroup

	mu    sync.Mutex
	queue []toHydrate
	in    map[*Node]bool // those that wait, and the one that is being filled in
	reads int64          // how often packed files were read when that was looked at
	since time.Time      // when that had changed, or a file proved hot
}

// toHydrate is a file that proved hot, with a reference to its node.
type toHydrate struct {
	node  *Node
	since time.Time
}

func newHydrator(v *Volume, still time.Duration) *hydrator {
	if still == 0 {
		still = readsStill
	}
	return &hydrator{v: v, still: still, after: time.After, in: map[*Node]bool{}, kick: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (h *hydrator) start() {
	h.end.Add(1)
	go func() {
		defer h.end.Done()
		for h.wait() {
			n := h.next()
			if n == nil {
				continue
			}
			if _, err := n.file.hydrate(); err != nil {
				h.v.content.count.hydrateErrs.Add(1)
				h.v.report(slog.LevelWarn, "hydration failed", "path", n.Path(), "reason", err)
			}
			h.mu.Lock()
			delete(h.in, n)
			h.mu.Unlock()
			n.unref(1)
		}
	}()
}

// stop gives up what waits.
func (h *hydrator) stop() {
	close(h.quit)
	h.end.Wait()
	for n := h.next(); n != nil; n = h.next() {
		n.unref(1)
	}
}

// wait returns when a file is to be filled in; false: it is the end.
func (h *hydrator) wait() bool {
	for {
		var again <-chan time.Time
		left, some := h.left()
		if some && left > 0 {
			again = h.after(left)
		}
		if !some || left > 0 {
			select {
			case <-h.quit:
				return false
			case <-h.kick:
			case <-again:
			}
			continue
		}
		select {
		case <-h.quit:
			return false
		default:
			return true
		}
	}
}

// left is for how long the file that came first has to wait at least, if there is one.
func (h *hydrator) left() (time.Duration, bool) {
	reads := h.v.content.count.readPacked.calls.Load() + h.v.content.count.views.calls.Load()
	now := h.v.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if reads != h.reads {
		h.reads, h.since = reads, now
	}
	if len(h.queue) == 0 || h.still <= 0 {
		return 0, len(h.queue) > 0
	}
	return min(h.since.Add(h.still).Sub(now), h.queue[0].since.Add(maxHydrateWait).Sub(now)), true
}

// next takes the file that came first, with its reference; nil: none waits any more.
func (h *hydrator) next() *Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return nil
	}
	n := h.queue[0].node
	h.queue = slices.Delete(h.queue, 0, 1)
	return n
}

// add asks for the bytes if they fit into the hot size. f.mu is held.
func (h *hydrator) add(n *Node) {
	size := int64(0)
	if n.file.asm != nil {
		size = n.file.asm.Size()
	}
	if size > h.v.hot.max/2 || n.Dead() {
		return
	}
	now := h.v.now()
	h.mu.Lock()
	h.since = now
	known := h.in[n]
	if !known && len(h.queue) < maxWaiting { // else there is enough to do; it will prove hot again
		n.Pin()
		h.in[n] = true
		h.queue = append(h.queue, toHydrate{n, now})
	}
	h.mu.Unlock()
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// forget lets go of a file that waits: as long as anybody holds its node, a file without a name keeps its chunks. The caller
// has a reference of its own.
func (h *hydrator) forget(n *Node) {
	h.mu.Lock()
	i := slices.IndexFunc(h.queue, func(w toHydrate) bool { return w.node == n })
	if i >= 0 {
		h.queue = slices.Delete(h.queue, i, i+1)
		delete(h.in, n)
	}
	h.mu.Unlock()
	if i >= 0 {
		n.unref(1)
	}
}

// hydrate fills in the bytes of a packed file, if they are not in place, and returns its size.
func (f *file) hydrate() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return 0, err
	}
	if !f.rec.Hollow || f.node.Dead() {
		return 0, nil
	}
	if err := f.hydrateLocked(); err != nil {
		return 0, err
	}
	return f.rawSizeLocked(), nil
}

// hydrateLocked is hydrate with f.mu held; it is given up while the bytes are written. Until the flag hollow goes, the
// manifest is read. The bytes are a cache: whole when the flag goes, and not durable.
func (f *file) hydrateLocked() error {
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Hollow {
		return nil
	}
	own, err := f.node.Open(os.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	f.hydrating, f.moved = true, true
	rec := f.rec
	f.mu.Unlock()
	size, err := f.fill(own, rec)
	f.mu.Lock()
	f.hydrating = false
	f.cond.Broadcast()
	filled := err == nil
	if filled {
		err = f.hydrated(own)
	}
	if err != nil {
		if !filled && !f.node.Dead() { // a record that failed to be written may have been, all the same
			f.giveUp(own, size)
		}
		return err
	}
	if !f.node.Dead() {
		f.c.events.Resident(f, size)
		f.c.count.hydratedFiles.Add(1)
		f.c.count.hydratedBytes.Add(size)
	}
	if f.users() > 0 {
		return f.openRaw(false)
	}
	return nil
}

// hydrated ends a hydration. f.mu is held.
func (f *file) hydrated(own *os.File) error {
	if err := f.c.step("hydrate: mtime"); err != nil {
		return err
	}
	if err := tree.SetMtime(int(own.Fd()), f.rec.Mtime); err != nil {
		return err
	}
	if err := f.c.step("hydrate: record"); err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = false
	return f.writeRecord(rec)
}

// fill writes a packed file's bytes into its inode, and returns their number, which is right after a failure too.
func (f *file) fill(own *os.File, rec tree.Record) (int64, error) {
	st, err := own.Stat()
	if err != nil {
		return 0, err
	}
	src, err := f.c.asm.Open(rec.Manifest)
	if err != nil {
		return st.Size(), f.openFailed(err)
	}
	defer src.Close()
	if err := f.c.step("hydrate: bytes"); err != nil {
		return st.Size(), err
	}
	if err := f.c.copyParallel(own, src, src.Size()); err != nil {
		var bad *sourceError
		if errors.As(err, &bad) {
			return src.Size(), f.readFailed(bad.off, bad.err)
		}
		return src.Size(), err
	}
	if st.Size() != src.Size() { // somebody was at the store
		return src.Size(), own.Truncate(src.Size())
	}
	return src.Size(), nil
}

// sourceError tells a read that failed from a write that did.
type sourceError struct {
	off int64
	err error
}

func (e *sourceError) Error() string { return fmt.Sprintf("at %d: %v", e.off, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// copyParallel copies size bytes by a few workers, each in steps of 4 MiB.
func (c *contentFiles) copyParallel(dst *os.File, src io.ReaderAt, size int64) error {
	const step = 4 << 20
	var g errgroup.Group
	g.SetLimit(4)
	for off := int64(0); off < size; off += step {
		g.Go(func() error {
			buf := c.copyBufs.Get().(*[]byte)
			defer c.copyBufs.Put(buf)
			p := (*buf)[:min(step, size-off)]
			if k, err := src.ReadAt(p, off); k < len(p) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return &sourceError{off, err}
			}
			_, err := dst.WriteAt(p, off)
			return err
		})
	}
	return g.Wait()
}
