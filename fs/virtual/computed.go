package virtual

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
)

// computed is a file that is computed of others by a plan. It belongs to one generation of each of these: if
// one of them changes, the name leads to another node, and a read through this one fails with ESTALE.
type computed struct {
	v      *Virtual
	how    making
	of     []*operand // what the plan reads; the first one's node is the entry's src
	side   *operand   // a file beside them that says how, or nil
	size   int64
	origin names.Origin // of the file's node

	mu    locks.Mutex[leafLock]
	plan  weak.Pointer[plans.Plan] // what Virtual.tensors keeps of it
	asked time.Time                // when that was told that it is in use
	uses  int                      // that are not closed
}

// computedKey is the identity of a computed file.
type computedKey struct {
	how making
	of  string // the operands, by node and generation, and by name where that matters
}

// maxSide bounds a file that says how another is computed, in bytes.
const maxSide = 4 << 20

// newComputed is a file that how computes of these. It takes their references, also if it fails. The error is
// plans.ErrNone, with the reason, when there is no such file.
func (v *Virtual) newComputed(how making, of []*operand, side *operand) (*computed, error) {
	w := &computed{v: v, how: how, of: of, side: side}
	p, err := w.planNow()
	if err != nil {
		w.drop(0)
		return nil, err
	}
	w.size = p.Size()
	w.origin = w.originNow()
	return w, nil
}

// key is the file's identity.
func (w *computed) key() computedKey {
	var b strings.Builder
	for o := range w.all() {
		fmt.Fprintf(&b, "%d:%d:%t ", o.n.ID(), o.gen, o.view != nil)
		if o.as != "" {
			fmt.Fprintf(&b, "%q ", o.as)
		}
	}
	return computedKey{w.how, b.String()}
}

// originNow is what the next process knows the file by. That one finds it by its path again, and takes it for
// the same only if it computes the same of the same bytes.
func (w *computed) originNow() names.Origin {
	o := names.Origin{Src: w.of[0].n, Size: w.size}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %q %s %d", plans.Version, fmt.Sprint(w.how), w.key().of, w.size)
	o.Gen = binary.LittleEndian.Uint64(sum.Sum(nil))
	for x := range w.all() {
		if x.n != o.Src {
			o.Also = append(o.Also, x.n)
		}
	}
	return o
}

// all calls yield with each operand.
func (w *computed) all() func(yield func(*operand) bool) {
	return func(yield func(*operand) bool) {
		for _, o := range w.of {
			if !yield(o) {
				return
			}
		}
		if w.side != nil {
			yield(w.side)
		}
	}
}

// drop gives back the references of the operands but for those of the first few.
func (w *computed) drop(but int) {
	for i, o := range w.of {
		if i >= but {
			o.drop()
		}
	}
	if w.side != nil {
		w.side.drop()
	}
}

// current reports whether all operands have the bytes of their generations.
func (w *computed) current() bool {
	for o := range w.all() {
		if !o.current() {
			return false
		}
	}
	return true
}

