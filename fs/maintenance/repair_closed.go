package maintenance

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"ckptfs/cas/disk"
	"ckptfs/cas/salvage"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/index/chunks"
)

// The parts of a store that Repair mends.
const (
	RepairIndex    = "index"
	RepairSegments = "segments"
	RepairTree     = "tree"
)

// RepairClosed mends a part of the store in dir that can be mended while nobody has the store open, which the
// caller has locked. It adds to out what it did. Of RepairTree there is nothing to do yet.
func RepairClosed(dir, part string, now func() time.Time, out *control.Repaired,
	report func(control.Progress)) error {
	switch part {
	case RepairIndex:
		return dropIndex(dir, out)
	case RepairSegments:
		return repairSegments(dir, now, out, report)
	}
	return nil
}

func dropIndex(dir string, out *control.Repaired) error {
	aside, err := chunks.MoveAside(filepath.Join(dir, tree.IndexFile), filepath.Join(dir, tree.LostFound))
	if errors.Is(err, fs.ErrNotExist) {
		out.Actions = append(out.Actions, control.Action{Path: tree.IndexFile, Did: "was not there, and was rebuilt"})
		return nil
	}
	if err == nil {
		out.Actions = append(out.Actions,
			control.Action{Path: tree.IndexFile, Did: "moved to " + Rel(dir, aside) + ", and rebuilt"})
	}
	return err
}

// Rel is a path as it is told: relative to the store, if it is in it.
func Rel(dir, p string) string {
	if r, err := filepath.Rel(dir, p); err == nil {
		return r
	}
	return p
}

func repairSegments(dir string, now func() time.Time, out *control.Repaired,
	report func(control.Progress)) error {
	format, err := tree.ReadFormat(dir)
	if err != nil {
		return err
	}
	opt := salvage.Options{
		Aside:     filepath.Join(dir, tree.LostFound),
		DropIndex: func() error { return dropIndex(dir, out) },
		Now:       now,
	}
	if report != nil {
		opt.Progress = func(st salvage.Stats) {
			report(control.Progress{DoneBytes: int64(st.Looked), TotalBytes: int64(st.Segments),
				DoneFiles: st.Looked, TotalFiles: st.Segments})
		}
	}
	st, err := salvage.Segments(disk.OS{}, filepath.Join(dir, tree.SegmentsDir), format.ID, opt)
	for _, m := range st.Moved {
		did := fmt.Sprintf("moved to %s: %v", Rel(dir, m.Aside), m.Reason)
		if m.New != 0 {
			did += fmt.Sprintf("; its %d whole records are kept", m.Records)
		}
		if m.Lost > 0 {
			did += fmt.Sprintf("; %d could not be read", m.Lost)
		}
		out.Actions = append(out.Actions,
			control.Action{Path: fmt.Sprintf("%s/%08d.seg", tree.SegmentsDir, m.Segment), Did: did})
	}
	return err
}
