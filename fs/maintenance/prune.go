package maintenance

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/fs/control"
)

// Prune frees the room that no file needs any more. Files may be saved, read, renamed and removed meanwhile.
// It may be interrupted at any time.
func (p *Passes) Prune(
	ctx context.Context, o control.PruneOptions, report func(control.Progress),
) (*control.Pruned, error) {
	return p.prune(ctx, o, false, report)
}

// prune is Prune, for somebody or by itself.
func (p *Passes) prune(ctx context.Context, o control.PruneOptions, byItself bool,
	report func(control.Progress)) (*control.Pruned, error) {
	if p.ReadOnly && !o.DryRun {
		return nil, unix.EROFS
	}
	select {
	case p.Pruning <- struct{}{}:
		defer func() { <-p.Pruning }()
	default:
		return nil, fmt.Errorf("nothing was removed: %w", store.ErrSweeping)
	}
	size := p.Store.Stats().Bytes
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
		defer p.Reserve.Retake()
	}
	st, err := p.Store.Sweep(ctx, opt, func(ctx context.Context, m *store.Marking) error {
		return p.mark(ctx, m, !o.DryRun)
	})
	out := &control.Pruned{
		DryRun: o.DryRun, Segments: st.Segments, Young: st.Young, YoungBytes: st.Waits, Damaged: st.Skipped,
		LiveRecords: st.Live.Records, LiveBytes: st.Live.Stored,
		DeadRecords: st.Dead.Records, DeadBytes: st.Dead.Stored,
		RoomBytes: st.Room, FreedBytes: st.Freed, CopiedBytes: st.Copied,
		Punched: st.Punched, Removed: st.Removed, NotPunched: st.NotPunched,
	}
	if o.DryRun {
		out.FreedBytes = st.Room
	}
	if err == nil && !o.DryRun {
		err = p.Artifacts.Forget(p.Store.Locate)
	}
	if err == nil && !o.DryRun {
		p.Last.Prune.Store(&control.LastPrune{At: p.Now(), Grace: o.Grace, ByItself: byItself,
			FreedBytes: max(0, out.FreedBytes-out.CopiedBytes)})
		p.Last.keep(p)
	}
	if err != nil && st.Looked == 0 {
		err = fmt.Errorf("nothing was removed: %w", err)
	}
	return out, err
}
