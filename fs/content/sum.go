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

// SumHolds reports whether a record's checksum speaks of the file as st describes it: neither was written since by
// somebody else. f.mu is held.
func SumHolds(rec *tree.Record, st *unix.Stat_t) bool {
	mtime, ok := tree.Nanoseconds(st.Mtim)
	return rec.Summed && ok && rec.Mtime == mtime && int64(rec.Size) == st.Size
}

// Sum makes the checksum of a plain file that nobody writes, unless it has one. did: its bytes were read.
func (f *File) Sum(ctx context.Context) (did bool, err error) {
	raw, gen, before, err := f.beginSum()
	if raw == nil || err != nil {
		return false, err
	}
	defer raw.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(raw.Fd()), &st); err != nil {
		return false, err
	}
	if f.c.mayBeWritten(raw, false) {
		f.c.events.Unsummed(f)
		return false, nil
	}
	h, size, err := SumOf(ctx, raw)
	if err == nil {
		err = f.c.Step("sum: read")
	}
	if err != nil || size != st.Size {
		return true, err
	}
	return true, f.endSum(gen, h, before, st)
}

// beginSum opens a file that wants a checksum; nil for others.
func (f *File) beginSum() (raw *os.File, gen uint64, before unix.Stat_t, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = f.LoadLocked(); err == nil && !f.rec.Packed() {
		err = f.VetLocked()
	}
	if err != nil || f.rec.Packed() || f.rec.Emptying || f.damaged != nil || f.dirty || f.writers > 0 || f.Dead() || f.c.readOnly {
		return nil, 0, before, err
	}
	if err := f.node.Stat(&before); err != nil {
		return nil, 0, before, err
	}
	_, mok := tree.Nanoseconds(before.Mtim)
	_, cok := tree.Nanoseconds(before.Ctim)
	if !mok || !cok || before.Size == 0 || before.Size > maxSummed || SumHolds(&f.rec, &before) && f.rec.Epoch == f.c.epoch() {
		return nil, 0, before, nil
	}
	raw, err = f.OpenQuietly()
	return raw, f.gen, before, err
}

// endSum writes the record, unless the file was touched meanwhile. before and st are the inode before and after it was
// opened.
func (f *File) endSum(gen uint64, h cas.Hash, before, st unix.Stat_t) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now unix.Stat_t
	if f.gen != gen || f.dirty || f.writers > 0 || f.rec.Packed() || f.Dead() {
		return nil
	}
	if err := f.node.Stat(&now); err != nil {
		return err
	}
	if now.Size != st.Size || now.Mtim != st.Mtim || now.Ctim != st.Ctim {
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
		rec.Ctime, _ = tree.Nanoseconds(before.Ctim)
	}
	rec.Summed, rec.Sum, rec.Size, rec.Epoch = true, h, uint32(now.Size), f.c.epoch()
	rec.Mtime, _ = tree.Nanoseconds(now.Mtim)
	if err := f.c.Step("sum: record"); err != nil {
		return err
	}
	f.c.events.Unsynced(f) // a clean end has to make the bytes durable that the record speaks of
	f.moved = true
	return f.WriteRecordLocked(rec)
}

// unsum takes the checksum of a plain file away, before anything is done to the file or after its inode was changed. f.mu is
// held.
func (f *File) unsum() error {
	if !f.rec.Summed {
		return nil
	}
	if err := f.c.Step("unsum"); err != nil {
		return err
	}
	f.c.events.Unsynced(f) // a clean end has to make it durable that it is gone
	f.moved = true
	return f.WriteRecordLocked(tree.Record{ViewHidden: f.rec.ViewHidden, Literal: f.rec.Literal})
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
