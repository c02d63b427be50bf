package volume

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/fs/control"
)

// Prune gives the room back that nothing needs any more. Files may be saved, read, renamed and removed meanwhile. It may
// be interrupted at any time.
func (v *Volume) Prune(ctx context.Context, o control.PruneOptions, report func(control.Progress)) (*control.Pruned, error) {
	if v.readOnly && !o.DryRun {
		return nil, unix.EROFS
	}
	size := v.store.Stats().Bytes
	opt := store.SweepOptions{Grace: o.Grace, MaxUnused: o.MaxUnused, DryRun: o.DryRun}
	if report != nil {
		report(control.Progress{TotalBytes: size, Current: "looking for what is in use"})
		opt.Progress = func(st store.SweepStats) {
			report(control.Progress{
				DoneBytes: size * int64(st.Looked) / int64(max(1, st.Segments)), TotalBytes: size,
				DoneFiles: st.Looked, TotalFiles: st.Segments,
			})
		}
	}
	if !o.DryRun {
		defer v.reserve.Retake()
	}
	st, err := v.store.Sweep(ctx, opt, v.mark)
	out := &control.Pruned{
		DryRun: o.DryRun, Segments: st.Segments, Young: st.Young, Damaged: st.Skipped,
		LiveRecords: st.Live.Records, LiveBytes: st.Live.Stored, DeadRecords: st.Dead.Records, DeadBytes: st.Dead.Stored,
		FreedBytes: st.Freed, CopiedBytes: st.Copied, Punched: st.Punched, Removed: st.Removed, NotPunched: st.NotPunched,
	}
	if err == nil && !o.DryRun {
		err = v.artifacts.Forget(v.store.Locate)
	}
	if err != nil && st.Looked == 0 {
		err = fmt.Errorf("nothing was removed: %w", err)
	}
	return out, err
}
