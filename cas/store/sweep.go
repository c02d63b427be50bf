package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
)

// DefaultMaxUnused is SweepOptions.MaxUnused where nobody asks for another.
const DefaultMaxUnused = 0.5

// SweepOptions say what a sweep may take.
type SweepOptions struct {
	// Grace: segments sealed less than this ago are left alone, and so is the one being written. With none
	// that one is sealed first.
	Grace time.Duration
	// MaxUnused is the share of a segment, 0 to 1, that may lie unused in it before the rest is moved and the
	// file removed. Up to that, what is unused is returned to the disk as holes.
	MaxUnused float64
	DryRun    bool // change nothing, and count what would go
	// Progress is called after each segment, and may be nil.
	Progress func(SweepStats)
}

// SweepStats is what a sweep did, or would do.
type SweepStats struct {
	Segments int // there were: sealed, or left alone or only looked at while they are written
	Looked   int // at which it looked so far
	Young    int // within the grace period
	Skipped  int // without an intact footer, or unreadable: see Check

	Live segment.Tally // records that are wanted, in the segments that it looked at
	Dead segment.Tally // records that are not, and went
	// Waits is the room of the records that a sweep without grace would take besides: of segments within the
	// grace period what nothing wants, and of all segments what only that is stored against.
	Waits int64
	// Freed is how many bytes the disk got back, Copied how many were written to that end, and Room what the
	// records of Dead took, with their headers; of a dry run there is Room alone.
	Freed, Copied, Room int64
	Punched             int // segments in which holes were made
	Removed             int // segments that went, what was wanted of them moved
	NotPunched          int // segments in which the disk makes no holes
	Rescued             int // records that were put again just before they went
	Reindexed           int // wanted records that the index had lost, or had damaged elsewhere
	Failed              int // segments that could not be dealt with; the error is the first one's
}

// A Mark tells m of every record that is wanted: manifests, and whatever these name.
type Mark func(ctx context.Context, m *Marking) error

// Marking is what a Mark reports to, from any number of goroutines, until it returns.
type Marking struct {
	s *Store
	// marked is what is wanted. What it takes for that by mistake stays, too.
	marked *spilled.Set
}

// Keep says that a record is wanted.
func (m *Marking) Keep(h cas.Hash) { m.marked.Add(keyOf(h)) }

// Named lists the manifests and lists that batches have put since the sweep began, or had put before and not
// released. They are wanted themselves; what they name may not be, if it was not put with them.
func (m *Marking) Named() []cas.Hash {
	return m.s.pins.namedSince()
}

// Sweep removes the records that mark does not name. Batches go on meanwhile: what a batch puts, even if it
// is held already, is wanted from then on, by this sweep and until the batch is released; see Batch.Release.
//
// A base is wanted as long as a delta is that leads to it, or one that is too young to go; what is put pins
// its bases with it. So no delta that anything needs outlives its base. One that nothing needs may, for a
// while: Put sees to that.
//
// It goes from segment to segment. Of each it takes the unwanted records out of the index, then out of the
// footer, and then gives their bytes back to the disk; or, when little is left in it, it first moves the rest
// to the segment that is being written, and removes the file. It may end after any step, and the next one
// goes on.
func (s *Store) Sweep(ctx context.Context, opt SweepOptions, mark Mark) (SweepStats, error) {
	if !s.passes.pruning.TryLock() {
		return SweepStats{}, ErrSweeping
	}
	defer s.passes.pruning.Unlock()
	s.passes.sweeping.Lock() // of a compaction a moment at a time
	defer s.passes.sweeping.Unlock()
	m := &Marking{s: s, marked: spilled.NewSet(s.opt.Spill)}
	w := sweep{s: s, opt: opt, marked: m.marked}
	if opt.Grace > 0 {
		w.waits = spilled.NewSet(s.opt.Spill)
	}

	// From here on what is put is wanted: the mark may have been where it is named already.
	s.pins.beginSweep()
	defer s.pins.endSweep()

	if err := cmp.Or(mark(ctx, m), m.marked.Err(), ctx.Err()); err != nil {
		return w.st, err
	}
	if !opt.DryRun {
		s.makeRoom() // a segment for whose footer there is no room cannot be swept
	}
	if opt.Grace <= 0 && !opt.DryRun {
		if err := s.roll(); err != nil {
			return w.st, err
		}
	}
	numbers, err := s.appender.tails.Sealed()
	if err != nil {
		return w.st, err
	}
	w.st.Segments = len(numbers)
	w.deadline = s.opt.Now().Add(-opt.Grace)
	if err := spilled.Guard(func() error { return w.bases(ctx) }); err != nil {
		return w.st, err
	}
	again, err := w.segments(ctx, numbers)
	if err == nil && len(again) > 0 && w.st.Freed > 0 {
		// What was short of room on a full disk may have it now.
		w.st.Failed, w.st.Looked, w.err = w.st.Failed-len(again), w.st.Looked-len(again), nil
		_, err = w.segments(ctx, again)
	}
	if opt.DryRun || opt.Grace > 0 {
		w.tails(ctx, numbers)
	}
	if w.spared && w.err == nil {
		w.err = fmt.Errorf("%s cannot be read, nor which chunks its own are stored against: none was removed "+
			"(`ckptfs check` says how to mend it)", segment.Name(w.blind))
	}
	return w.st, cmp.Or(err, w.err)
}

