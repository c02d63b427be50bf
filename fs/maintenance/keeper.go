package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/cas/store"
	"ckptfs/fs/control"
)

const (
	// looksAtDisk is how often a Keeper looks at the disk.
	looksAtDisk = 10 * time.Second
	// fillsUp is the share of the disk, one in so many, of which less is free when it fills up.
	fillsUp = 10
	// paysOff is the share of which a prune has to give back more to be made again at once.
	paysOff = 50
	// How often a disk that fills up is pruned, and one that is nearly full; but at once if that gave back a
	// fiftieth of it the last time.
	fillsEvery = time.Hour
	shortEvery = 10 * time.Minute
)

// Keeper prunes a store by itself while its disk fills up, so that nobody waits for a person to do it. With
// less than a tenth free it gives back what is past the grace period, and with less than a fiftieth all that
// no file needs. It does so if something was removed since, and from time to time at most: each time every
// manifest is read.
type Keeper struct {
	Passes *Passes
	Settle func() // called before a prune
	// idle: nothing was removed since it was pruned last, and nothing was left then.
	idle atomic.Bool

	ctx    context.Context
	cancel context.CancelFunc
	end    sync.WaitGroup
	filled time.Time // when it was pruned last with grace, and without; of the one goroutine
	short  time.Time
	paid   bool // the last one gave back much
}

// Removed notes that a file was removed, or is written again.
func (k *Keeper) Removed() { k.idle.Store(false) }

// Start begins to look at the disk, once ready is closed.
func (k *Keeper) Start(ready <-chan struct{}) {
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.end.Go(func() {
		select {
		case <-ready:
		case <-k.ctx.Done():
			return
		}
		tick := time.NewTicker(looksAtDisk)
		defer tick.Stop()
		for {
			select {
			case <-k.ctx.Done():
				return
			case <-tick.C:
				k.Look(k.ctx)
			}
		}
	})
}

// Stop ends what Start began.
func (k *Keeper) Stop() {
	if k.cancel != nil {
		k.cancel()
		k.end.Wait()
	}
}

// Look prunes the store if its disk fills up, and it is time.
func (k *Keeper) Look(ctx context.Context) {
	grace, due := k.due()
	if !due || k.idle.Swap(true) {
		return
	}
	k.Settle()
	p, err := k.Passes.reclaim(ctx, grace)
	if errors.Is(err, store.ErrSweeping) { // it looks again soon: that one may be a dry run
		k.Removed()
		return
	}
	now := k.Passes.Now()
	if k.filled = now; grace == 0 {
		k.short = now
	}
	freed := max(0, p.FreedBytes-p.CopiedBytes)
	size, free, serr := k.Passes.Reserve.Space()
	k.paid = err == nil && serr == nil && freed > size/paysOff
	if err != nil || p.YoungBytes > 0 || p.Damaged > 0 {
		k.Removed() // something is left
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		k.Passes.Report(slog.LevelWarn, "the disk fills up, and what no file needs could not be given back",
			"reason", err)
		return
	}
	k.Passes.Report(slog.LevelInfo, "the disk fills up: the store was pruned", "grace", grace,
		"freed", humanize.IBytes(uint64(freed)),
		"free", humanize.IBytes(uint64(free)))
	if freed > 0 {
		k.Passes.Queue.Freed()
	}
}

// due reports whether the store is to be pruned, and what is to be left alone.
func (k *Keeper) due() (grace time.Duration, due bool) {
	size, free, err := k.Passes.Reserve.Space()
	if err != nil || free >= size/fillsUp {
		return 0, false
	}
	now := k.Passes.Now()
	if k.Passes.Reserve.Short() {
		return 0, k.paid || k.short.IsZero() || now.Sub(k.short) >= shortEvery
	}
	return control.DefaultGrace, k.paid || k.filled.IsZero() || now.Sub(k.filled) >= fillsEvery
}

// Reclaim gives back what no file needs, however young it is: somebody has no room. Of a prune that is under
// way it waits for the end, and prunes itself if that gave back nothing.
func (p *Passes) Reclaim(ctx context.Context) (freed int64, err error) {
	for {
		last := p.Last.Prune.Load()
		out, err := p.reclaim(ctx, 0)
		if !errors.Is(err, store.ErrSweeping) {
			if out != nil {
				freed = max(0, out.FreedBytes-out.CopiedBytes)
			}
			return freed, err
		}
		select {
		case p.Pruning <- struct{}{}:
			<-p.Pruning
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if did := p.Last.Prune.Load(); did != last && did.FreedBytes > 0 {
			return did.FreedBytes, nil
		}
	}
}

// reclaim is a prune that nobody asked for.
func (p *Passes) reclaim(ctx context.Context, grace time.Duration) (*control.Pruned, error) {
	return p.prune(ctx, control.PruneOptions{Grace: grace, MaxUnused: store.DefaultMaxUnused}, true, nil)
}
