package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// job is a file in a group.
type job struct {
	node *Node
	gen  uint64
	size int64
	res  *pack.Result

	st      unix.Stat_t // when it was opened
	ctime   unix.Timespec
	literal bool // begins like a hollow file

	viewSize int64
}

var (
	errMapped  = errors.New("mapped for writing")
	errAwaited = errors.New("the file that describes it is not there yet, or not whole")
)

// packGroup packs files into one batch and publishes them.
func (v *Volume) packGroup(ctx context.Context, group []*Node) {
	defer v.content.count.tookSince(time.Now())
	var jobs []job
	b := v.store.Begin()
	defer b.Release()
	for _, n := range group {
		j, err := v.packFile(ctx, b, n)
		if err != nil {
			n.file.mu.Lock()
			if v.overtaken(&j) {
				err, j.res = nil, nil // its last close has queued it again, or will
			}
			n.file.mu.Unlock()
		}
		if err != nil || j.res == nil {
			v.packed(n, 0, err)
			continue
		}
		v.packer.put(n)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return
	}
	err := b.Commit()
	for i := range jobs {
		j := &jobs[i]
		jerr := err
		if jerr == nil {
			jerr = v.publish(j)
		}
		if jerr == nil {
			v.artifacts.Keep(identified{v, j.node})
			v.ids.add(j.node)
		}
		v.packed(j.node, j.size, jerr)
	}
}

// overtaken reports whether the file changed since beginPack: what became of the old bytes is no news. f.mu is held.
func (v *Volume) overtaken(j *job) bool {
	f := j.node.file
	return f.gen != j.gen || f.writers > 0 || j.node.isDead()
}

// packed reports the end of a file's turn.
func (v *Volume) packed(n *Node, size int64, err error) {
	switch {
	case err == nil:
		if size > 0 {
			v.content.count.packedFiles.Add(1)
			v.content.count.packedBytes.Add(size)
		}
		v.packer.finish(n, size, false, nil)
	case errors.Is(err, errMapped), errors.Is(err, errAwaited):
		v.packer.finish(n, 0, true, nil)
	case errors.Is(err, context.Canceled):
		v.packer.finish(n, 0, false, nil)
	default:
		v.content.count.packErrs.Add(1)
		v.report(slog.LevelError, "packing failed; the file stays as it is and is tried again", "path", n.Path(), "reason", err)
		v.packer.finish(n, 0, true, err)
		v.hot.wake() // the disk may be full
	}
}

// packFile puts a file's chunks and manifest into b. A job without a result has nothing to pack.
func (v *Volume) packFile(ctx context.Context, b *store.Batch, n *Node) (job, error) {
	j := job{node: n}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := n.file.beginPack(&j, cancel)
	if err != nil || raw == nil {
		return j, err
	}
	defer raw.Close()
	defer n.file.endPack()
	if v.content.mayBeWritten(raw, false) {
		return j, errMapped
	}
	j.size = j.st.Size
	if stays, err := v.staysPlain(raw, &j); err != nil {
		return j, err
	} else if stays {
		return j, v.staysAsIs(&j)
	}
	layout, rel, err := v.bases.Presume(n.Path(), raw, j.size)
	var was []cas.Hash
	if layout != nil && err == nil {
		j.res, err = v.pack.Layout(ctx, b, &guarded{v: v, r: raw}, j.size, layout, rel)
	}
	if layout == nil && err == nil || errors.Is(err, pack.ErrPresumed) {
		if layout, err = n.file.detect(raw, j.size); err != nil {
			return j, err
		}
		if n.file.awaits(&j, layout) {
			return j, errAwaited
		}
		j.viewSize = view.SizeOf(layout)
		rel, was = v.bases.Related(n.Path(), layout)
		j.res, err = v.pack.Layout(ctx, b, &guarded{v: v, r: raw}, j.size, layout, rel)
	}
	if err == nil {
		v.bases.Note(n.Path(), j.res.Hash, layout, was)
	}
	return j, err
}

// beginPack opens a file that is to be packed; nil when it is not, any more.
func (f *file) beginPack(j *job, cancel context.CancelFunc) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = false
	if err := f.load(); err != nil {
		return nil, err
	}
	if !f.dirty || f.writers > 0 || f.rec.Packed() || f.damaged != nil || f.node.isDead() {
		return nil, nil
	}
	j.gen = f.gen
	var before unix.Stat_t
	if err := f.node.statInode(&before); err != nil {
		return nil, err
	}
	raw, err := f.node.openQuietly()
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(int(raw.Fd()), &j.st); err != nil {
		raw.Close()
		return nil, err
	}
	j.ctime = before.Ctim // opening it may have taken a change of its mode
	f.cancelPack = cancel
	return raw, nil
}

func (f *file) endPack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelPack = nil
}

