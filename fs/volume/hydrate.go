package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/fs/tree"
)

// hydrator fills in the bytes of packed files that proved hot, one after the other.
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
					h.v.count.hydrateErrs.Add(1)
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

// add asks for the bytes if they fit into the hot size. f.mu is held.
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

// hydrate fills in the bytes of a packed file, if they are not in place, and returns its size.
func (v *Volume) hydrate(n *Node) (int64, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := v.load(n); err != nil {
		return 0, err
	}
	if !f.rec.Hollow || v.isDead(n) {
		return 0, nil
	}
	if err := v.hydrateLocked(n); err != nil {
		return 0, err
	}
	return v.rawSizeLocked(n), nil
}

// hydrateLocked is hydrate with f.mu held; it is given up while the bytes are written. Until the flag hollow goes, the
// manifest is read. The bytes are a cache: whole when the flag goes, and not durable.
func (v *Volume) hydrateLocked(n *Node) error {
	f := n.file
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Hollow {
		return nil
	}
	own, err := v.openInode(n, os.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	f.hydrating, f.moved = true, true
	rec := f.rec
	f.mu.Unlock()
	size, err := v.fill(n, own, rec)
	f.mu.Lock()
	f.hydrating = false
	f.cond.Broadcast()
	filled := err == nil
	if filled {
		err = v.hydrated(n, own)
	}
	if err != nil {
		if !filled && !v.isDead(n) { // a record that failed to be written may have been, all the same
			v.giveUp(n, own, size)
		}
		return err
	}
	if !v.isDead(n) {
		v.hot.add(n, size)
		v.count.hydratedFiles.Add(1)
		v.count.hydratedBytes.Add(size)
	}
	if f.users() > 0 {
		return v.openRaw(n, false)
	}
	return nil
}

// hydrated ends a hydration. f.mu is held.
func (v *Volume) hydrated(n *Node, own *os.File) error {
	f := n.file
	if err := v.step("hydrate: mtime"); err != nil {
		return err
	}
	if err := tree.SetMtime(int(own.Fd()), f.rec.Mtime); err != nil {
		return err
	}
	if err := v.step("hydrate: record"); err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = false
	return v.writeRecord(n, rec)
}

// fill writes a packed file's bytes into its inode, and returns their number, which is right after a failure too.
func (v *Volume) fill(n *Node, own *os.File, rec tree.Record) (int64, error) {
	st, err := own.Stat()
	if err != nil {
		return 0, err
	}
	src, err := v.asm.Open(rec.Manifest)
	if err != nil {
		return st.Size(), v.openFailed(n, err)
	}
	defer src.Close()
	if err := v.step("hydrate: bytes"); err != nil {
		return st.Size(), err
	}
	if err := v.copyParallel(own, src, src.Size()); err != nil {
		var bad *sourceError
		if errors.As(err, &bad) {
			return src.Size(), v.readFailed(n, bad.off, bad.err)
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
func (v *Volume) copyParallel(dst *os.File, src io.ReaderAt, size int64) error {
	const step = 4 << 20
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
