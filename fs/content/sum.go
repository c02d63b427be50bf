package content

import (
	"context"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// maxSummed bounds the files that get a checksum, in bytes: only files with holes are that long.
const maxSummed = 1 << 30

// SumHolds reports whether a record's checksum speaks of the file as st describes it.
func SumHolds(rec *tree.Record, st *unix.Stat_t) bool {
	mtime, ok := tree.Nanoseconds(st.Mtim)
	return rec.Summed && ok && rec.Mtime == mtime && int64(rec.Size) == st.Size
}

// Sum makes the checksum of a plain file that has no writer, unless it has one. did: its bytes were read.
func (f *File) Sum(ctx context.Context) (did bool, err error) {
	s := summing{f: f}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	if wanted, err := s.begin(cancel); !wanted || err != nil {
		return false, err
	}
	defer s.close()
	if err := unix.Fstat(int(s.raw.Fd()), &s.opened); err != nil {
		return false, err
	}
	if f.c.mayBeWritten(s.raw, false) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.c.events.Unsummed(f)
		return false, nil
	}
	h, size, err := SumOf(own, s.raw)
	if own.Err() != nil {
		return true, ctx.Err() // nil: the bytes are not the file's any more
	}
	if err == nil {
		err = f.c.Step("sum: read")
	}
	if err != nil || size != s.opened.Size {
		return true, err
	}
	return true, s.end(h)
}

// summing is the making of one checksum. No lock is held while the bytes are read.
type summing struct {
	f              *File
	raw            *os.File
	gen            uint64      // of the bytes
	before, opened unix.Stat_t // the inode before and after it was opened
}

// begin opens the file if it wants a checksum. cancel is called when its bytes change or are removed.
func (s *summing) begin(cancel context.CancelFunc) (wanted bool, err error) {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = f.LoadLocked(); err == nil && !f.rec.Packed() {
		err = f.VetLocked()
	}
	if err != nil || f.rec.Packed() || f.rec.Emptying || f.rec.Lost || f.damaged != nil ||
		f.bytes.dirty || f.noRoom || f.users.writers > 0 || f.Dead() || f.c.readOnly {
		return false, err
	}
	if err := f.node.Stat(&s.before); err != nil {
		return false, err
	}
	_, mok := tree.Nanoseconds(s.before.Mtim)
	_, cok := tree.Nanoseconds(s.before.Ctim)
	if !mok || !cok || s.before.Size == 0 || s.before.Size > maxSummed ||
		SumHolds(&f.rec, &s.before) && f.rec.Epoch == f.c.epoch() {
		return false, nil
	}
	s.gen = f.bytes.gen
	if s.raw, err = f.OpenQuietly(); err == nil {
		f.cancelSum = cancel
	}
	return err == nil, err
}

func (s *summing) close() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.cancelSum = nil
	s.raw.Close()
}

// end writes the record, unless the file was touched meanwhile.
func (s *summing) end(h cas.Hash) error {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.c.Failed(int(s.raw.Fd())); err != nil {
		distrust{f}.noteLocked(err)
	}
	if f.rec.Lost || f.bytes.gen != s.gen || f.bytes.dirty ||
		f.users.writers > 0 || f.rec.Packed() || f.Dead() {
		return nil
	}
	var now unix.Stat_t
	if err := f.node.Stat(&now); err != nil {
		return err
	}
	if now.Size != s.opened.Size || now.Mtim != s.opened.Mtim || now.Ctim != s.opened.Ctim {
		f.c.events.Unsummed(f)
		return nil
	}
	rec := f.rec
	held := SumHolds(&rec, &now)
	if held && rec.Sum != h {
		f.c.report(slog.LevelWarn, "a file is not what it was before the host went down: what was written and not synced was lost, or its bytes are damaged",
			"path", f.Path())
	}
	if !held { // else the inode's change time is that of the old record
		rec.Ctime, _ = tree.Nanoseconds(s.before.Ctim)
	}
	rec.Summed, rec.Sum, rec.Size, rec.Epoch = true, h, uint32(now.Size), f.c.epoch()
	rec.Mtime, _ = tree.Nanoseconds(now.Mtim)
	if err := f.c.Step("sum: record"); err != nil {
		return err
	}
	f.c.events.Unsynced(f) // a clean end has to make the bytes durable that the record speaks of
	f.moved = true
	return f.writeRecordLocked(rec)
}

// unsumLocked takes the checksum of a plain file away, before anything is done to the file or after its inode
// was changed.
func (f *File) unsumLocked() error {
	f.mu.AssertHeld()
	if !f.rec.Summed {
		return nil
	}
	if err := f.c.Step("unsum"); err != nil {
		return err
	}
	f.c.events.Unsynced(f) // a clean end has to make it durable that it is gone
	f.moved = true
	return f.writeRecordLocked(tree.Record{ViewHidden: f.rec.ViewHidden, Literal: f.rec.Literal})
}

// SumOf reads a file to its end.
func SumOf(ctx context.Context, raw *os.File) (h cas.Hash, size int64, err error) {
	return cas.SumReader(&stoppable{ctx, io.NewSectionReader(raw, 0, maxSummed+1)})
}

// stoppable is a reader until ctx ends.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
