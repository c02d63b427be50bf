package content

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// Packing is the packing of a file's bytes as they were when it began. One goroutine uses it.
type Packing struct {
	Raw  *os.File // the bytes
	Size int64    // their number

	f        *File
	cancel   context.CancelFunc // until Close
	gen      uint64             // of the bytes
	st       unix.Stat_t        // the inode when Raw was opened
	ctime    unix.Timespec      // its change time before that
	literal  bool               // the bytes begin like those of a hollow file; known after Stays
	viewSize int64              // known after Layout
	inode    *os.File           // keeps the inode in memory after Close; or nil
	failed   error              // the disk did not take what was written before it was packed
}

// BeginPack opens a file that is to be packed; nil when it is not, any more. cancel is called when the bytes
// change. With an error comes a Packing that can only be asked whether it is Overtaken.
func (f *File) BeginPack(cancel context.CancelFunc) (*Packing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &Packing{f: f}
	if err := f.LoadLocked(); err != nil {
		return p, err
	}
	if !f.bytes.dirty || f.users.writers > 0 || f.rec.Packed() || f.damaged != nil || f.Dead() {
		return nil, nil
	}
	p.gen, f.noRoom = f.bytes.gen, false
	var before unix.Stat_t
	if err := f.node.Stat(&before); err != nil {
		return p, err
	}
	raw, err := f.OpenQuietly()
	if err != nil {
		return p, err
	}
	if err := unix.Fstat(int(raw.Fd()), &p.st); err != nil {
		raw.Close()
		return p, err
	}
	p.Raw, p.Size = raw, p.st.Size
	p.ctime = before.Ctim // opening it may have taken a change of its mode
	p.cancel, f.packing = cancel, p
	return p, nil
}

// Close ends what BeginPack began; Publish may follow. Drop ends that.
func (p *Packing) Close() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.failed = p.f.c.Failed(int(p.Raw.Fd())); p.failed != nil {
		distrust{p.f}.noteLocked(p.failed)
	}
	if !p.f.Dead() {
		p.inode = keepInode(p.Raw)
	}
	p.Raw.Close()
	p.cancel = nil
}