// mayBeWritten reports whether anybody else can still write the open file past this process: by a shared mapping that
// outlived its descriptor, or by a descriptor of an earlier daemon's mount. The kernel grants a lease only when nobody
// can; a filesystem without leases leaves only the mode without passthrough. rw says how raw was opened.
func (c *contentFiles) mayBeWritten(raw *os.File, rw bool) bool {
	var err error
	if rw {
		var release func()
		if release, err = tree.Alone(int(raw.Fd())); err == nil {
			release()
		}
	} else {
		err = tree.NoWriters(int(raw.Fd()))
	}
	return err != nil && (errors.Is(err, tree.ErrInUse) || c.passthrough.Load())
}

// mapped reports whether somebody may write a plain file that nobody has open for that: a mapping outlives its descriptor, and
// what it writes does not count as a change. Once nobody can, somebody has to open the file first. f.mu is held.
func (f *file) mapped() bool {
	if f.rec.Packed() || f.quiet == f.gen+1 {
		return false
	}
	raw, err := f.node.openQuietly()
	if err != nil {
		return false // told by who reads
	}
	defer raw.Close()
	if f.c.mayBeWritten(raw, false) {
		return true
	}
	if f.writers == 0 {
		f.quiet = f.gen + 1
	}
	return false
}

// staysPlain reports whether a file is left as it is: it is small and no checkpoint, or has holes, which the host keeps for
// nothing, or its times are out of a record's range.
func (v *Volume) staysPlain(raw *os.File, j *job) (bool, error) {
	head, err := readHead(raw, j.size)
	if err != nil {
		return false, err
	}
	if j.literal = tree.LooksHollow(head, v.content.id); j.literal {
		return true, nil // whether it was written so or lost its record: staysAsIs
	}
	_, mok := tree.Nanoseconds(j.st.Mtim)
	_, cok := tree.Nanoseconds(j.st.Ctim)
	if !mok || !cok || j.size < smallFile && !isCheckpoint(head, j.size) {
		return true, nil
	}
	return tree.HasHoles(int(raw.Fd()), j.size)
}

// sniffed is how much of a file's head is looked at to tell what it is.
const sniffed = 4096

// readHead reads the first bytes of a file; none of a file that is shorter than a header.
func readHead(raw *os.File, size int64) ([]byte, error) {
	if size < tree.HeaderSize {
		return nil, nil
	}
	head := make([]byte, min(size, sniffed))
	if _, err := raw.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return head, nil
}

// isCheckpoint reports whether a file of this head and size is worth packing though it is small.
func isCheckpoint(head []byte, size int64) bool {
	return size >= tree.HeaderSize && detect.Sniff(head, size)
}

// settleSmall finds, at the last close, that a small file stays as it is: nothing is written for it, and it does not
// wait for its turn. false when it has to. f.mu is held.
func (f *file) settleSmall() bool {
	if f.raw == nil || !f.dirty || f.rec != (tree.Record{}) {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.raw.Fd()), &st) != nil || st.Size >= smallFile || f.c.mayBeWritten(f.raw, f.rw) {
		return false
	}
	head, err := readHead(f.raw, st.Size)
	if err != nil || isCheckpoint(head, st.Size) || tree.LooksHollow(head, f.c.id) {
		return false
	}
	f.dirty = false
	f.c.v.packer.notePublished(f.node, true)
	f.c.v.sums.add(f.node)
	return true
}

// staysAsIs notes that a file needs no packing.
func (v *Volume) staysAsIs(j *job) error {
	n, f := j.node, j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.overtaken(j) {
		return nil
	}
	if j.literal && f.gen == 0 && !f.rec.Literal { // nobody wrote it since the start
		f.damaged = errUnrecorded
		v.report(slog.LevelError, "damaged file", "path", n.Path(), "reason", f.damaged)
	} else if j.literal != f.rec.Literal {
		rec := f.rec
		rec.Literal = j.literal
		if err := f.writeRecord(rec); err != nil {
			return err
		}
	}
	f.dirty = false
	v.packer.notePublished(n, true)
	v.sums.add(n)
	return nil
}

// publish makes a committed manifest the file's, unless the file changed meanwhile.
func (v *Volume) publish(j *job) error {
	n, f := j.node, j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	var st unix.Stat_t
	again := v.overtaken(j)
	if !again {
		if err := n.statInode(&st); err != nil {
			return err
		}
		again = st.Size != j.st.Size || st.Mtim != j.st.Mtim
	}
	if again {
		if f.writers == 0 {
			v.packer.add(n)
		}
		return nil
	}
	if st.Ctim == j.st.Ctim {
		st.Ctim = j.ctime
	}
	rec := tree.Record{Manifest: j.res.Hash, ViewHidden: f.rec.ViewHidden}
	rec.Mtime, _ = tree.Nanoseconds(st.Mtim)
	rec.Ctime, _ = tree.Nanoseconds(st.Ctim)
	if j.res.Manifest.Format != "blob" { // the layout was kept
		rec.ViewSize = j.viewSize
	}
	if err := v.content.step("pack: record"); err != nil {
		return err
	}
	if err := f.writeRecord(rec); err != nil {
		return err
	}
	f.vetted, f.moved = true, true
	f.dirty = false
	f.opens = 0
	v.hot.add(n, j.size)
	v.packer.notePublished(n, false)
	v.notePacked(n)
	return nil
}