// planNow is the file's plan. Plans of many tensors take much memory. So a bounded number of them is kept,
// and one that was dropped is made again.
func (w *computed) planNow() (*plans.Plan, error) {
	w.mu.Lock()
	p := w.plan.Value()
	const often = time.Second
	now := time.Now()
	tell := p != nil && now.Sub(w.asked) > often
	if tell {
		w.asked = now
	}
	w.mu.Unlock()
	if p != nil && !tell {
		return p, nil
	}
	key := w.key()
	x := w.v.tensors.find(key)
	if x == nil && p == nil && w.how.kind == makeGGUF {
		// One is made at a time: what a tokenizer says takes some times the memory of its file.
		w.v.converting <- struct{}{}
		defer func() { <-w.v.converting }()
		x = w.v.tensors.find(key) // of who made it meanwhile
	}
	if x != nil {
		p = x.made
	} else if p == nil {
		var err error
		if p, err = w.make(); err != nil {
			return nil, err
		}
		w.v.tensors.keep(&found{key: key, bytes: p.Memory(), made: p})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = weak.Make(p)
	return p, nil
}

// make makes the plan. ESTALE when an operand has other bytes by now.
func (w *computed) make() (*plans.Plan, error) {
	p, err := w.makePlan()
	if err == nil && !w.current() {
		err = unix.ESTALE
	}
	if err == nil && w.size != 0 && p.Size() != w.size {
		err = fmt.Errorf("a computed file is %d bytes and was %d: %w", p.Size(), w.size, unix.EIO)
	}
	return p, err
}

func (w *computed) makePlan() (*plans.Plan, error) {
	switch w.how.kind {
	case makeGGUF:
		return w.makeGGUF()
	case makeHF, makeHFRanks:
		return w.makeHF()
	}
	sources, names, err := w.sources(w.of)
	if err != nil {
		return nil, err
	}
	var side []byte
	if w.side != nil {
		if side, err = w.side.all(maxSide); err != nil {
			return nil, err
		}
	}
	return w.how.plan(w.v, sources, names, side)
}

// sources are what a plan has to know of these operands, and their names.
func (w *computed) sources(of []*operand) (sources []*plans.Source, names []string, err error) {
	read := w.v.sourceOf
	switch w.how.kind {
	case makeOne, makeHF, makeHFRanks:
		read = w.v.layoutOf
	case makeZero:
		read = w.v.saidOf
	}
	var taken int64
	for i, o := range of {
		s, err := read(o)
		if err != nil {
			return nil, nil, err
		}
		if taken += s.Memory(); taken > w.v.o.IndexBytes && i > 0 {
			return nil, nil, fmt.Errorf("%w: the headers of its files take more than %d bytes of memory",
				plans.ErrNone, w.v.o.IndexBytes)
		}
		sources, names = append(sources, s), append(names, o.name())
	}
	return sources, names, nil
}

// sourceOf reads the header of an operand.
func (v *Virtual) sourceOf(o *operand) (*plans.Source, error) {
	return o.source(func() (*plans.Source, error) {
		return plans.Open(o, o.size, max(v.o.IndexBytes, minIndex))
	})
}

// saidOf reads what an operand says that DeepSpeed wrote.
func (v *Virtual) saidOf(o *operand) (*plans.Source, error) {
	return o.source(func() (*plans.Source, error) { return plans.OpenZero(o, o.size) })
}

// source is what open reads of the operand while it is in use.
func (o *operand) source(open func() (*plans.Source, error)) (*plans.Source, error) {
	if err := o.use(); err != nil {
		return nil, err
	}
	defer o.done()
	s, err := open()
	if err == nil && !o.current() {
		err = unix.ESTALE
	}
	if errors.Is(err, plans.ErrNone) {
		err = fmt.Errorf("%w (%s)", err, o.path)
	}
	return s, err
}

// layoutOf is an operand as its parser sees it.
func (v *Virtual) layoutOf(o *operand) (*plans.Source, error) {
	f := o.n.File()
	f.Lock()
	defer f.Unlock()
	l, err := f.LayoutLocked()
	if err != nil {
		return nil, f.OpenFailed(err)
	}
	return &plans.Source{Layout: l}, nil
}

// minIndex is the memory that a header may take in any case.
const minIndex = 1 << 20

// open opens the file for reading.
func (w *computed) open() (names.Opened, content.Mode, error) {
	n := 0
	var err error
	for o := range w.all() {
		if err = o.use(); err != nil {
			break
		}
		n++
	}
	if err == nil {
		if _, err = w.planNow(); err == nil {
			w.mu.Lock()
			w.uses++
			w.mu.Unlock()
			return openComputed{w: w}, content.Cached, nil
		}
	}
	w.done(n)
	if errors.Is(err, plans.ErrNone) { // it was one, of the same bytes
		w.v.o.Report(slog.LevelError, "a computed file cannot be made any more", "of", w.of[0].path,
			"reason", err)
		err = unix.EIO
	}
	return nil, 0, err
}

// done ends the use of the first n operands.
func (w *computed) done(n int) {
	for o := range w.all() {
		if n--; n < 0 {
			return
		}
		o.done()
	}
}

// openComputed is an open computed file.
type openComputed struct {
	unwritten
	w *computed
}

// Close ends the use. The last one frees the memory that reads left behind.
func (o openComputed) Close() {
	w := o.w
	w.done(len(w.of) + 1)
	w.mu.Lock()
	w.uses--
	p := w.plan.Value()
	last := w.uses == 0
	w.mu.Unlock()
	if last && p != nil {
		p.Drop()
	}
}

// Read computes what is read. ESTALE when an operand has other bytes by now: nothing that was read is given
// out then.
func (o openComputed) Read(p []byte, off int64) (int, error) {
	w := o.w
	plan, err := w.planNow()
	n := 0
	if err == nil {
		src := make([]io.ReaderAt, len(w.of))
		for i, o := range w.of {
			src[i] = o
		}
		n, err = plan.ReadAt(src, p, off)
	}
	if !w.current() {
		w.v.o.Report(slog.LevelWarn, "a computed file was read of which a source has changed", "of",
			w.of[0].path)
		return 0, unix.ESTALE
	}
	var errno unix.Errno
	switch {
	case err == nil, err == io.EOF:
		w.v.o.Files.Count.Views.Add(n)
		return n, nil
	case errors.As(err, &errno):
		return 0, errno
	}
	return 0, w.of[0].n.File().ReadFailed(off, err)
}

// stat describes the file: its first source, with the permissions that all have and the latest of their
// times.
func (w *computed) stat(*Virtual) (tree.Attr, error) {
	a, err := w.of[0].n.Attr()
	if err != nil {
		return a, err
	}
	for o := range w.all() {
		b, err := o.n.Attr()
		if err != nil {
			return a, err
		}
		if o == w.side {
			b.Mode = a.Mode
		}
		a.Mode &= b.Mode
		if later(b.Mtime, a.Mtime) {
			a.Mtime = b.Mtime
		}
		if later(b.Ctime, a.Ctime) {
			a.Ctime = b.Ctime
		}
	}
	a.Mode = unix.S_IFREG | withoutWrite(a.Mode, unix.S_IFREG)
	return a, nil
}

func later(a, b unix.Timespec) bool { return a.Nano() > b.Nano() }