// segments sweeps some segments, and returns those for which there was no room on the disk.
func (w *sweep) segments(ctx context.Context, numbers []uint32) (again []uint32, err error) {
	for _, n := range numbers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := w.segment(ctx, n)
		if errors.Is(err, errRenewed) {
			err = w.segment(ctx, n)
		}
		if errors.Is(err, syscall.ENOSPC) && !w.opt.DryRun && w.s.makeRoom() {
			err = w.segment(ctx, n)
		}
		if err != nil {
			w.st.Failed++
			if errors.Is(err, syscall.ENOSPC) {
				again = append(again, n)
			}
			if w.err == nil {
				w.err = fmt.Errorf("segment %08d: %w", n, err)
			}
			if errors.Is(err, errStop) {
				return nil, w.err
			}
		}
		w.st.Looked++
		if w.opt.Progress != nil {
			w.opt.Progress(w.st)
		}
	}
	return again, nil
}

// errStop: it makes no sense to go on with the next segment.
var errStop = errors.New("the sweep ends here")

// roll seals the segment that is being written, if there is one.
func (s *Store) roll() error {
	if err := s.appender.tails.Retire(); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	s.drain()
	s.appender.tails.AwaitDrained(0)
	return nil
}

// sweep is one under way.
type sweep struct {
	s        *Store
	opt      SweepOptions
	deadline time.Time
	marked   *spilled.Set
	waits    *spilled.Set // of marked: what is wanted within the grace period alone
	keep     bool         // whatever is in the index is wanted
	// blind is a segment of which it cannot be read what its deltas need; 0: there is none. spared: chunks
	// stay because of it.
	blind  uint32
	spared bool
	st     SweepStats
	err    error // the first segment's
}

// segment sweeps one segment.
func (w *sweep) segment(ctx context.Context, n uint32) error {
	s := w.s
	if s.lost.Has(n) {
		w.st.Skipped++
		return nil
	}
	open := segment.OpenRW
	if w.opt.DryRun {
		open = segment.Open
	}
	r, err := open(s.fs, s.dir, s.segment(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if disk.Unreadable(err) {
		w.st.Skipped++
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	ft, recs, err := r.Contents()
	if err != nil {
		size, serr := r.Size()
		if serr == nil && size < segment.FileHeaderSize && n != s.appender.tails.Last() {
			// Created just before a crash; never had anything in it.
			if !w.opt.DryRun {
				return s.fs.Remove(segment.Path(s.dir, n))
			}
			return nil
		}
		w.st.Skipped++
		return nil
	}
	p := &part{sweep: w, n: n, r: r, footer: ft, recs: recs}
	if ft.Sealed.After(w.deadline) {
		return p.young()
	}
	if err := p.judge(); err != nil {
		return err
	}
	live, liveRoom := p.tally(true)
	dead, deadRoom := p.tally(false)
	w.st.Live.Add(live)
	if w.opt.DryRun {
		w.st.Dead.Add(dead)
		w.st.Room += deadRoom
		w.st.Waits += p.waiting()
		return nil
	}
	body := ft.Start() - segment.FileHeaderSize
	idle := body - liveRoom
	switch {
	case live.Records == 0:
		if dead.Records == 0 && n == s.appender.tails.Last() {
			return nil
		}
	case idle > 0 && float64(idle) > w.opt.MaxUnused*float64(body):
		p.move(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
	case dead.Records == 0 && !p.r.LacksHoles(p.recs, ft):
		w.st.Waits += p.waiting()
		return nil
	}
	waits := p.waiting() // what was moved waits where it is now
	err = p.reshape()
	if err == nil {
		w.st.Waits += waits
	}
	return err
}

// young counts what would go of a segment that is left alone.
func (p *part) young() error {
	w, dry := p.sweep, *p.sweep
	dry.opt.DryRun = true
	p.sweep = &dry
	err := p.judge()
	_, room := p.tally(false)
	w.st.Young++
	w.st.Waits += room + p.waiting()
	return err
}

// tails looks at segments that were sealed since the sweep began, and counts what of those that are being
// written would go once they are sealed.
func (w *sweep) tails(ctx context.Context, began []uint32) {
	if now, err := w.s.appender.tails.Sealed(); err == nil && w.opt.Grace > 0 {
		now = slices.DeleteFunc(now, func(n uint32) bool { return slices.Contains(began, n) })
		w.st.Segments += len(now)
		_, _ = w.segments(ctx, now)
	}
	tails, _ := w.s.appender.tails.All()
	for _, t := range tails {
		p := &part{sweep: w, n: t.Number(), recs: t.Records()}
		w.st.Segments += min(len(p.recs), 1)
		switch {
		case len(p.recs) == 0:
		case w.opt.Grace > 0:
			_ = p.young() // it is counted as far as can be told
		case p.judge() == nil:
			live, _ := p.tally(true)
			dead, room := p.tally(false)
			w.st.Live.Add(live)
			w.st.Dead.Add(dead)
			w.st.Room += room
		}
	}
}
