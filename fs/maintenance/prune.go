package maintenance

import (
	"context"
	"errors"
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

// begin has the caller be the one that prunes. Somebody who asks for it waits for one that is under way.
func (p *Passes) begin(ctx context.Context, byItself bool, report func(control.Progress)) error {
	select {
	case p.Pruning <- struct{}{}:
		return nil
	default:
	}
	if byItself {
		return store.ErrSweeping
	}
	if report != nil {
		report(control.Progress{Phase: "waiting for another prune, which is under way"})
	}
	select {
	case p.Pruning <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errors.Join(store.ErrSweeping, ctx.Err())
	}
}

// prune is Prune, for somebody or by itself.
func (p *Passes) prune(ctx context.Context, o control.PruneOptions, byItself bool,
	report func(control.Progress)) (*control.Pruned, error) {
	if p.ReadOnly && !o.DryRun {
		return nil, unix.EROFS
	}
	if err := p.begin(ctx, byItself, report); err != nil {
		return nil, fmt.Errorf("nothing was removed: %w", err)
	}
	defer func() { <-p.Pruning }()
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
	a, err := p.apart(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing was removed: %w", err)
	}
	defer a.end()
	out, looked := &control.Pruned{DryRun: o.DryRun}, 0
	for more, last := !o.DryRun, error(nil); ; {
		if more {
			more, last = a.step(ctx)
		}
		var st store.SweepStats
		st, err = p.Store.Sweep(ctx, opt, func(ctx context.Context, m *store.Marking) error {
			return p.mark(ctx, m, !o.DryRun)
		})
		looked += st.Looked
		add(out, &st)
		if err = errors.Join(err, last); err != nil || !more {
			break
		}
	}
	err = errors.Join(err, a.tell(out))
	if err == nil && !o.DryRun {
		err = p.Artifacts.Forget(p.Store.Locate)
	}
	if err == nil && !o.DryRun {
		p.Last.Prune.Store(&control.LastPrune{At: p.Now(), Grace: o.Grace, ByItself: byItself,
			FreedBytes: max(0, out.FreedBytes-out.CopiedBytes)})
		p.Last.keep(p)
	}
	if err != nil && looked == 0 {
		err = fmt.Errorf("nothing was removed: %w", err)
	}
	return out, err
}

// add adds what a sweep did, which is not the first, perhaps.
func add(out *control.Pruned, st *store.SweepStats) {
	out.Segments, out.Young, out.YoungBytes, out.Damaged = st.Segments, st.Young, st.Waits, st.Skipped
	out.LiveRecords, out.LiveBytes = st.Live.Records, st.Live.Stored
	out.DeadRecords += st.Dead.Records
	out.DeadBytes += st.Dead.Stored
	out.RoomBytes += st.Room
	out.FreedBytes += st.Freed
	out.CopiedBytes += st.Copied
	out.Punched += st.Punched
	out.Removed += st.Removed
	out.NotPunched = st.NotPunched
	if out.DryRun {
		out.FreedBytes = st.Room
	}
}
