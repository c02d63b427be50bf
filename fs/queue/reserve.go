package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

const (
	// maxReserve bounds the share of the disk that packing leaves free, which is a hundredth of it.
	maxReserve = 64 << 20
	// leastStep is the least Step. Others are an eighth of the share.
	leastStep = 128 << 10
)

// Reserve is what the store leaves free of the disk that it lies on. It is a share of the disk, which only
// programs that write files may use, and what has to be written to free some; and the reserve file, which is
// removed when nothing else would free room.
type Reserve struct {
	dir    *disk.Folder // the store's
	least  atomic.Int64 // bytes that are left at least: of a test
	space  Space
	report func(level slog.Level, msg string, args ...any)
	lent   atomic.Bool // the reserve file was removed; the next sweep makes it again
}

// Space is how many bytes a disk has, and has free.
type Space func() (size, free int64, err error)

// NewReserve is the reserve of a store's folder. Short asks space; nil: the disk that the folder lies on.
func NewReserve(dir *disk.Folder, space Space,
	report func(level slog.Level, msg string, args ...any)) *Reserve {
	if space == nil {
		space = dir.Space
	}
	return &Reserve{dir: dir, space: space, report: report}
}

// Space is the disk's size and free bytes as Short has them.
func (r *Reserve) Space() (size, free int64, err error) { return r.space() }

// Keep makes the reserve file if it is missing and the disk has room for it.
func (r *Reserve) Keep() {
	full, err := tree.Reserve(r.dir)
	if err != nil {
		r.report(slog.LevelWarn, "cannot create the reserve file; a start on a full disk may fail until there is room", "reason", err)
	} else if full {
		r.lent.Store(true)
		r.report(slog.LevelWarn, "the disk is full: the reserve file, which is kept for a start, is missing; free some of the disk",
			"store", r.dir.Path())
	}
}

// Room is Options.Room of the store: the error wraps ENOSPC when writing n bytes would leave less than the
// share. It is asked before writes that only save room.
func (r *Reserve) Room(n int64) error {
	free, share, err := r.free()
	if err != nil || free-n >= share {
		return err
	}
	return fmt.Errorf("the disk of %s has %s free, and the last %s are left for what has to be written to free some: %w",
		r.dir.Path(), humanize.IBytes(uint64(free)), humanize.IBytes(uint64(share)), unix.ENOSPC)
}

// MakeRoom is Options.MakeRoom of the store: it removes the reserve file if less than its size is free, and
// reports whether it did.
func (r *Reserve) MakeRoom() bool {
	gave, err := tree.FreeReserve(r.dir)
	if err != nil {
		r.report(slog.LevelWarn, "cannot remove the reserve file, to make room; free some of the disk", "reason", err)
	}
	if gave {
		r.lent.Store(true)
		r.report(slog.LevelInfo, "the disk is full: the reserve file was removed, to make room", "store", r.dir.Path())
	}
	return gave
}

// Retake makes the reserve file again that was removed for a start or a sweep.
func (r *Reserve) Retake() {
	if r.lent.Swap(false) {
		tree.RetakeReserve(r.dir)
	}
}

// Short reports whether less than a fiftieth of the disk is free.
func (r *Reserve) Short() bool {
	size, free, err := r.space()
	return err == nil && size > 0 && free < size/50
}

// Step is how many bytes may be read or written before the disk is looked at again.
func (r *Reserve) Step() (int64, error) {
	_, share, err := r.free()
	return stepOf(share), err
}

func stepOf(share int64) int64 { return max(share/8, leastStep) }

// Spare is how many bytes more than the share are free, but the least Step at least.
func (r *Reserve) Spare() (int64, error) {
	free, share, err := r.free()
	return max(free-share, leastStep), err
}

// check is Step. The error wraps ENOSPC when less than the share is free.
func (r *Reserve) check() (step int64, err error) {
	free, share, err := r.free()
	if err == nil && free < share {
		err = r.none(free, share, 0, true)
	}
	return stepOf(share), err
}

// left is how many bytes packing may write; negative when less than the share is free. Where the disk does
// not tell there is no bound.
func (r *Reserve) left() int64 {
	free, share, err := r.free()
	if err != nil {
		return math.MaxInt64
	}
	return free - share
}

// roomError is that a file is not packed for want of room on the disk.
type roomError struct {
	store             string
	free, share, size int64
	refused           bool   // by the Reserve: the disk refused no write
	pruned            string // what became of a prune that was to make room; "": there was none
}

func (e *roomError) Error() string {
	msg := fmt.Sprintf("no space left to pack it: the disk of %s has %s free, and packing leaves the last %s alone",
		e.store, humanize.IBytes(uint64(e.free)), humanize.IBytes(uint64(e.share)))
	if e.pruned != "" {
		msg += "; " + e.pruned
	}
	const unit = 1 << 20
	missing := (max(e.size-(e.free-e.share), 1) + unit - 1) / unit * unit
	return fmt.Sprintf("%s; free at least %s, or move a file away; then `ckptfs sync`", msg,
		humanize.IBytes(uint64(missing)))
}

func (e *roomError) Unwrap() error { return unix.ENOSPC }

// short is the error of a file of so many bytes that was not packed for want of room, once what the attempt
// wrote was taken back; err, where it is another.
func (r *Reserve) short(size int64, err error) error {
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	free, share, ferr := r.free()
	if ferr != nil {
		return err
	}
	var of *roomError
	refused := errors.As(err, &of) && of.refused
	return r.none(free, share, size, refused)
}

// none is the error of a file of so many bytes.
func (r *Reserve) none(free, share, size int64, refused bool) *roomError {
	return &roomError{store: r.dir.Path(), free: free, share: share, size: size, refused: refused}
}

// free is how many bytes of the disk are free for use, and how many the share is.
func (r *Reserve) free() (free, share int64, err error) {
	st, err := r.stat()
	if err != nil {
		return 0, 0, err
	}
	share = max(min(int64(st.Blocks)*st.Bsize/100, maxReserve), r.least.Load())
	return int64(st.Bavail) * st.Bsize, share, nil
}

// stat describes the disk that the store lies on.
func (r *Reserve) stat() (unix.Statfs_t, error) { return r.dir.StatFS() }
