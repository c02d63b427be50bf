package volume

import (
	"fmt"
	"log/slog"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// free is how many bytes of the disk are free for use, and how many of them are left to those who write files.
func (v *Volume) free() (free, reserve int64, err error) {
	st, err := v.statDisk()
	if err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, min(int64(st.Blocks)*st.Bsize/100, maxReserve), nil
}

// room is Options.Room of the store: what packing leaves free is left by whatever only saves room, too.
func (v *Volume) room(n int64) error {
	free, reserve, err := v.free()
	if err != nil || free-n >= reserve {
		return err
	}
	return fmt.Errorf("the disk of %s has %s free, and the last %s are left for what has to be written to free some: %w",
		v.dir, humanize.IBytes(uint64(free)), humanize.IBytes(uint64(reserve)), unix.ENOSPC)
}

// makeRoom is Options.MakeRoom of the store: it gives the reserve up when less is free than that is.
func (v *Volume) makeRoom() bool {
	gave, err := tree.FreeReserve(v.dir)
	if err != nil {
		v.report(slog.LevelWarn, "the store's reserve is not to be had", "reason", err)
	}
	if gave {
		v.lent.Store(true)
		v.report(slog.LevelInfo, "the disk is full: what the store keeps for this was given up", "store", v.dir)
	}
	return gave
}

// retakeReserve takes back what was given up to a start or a sweep.
func (v *Volume) retakeReserve() {
	if v.lent.Swap(false) {
		tree.RetakeReserve(v.dir)
	}
}

// diskShort: under 2 % of the disk is free for use.
func (v *Volume) diskShort() bool {
	st, err := v.statDisk()
	return err == nil && st.Blocks > 0 && st.Bavail < st.Blocks/50
}

// statDisk describes the disk that the store lies on.
func (v *Volume) statDisk() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := unix.Statfs(v.dir, &st)
	return st, err
}