// Drop ends the packing, published or not. p may be nil.
func (p *Packing) Drop() {
	if p == nil {
		return
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.f.packing == p {
		p.f.packing = nil
	}
	p.letGoLocked()
}

// letGoLocked lets go of the inode.
func (p *Packing) letGoLocked() {
	p.f.mu.AssertHeld()
	if p.inode != nil {
		p.inode.Close()
		p.inode = nil
	}
}

// longestLetGo bounds a pause in the wait for the kernel to let go of a file that a program had open in
// passthrough. It does so after it has told of the last close.
const longestLetGo = 32 * time.Millisecond

// Mapped reports whether the bytes may be written past this process. ctx ends the wait for the kernel.
func (p *Packing) Mapped(ctx context.Context) bool {
	for pause := time.Millisecond; p.f.c.mayBeWritten(p.Raw, false); pause *= 2 {
		if pause > longestLetGo || !p.f.c.Passthrough.Load() {
			return true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return true
		}
	}
	return false
}

// Stays reports whether the file stays as it is, and notes that.
func (p *Packing) Stays() (bool, error) {
	stays, err := p.staysPlain()
	if stays && err == nil {
		err = p.staysAsIs()
	}
	return stays, err
}

// Layout finds the layout of the bytes: a blob where no manifest holds what they are.
func (p *Packing) Layout() (*formats.Layout, error) {
	done, err := p.f.c.parseAlone(safetensors.HeaderSize(p.Raw, p.Size) >= largeHeader)
	if err != nil {
		return nil, err
	}
	l, err := p.f.Detect(p.Raw, p.Size)
	if done(); err == nil && !p.f.c.pack.Keeps(l) {
		return formats.BlobLayout(p.Size), nil
	}
	if err == nil {
		p.viewSize = view.SizeOf(l)
	}
	return l, err
}

// Overtaken reports whether the file changed since BeginPack: what became of the old bytes is no news. p may
// be nil.
func (p *Packing) Overtaken() bool {
	if p == nil {
		return false
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.overtakenLocked()
}

func (p *Packing) overtakenLocked() bool {
	return p.f.bytes.gen != p.gen || p.f.users.writers > 0 || p.f.Dead()
}

// staysPlain reports whether a file is left as it is: it is never to be packed, or it is small and no
// checkpoint, or has holes, which the host keeps for nothing (see StaysPlain), or its times are out of a
// record's range.
func (p *Packing) staysPlain() (bool, error) {
	head, err := readHead(p.Raw, p.Size)
	if err != nil {
		return false, err
	}
	if p.literal = tree.LooksHollow(head, p.f.c.ID); p.literal {
		return true, nil // whether it was written so or lost its record: staysAsIs
	}
	_, mok := tree.Nanoseconds(p.st.Mtim)
	_, cok := tree.Nanoseconds(p.st.Ctim)
	if !mok || !cok || NeverPacked(p.f) {
		return true, nil
	}
	return staysPlain(p.Raw, head, p.Size)
}

// NeverPacked reports whether the file is never to be packed, by the path that it has now.
func NeverPacked(f *File) bool { return f.c.plain(f.Path()) }

// staysAsIs notes that a file needs no packing.
func (p *Packing) staysAsIs() error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.overtakenLocked() {
		return nil
	}
	if p.literal && f.bytes.gen == f.bytes.first && !f.rec.Literal { // not written since the start
		f.damaged = errUnrecorded
		f.c.report(slog.LevelError, "damaged file", "path", f.Path(), "reason", f.damaged)
	} else if p.literal != f.rec.Literal {
		rec := f.rec
		rec.Literal = p.literal
		if err := f.writeRecordLocked(rec); err != nil {
			return err
		}
	}
	f.bytes.dirty = false
	f.c.events.Plain(f)
	return nil
}

// Publish makes a committed manifest the file's, unless the file changed meanwhile. With tree.ErrNoRoom the
// file stays as it is until its attributes change.
func (p *Packing) Publish(res *pack.Result) error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	var st unix.Stat_t
	again := p.overtakenLocked()
	if !again {
		if err := f.node.Stat(&st); err != nil {
			return err
		}
		again = st.Size != p.st.Size || st.Mtim != p.st.Mtim
	}
	if again {
		if f.users.writers == 0 {
			f.c.events.Dirty(f)
		}
		return nil
	}
	if st.Ctim == p.st.Ctim {
		st.Ctim = p.ctime
	}
	rec := tree.Record{Manifest: res.Hash, ViewHidden: f.rec.ViewHidden, Lost: f.rec.Lost}
	rec.Mtime, _ = tree.Nanoseconds(st.Mtim)
	rec.Ctime, _ = tree.Nanoseconds(st.Ctim)
	if res.Manifest.Format != "blob" { // the layout was kept
		rec.ViewSize = p.viewSize
	}
	if err := f.c.Step("pack: record"); err != nil {
		return err
	}
	if err := f.writeRecordLocked(rec); err != nil {
		if errors.Is(err, tree.ErrNoRoom) {
			f.noRoom, f.bytes.dirty = true, false
			f.c.events.Plain(f)
		}
		return err
	}
	f.vetted, f.moved = true, true
	f.bytes.dirty = false
	f.local.opens = 0
	f.local.came(f.c, f.c.syncs.begun.Load()+1, p.inode)
	p.inode = nil
	f.c.unsynced.release(f)
	f.c.syncs.wanted.Store(true)
	f.c.events.Resident(f, p.Size)
	f.c.events.Packed(f)
	if p.failed == nil && rec.Lost {
		p.failed = errLost
	}
	if p.failed != nil { // what was packed is what was read, and may be right
		distrust{f}.noteLocked(p.failed)
	}
	return nil
}
