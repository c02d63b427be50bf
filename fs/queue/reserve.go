package queue

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Reserve is what is left free of the disk: for those who write files, and a file of the store that is removed when nothing else
// would free room.
type Reserve struct {
	dir    string // the store's
	report func(level slog.Level, msg string, args ...any)
	lent   atomic.Bool // the file was removed, and is to be made again by the next sweep
}

func NewReserve(dir string, report func(level slog.Level, msg string, args ...any)) *Reserve {
	return &Reserve{dir: dir, report: report}
}

// Keep sees to it that there is room to start in.
func (r *Reserve) Keep() {
	full, err := tree.Reserve(r.dir)
	if err != nil {
		r.report(slog.LevelWarn, "cannot create the reserve file", "reason", err)
	} else if full {
		r.lent.Store(true)
		r.report(slog.LevelWarn, "the disk is full: the reserve file, which is kept for a start, is missing", "store", r.dir)
	}
}

// Step is how many bytes are read or written, at most, before the disk is looked at again.
func (r *Reserve) Step() (int64, error) {
	_, reserve, err := r.free()
	return stepOf(reserve), err
}

// Spare is how many bytes of the disk are free beyond the reserve; a small step when fewer are.
func (r *Reserve) Spare() (int64, error) {
	free, reserve, err := r.free()
	return max(free-reserve, leastStep), err
}

const (
	// maxReserve bounds what packing leaves free of the disk, which is a hundredth of it.
	maxReserve = 64 << 20
	// leastStep bounds how few bytes packing reads before it looks at the disk again; it is an eighth of the reserve.
	leastStep = 128 << 10
)

func stepOf(reserve int64) int64 { return max(reserve/8, leastStep) }

// free is how many bytes of the disk are free for use, and how many of them are left to those who write files.
func (r *Reserve) free() (free, reserve int64, err error) {
	st, err := r.stat()
	if err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, min(int64(st.Blocks)*st.Bsize/100, maxReserve), nil
}

// Room is Options.Room of the store: what packing leaves free is left by whatever only saves room, too.
func (r *Reserve) Room(n int64) error {
	free, reserve, err := r.free()
	if err != nil || free-n >= reserve {
		return err
	}
	return fmt.Errorf("the disk of %s has %s free, and the last %s are left for what has to be written to free some: %w",
		r.dir, humanize.IBytes(uint64(free)), humanize.IBytes(uint64(reserve)), unix.ENOSPC)
}

// MakeRoom is Options.MakeRoom of the store: it removes the reserve file when less is free than that is.
func (r *Reserve) MakeRoom() bool {
	gave, err := tree.FreeReserve(r.dir)
	if err != nil {
		r.report(slog.LevelWarn, "cannot free the reserve file", "reason", err)
	}
	if gave {
		r.lent.Store(true)
		r.report(slog.LevelInfo, "the disk is full: the reserve file was removed, to make room", "store", r.dir)
	}
	return gave
}

// Retake makes the file again that was removed for a start or a sweep.
func (r *Reserve) Retake() {
	if r.lent.Swap(false) {
		tree.RetakeReserve(r.dir)
	}
}

// Short: under 2 % of the disk is free for use.
func (r *Reserve) Short() bool {
	st, err := r.stat()
	return err == nil && st.Blocks > 0 && st.Bavail < st.Blocks/50
}

// stat describes the disk that the store lies on.
func (r *Reserve) stat() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := unix.Statfs(r.dir, &st)
	return st, err
}

// check is Step while no fewer bytes of the disk are free than packing leaves; else ENOSPC.
func (r *Reserve) check() (step int64, err error) {
	free, reserve, err := r.free()
	if err != nil {
		return 0, err
	}
	if free < reserve {
		return 0, fmt.Errorf("the disk has %s free, and packing leaves the last %s alone: %w", humanize.IBytes(uint64(free)),
			humanize.IBytes(uint64(reserve)), unix.ENOSPC)
	}
	return stepOf(reserve), nil
}
