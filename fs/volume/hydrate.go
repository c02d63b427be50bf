package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// hydrator makes raw copies of packed files that proved hot, one after the other.
type hydrator struct {
	v     *Volume
	queue chan *Node
	mu    sync.Mutex
	in    map[*Node]bool
	quit  chan struct{}
	end   sync.WaitGroup
}

func newHydrator(v *Volume) *hydrator {
	return &hydrator{v: v, queue: make(chan *Node, 256), in: map[*Node]bool{}, quit: make(chan struct{})}
}

func (h *hydrator) start() {
	h.end.Add(1)
	go func() {
		defer h.end.Done()
		for {
			select {
			case <-h.quit:
				return
			case n := <-h.queue:
				if _, err := h.v.hydrate(n); err != nil {
					h.v.report(slog.LevelWarn, "hydration failed", "path", h.v.Path(n), "reason", err)
				}
				h.mu.Lock()
				delete(h.in, n)
				h.mu.Unlock()
				h.v.unref(n, 1)
			}
		}
	}()
}

func (h *hydrator) stop() {
	close(h.quit)
	h.end.Wait()
}

// add asks for a copy if it fits into the hot size. f.mu is held.
func (h *hydrator) add(n *Node) {
	size := int64(0)
	if n.file.asm != nil {
		size = n.file.asm.Size()
	}
	if size > h.v.hot.max/2 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.in[n] {
		return
	}
	h.v.ref(n)
	select {
	case h.queue <- n:
		h.in[n] = true
	default: // enough to do; it will prove hot again
		go h.v.unref(n, 1)
	}
}

// hydrate makes a raw copy of a packed file, if it has none, and returns its size.
func (v *Volume) hydrate(n *Node) (int64, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := v.load(n); err != nil {
		return 0, err
	}
	if !f.rec.Packed() || f.resident || v.isDead(n) {
		return 0, nil
	}
	if err := v.hydrateLocked(n); err != nil || v.isDead(n) {
		return 0, err
	}
	var st unix.Stat_t
	if err := v.content.Stat(f.rec.ID, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// hydrateLocked is hydrate with f.mu held; it is given up while the copy is made. The copy is a cache: it is whole when
// it gets its name, and not durable.
func (v *Volume) hydrateLocked(n *Node) error {
	f := n.file
	for f.hydrating {
		f.cond.Wait()
	}
	if f.resident || !f.rec.Packed() {
		return nil
	}
	f.hydrating = true
	rec := f.rec
	f.mu.Unlock()
	size, err := v.copyOut(n, rec)
	f.mu.Lock()
	f.hydrating = false
	f.cond.Broadcast()
	if err != nil {
		v.content.DropPart(rec.ID)
		return err
	}
	if err := v.content.Publish(rec.ID); err != nil {
		return err
	}
	f.resident = true
	if v.isDead(n) { // its name went meanwhile: the copy lives as long as it is open
		err := v.openRaw(f)
		v.content.Remove(rec.ID)
		return err
	}
	if f.users() > 0 {
		if err := v.openRaw(f); err != nil {
			return err
		}
	}
	v.hot.add(n, size)
	return nil
}

// copyOut writes a packed file's bytes and times into content/ID.part.
func (v *Volume) copyOut(n *Node, rec tree.Record) (int64, error) {
	src, err := v.asm.Open(rec.Manifest)
	if err != nil {
		return 0, v.openFailed(n, err)
	}
	defer src.Close()
	dst, err := v.content.CreatePart(rec.ID)
	if err != nil {
		return 0, err
	}
	defer dst.Close()
	if err := v.copyParallel(dst, src, src.Size()); err != nil {
		var bad *sourceError
		if errors.As(err, &bad) {
			return 0, v.readFailed(n, bad.off, bad.err)
		}
		return 0, err
	}
	// The stub has the file's times; the raw copy speaks for them once the file is written again.
	a, err := v.statStub(n)
	if err != nil {
		return 0, err
	}
	ts := []unix.Timespec{a.Atime, a.Mtime}
	return src.Size(), unix.UtimesNanoAt(unix.AT_FDCWD, procFd(dst), ts, 0)
}

func (v *Volume) statStub(n *Node) (Attr, error) {
	var st unix.Stat_t
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return Attr{}, err
	}
	defer v.release(p)
	err = p.stat(&st)
	return attrOf(&st), err
}

// sourceError tells a read that failed from a write that did.
type sourceError struct {
	off int64
	err error
}

func (e *sourceError) Error() string { return fmt.Sprintf("at %d: %v", e.off, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// copyParallel copies size bytes by a few workers, each in steps of 4 MiB.
func (v *Volume) copyParallel(dst *os.File, src io.ReaderAt, size int64) error {
	const step = 4 << 20
	if err := dst.Truncate(size); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(4)
	for off := int64(0); off < size; off += step {
		g.Go(func() error {
			buf := v.copyBufs.Get().(*[]byte)
			defer v.copyBufs.Put(buf)
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
