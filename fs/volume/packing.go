package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
)

// job is a file in a group.
type job struct {
	node *Node
	gen  uint64
	size int64
	res  *pack.Result

	viewSize int64
}

var errMapped = errors.New("mapped for writing")

// packGroup packs files into one batch and publishes them.
func (v *Volume) packGroup(ctx context.Context, group []*Node) {
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
		v.packed(j.node, j.size, jerr)
	}
	if v.packer.tooManyPublished() {
		if err := v.syncPublished(); err != nil {
			v.report(slog.LevelWarn, "records could not be made durable", "reason", err)
		}
	}
}

// overtaken reports whether the file changed since beginPack: what became of the old bytes is no news. f.mu is held.
func (v *Volume) overtaken(j *job) bool {
	f := j.node.file
	return f.gen != j.gen || f.writers > 0 || v.isDead(j.node)
}

// packed reports the end of a file's turn.
func (v *Volume) packed(n *Node, size int64, err error) {
	switch {
	case err == nil:
		v.packer.finish(n, size, false, nil)
	case errors.Is(err, errMapped):
		v.packer.finish(n, 0, true, nil)
	case errors.Is(err, context.Canceled):
		v.packer.finish(n, 0, false, nil)
	default:
		v.report(slog.LevelError, "packing failed; the file stays as it is and is tried again", "path", v.Path(n), "reason", err)
		v.packer.finish(n, 0, true, err)
		v.hot.wake() // the disk may be full
	}
}

// packFile puts a file's chunks and manifest into b. A job without a result has nothing to pack.
func (v *Volume) packFile(ctx context.Context, b *store.Batch, n *Node) (job, error) {
	j := job{node: n}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := v.beginPack(n, &j, cancel)
	if err != nil || raw == nil {
		return j, err
	}
	defer raw.Close()
	defer v.endPack(n)
	if v.mappedForWriting(raw) {
		return j, errMapped
	}
	st, err := raw.Stat()
	if err != nil {
		return j, err
	}
	j.size = st.Size()
	if stays, err := staysResident(raw, st); err != nil {
		return j, err
	} else if stays {
		v.staysAsIs(&j)
		return j, nil
	}
	layout, err := detect.Detect(raw, j.size)
	if err != nil {
		return j, err
	}
	j.viewSize = viewSize(layout)
	j.res, err = v.pack.Layout(ctx, b, raw, j.size, layout)
	return j, err
}

// beginPack opens the raw file of a node that is to be packed; nil when it is not, any more.
func (v *Volume) beginPack(n *Node, j *job, cancel context.CancelFunc) (*os.File, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = false
	if err := v.load(n); err != nil {
		return nil, err
	}
	if !f.dirty || f.writers > 0 || !f.resident || f.rec.Packed() || v.isDead(n) {
		return nil, nil
	}
	j.gen = f.gen
	raw, err := v.content.OpenQuietly(f.rec.ID)
	if err == nil {
		f.cancelPack = cancel
	}
	return raw, err
}

func (v *Volume) endPack(n *Node) {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	n.file.cancelPack = nil
}

// mappedForWriting reports whether anybody can still write the raw file past this process: by a shared mapping that
// outlived its descriptor, or by a descriptor of an earlier daemon's mount. The kernel grants a read lease only when
// nobody has the file open for writing; a filesystem without leases leaves only the mode without passthrough.
func (v *Volume) mappedForWriting(raw *os.File) bool {
	_, err := unix.FcntlInt(raw.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		unix.FcntlInt(raw.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	}
	return err == unix.EAGAIN || v.passthrough.Load()
}

// mostlyHoles: a large file of little but holes stays resident. Packing it would read every hole, and a raw file holds
// them for nothing.
func mostlyHoles(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Size() >= sparseFile && sys.Blocks*512 < st.Size()/16
}

// staysResident reports whether a file is left as it is: it is small and no checkpoint, or mostly holes.
func staysResident(raw *os.File, st os.FileInfo) (bool, error) {
	size := st.Size()
	if size == 0 || mostlyHoles(st) {
		return true, nil
	}
	if size >= smallFile {
		return false, nil
	}
	head := make([]byte, min(size, 4096))
	if _, err := raw.ReadAt(head, 0); err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	return !detect.Sniff(head, size), nil
}

// staysAsIs notes that a file needs no packing.
func (v *Volume) staysAsIs(j *job) {
	f := j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if !v.overtaken(j) {
		v.settleStub(j.node)
		f.dirty = false
		v.packer.notePublished(j.node)
	}
}

// publish makes a committed manifest the file's, unless the file changed meanwhile.
func (v *Volume) publish(j *job) error {
	f := j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.overtaken(j) {
		if f.writers == 0 {
			v.packer.add(j.node)
		}
		return nil
	}
	v.settleStub(j.node)
	rec := f.rec
	rec.Manifest = j.res.Hash
	if j.res.Manifest.Format != "blob" { // the layout was kept
		rec.ViewSize = j.viewSize
	}
	if err := v.writeRecord(j.node, rec); err != nil {
		return err
	}
	f.dirty = false
	f.opens = 0
	v.hot.add(j.node, j.size)
	v.packer.notePublished(j.node)
	return nil
}

// notePublished has the next Sync make the node's record durable.
func (p *packer) notePublished(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.published[n] {
		p.v.ref(n)
		p.published[n] = true
	}
}

// tooManyPublished reports whether it is time not to wait for a Sync.
func (p *packer) tooManyPublished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.published) >= maxPublished
}
