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

// RepairClosed mends the index or the segments of the store in d, and adds to out what it did. No process
// has the store open; the caller holds its lock. Of RepairTree it does nothing: that needs an open store.
func RepairClosed(
	d *disk.Folder, part string, now func() time.Time, out *control.Repaired, report func(control.Progress),
) error {
	switch part {
	case RepairIndex:
		return dropIndex(d, out)
	case RepairSegments:
		return repairSegments(d, now, out, report)
	}
	return nil
}

func dropIndex(d *disk.Folder, out *control.Repaired) error {
	aside, err := chunks.MoveAside(d, d.Join(tree.IndexFile), d.Join(tree.LostFound))
	did := "moved to " + Rel(d, aside) + ", and rebuilt"
	if errors.Is(err, fs.ErrNotExist) {
		did, err = "was not there, and was rebuilt", nil
	}
	if err == nil {
		out.Actions = append(out.Actions, control.Action{Path: tree.IndexFile, Did: did})
	}
	return err
}

// Rel is a path as reports show it: relative to the store, if that is possible.
func Rel(d *disk.Folder, path string) string {
	if r, err := filepath.Rel(d.Path(), path); err == nil {
		return r
	}
	return path
}

func repairSegments(
	d *disk.Folder, now func() time.Time, out *control.Repaired, report func(control.Progress),
) error {
	format, err := tree.ReadFormat(d)
	if err != nil {
		return err
	}
	opt := salvage.Options{
		Aside:     d.Join(tree.LostFound),
		DropIndex: func() error { return dropIndex(d, out) },
		Now:       now,
	}
	if report != nil {
		opt.Progress = func(st salvage.Stats) {
			report(control.Progress{DoneFiles: st.Looked, TotalFiles: st.Segments})
		}
	}
	st, err := salvage.Segments(d, d.Join(tree.SegmentsDir), format.ID, opt)
	for _, m := range st.Moved {
		did := fmt.Sprintf("moved to %s: %v", Rel(d, m.Aside), m.Reason)
		if m.New != 0 {
			did += fmt.Sprintf("; its %d whole records are kept", m.Records)
		}
		if m.Lost > 0 {
			did += fmt.Sprintf("; %d could not be read", m.Lost)
		}
		segment := fmt.Sprintf("%s/%08d.seg", tree.SegmentsDir, m.Segment)
		out.Actions = append(out.Actions, control.Action{Path: segment, Did: did})
	}
	for _, m := range st.Stuck {
		out.Left++
		out.Actions = append(out.Actions, control.Action{
			Path: fmt.Sprintf("%s/%08d.seg", tree.SegmentsDir, m.Segment),
			Did: fmt.Sprintf("stays where it is: it cannot be moved (%v), nor read as a whole (%v). "+
				"Repair the filesystem that it lies on (fsck), or copy the store to another disk, and repeat this",
				m.Stuck, m.Reason),
		})
	}
	return err
}
