package queue

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// backlog is what waits to be packed or is being packed, and the bound on it. A program that closes a file that it has written
// waits until the bound holds, so that writers do not fill the disk faster than packing makes it smaller.
//
// Nobody waits for what makes no progress: a file that failed or is mapped for writing is put off and is not in here,
// and a packing that stands still is not waited for longer than patience. So a close always ends.
//
// All is guarded by packer.mu but passed.
type backlog struct {
	max     int64                      // bytes; negative: no bound
	queued  map[*content.File]unpacked // the files in the queue
	busy    map[*content.File]unpacked // those with a group
	bytes   int64                      // sum of both
	waiting int                        // closes that wait

	patience time.Duration
	passed   atomic.Int64 // bytes that packing has read
}

// unpacked is what waits of a file, and since when.
type unpacked struct {
	bytes int64
	since time.Time
}

// standstill is how long a close waits for a packing that reads nothing.
const standstill = 20 * time.Second

func newBacklog(max int64) backlog {
	return backlog{max: max, queued: map[*content.File]unpacked{}, busy: map[*content.File]unpacked{}, patience: standstill}
}

// add counts a file in. One that waits already has waited since then.
func (b *backlog) add(f *content.File, size int64, now time.Time) {
	u, waits := b.queued[f]
	if !waits {
		u.since = now
	}
	b.bytes += size - u.bytes
	u.bytes = size
	b.queued[f] = u
}

func (b *backlog) begin(f *content.File) {
	b.bytes -= b.busy[f].bytes
	b.busy[f] = b.queued[f]
	delete(b.queued, f)
}

func (b *backlog) end(f *content.File) {
	b.bytes -= b.busy[f].bytes
	delete(b.busy, f)
}

// full reports whether own bytes more are too many. A file larger than the bound has only to wait until it is alone.
func (b *backlog) full(own int64) bool { return b.max >= 0 && b.bytes > 0 && b.bytes+own > b.max }

// MakeRoom waits until own bytes more keep to the bound.
func (q *Queue) MakeRoom(own int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.backlog
	if !b.full(own) {
		return
	}
	b.waiting++
	defer func() { b.waiting-- }()
	defer q.o.Throttle.Wait()()
	last, since := b.passed.Load(), time.Now()
	tick := time.AfterFunc(b.patience/4, func() {})
	defer tick.Stop()
	for b.full(own) && !q.stopping {
		if now := b.passed.Load(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) > b.patience {
			q.o.Report(slog.LevelWarn, "packing stands still; a close waits for it no longer", "waiting bytes", b.bytes)
			return
		}
		tick.Stop()
		tick = time.AfterFunc(b.patience/4, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.cond.Broadcast()
		})
		q.cond.Wait()
	}
}

// DefaultMaxUnpacked is a quarter of what is free on the disk of dir.
func DefaultMaxUnpacked(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * st.Bsize / 4
}

// guarded reads a file for packing as long as the disk is not about to be full: its last bytes are for those who write
// files, and for the little that has to be written to free some.
type guarded struct {
	q    *Queue
	r    io.ReaderAt
	left atomic.Int64 // to be read before the next look
}

func (g *guarded) ReadAt(p []byte, off int64) (int, error) {
	if g.left.Add(-int64(len(p))) < 0 {
		step, err := g.q.o.Reserve.check()
		if err != nil {
			return 0, err
		}
		g.left.Store(step)
	}
	n, err := g.r.ReadAt(p, off)
	g.q.backlog.passed.Add(int64(n))
	return n, err
}

// patientFor is how long a file waits for processors that others leave before it presses.
const patientFor = 10 * time.Minute

// presses reports whether packing has to go on though others want the processors: a file has waited for long, or half as much
// waits as has closes wait.
func (b *backlog) presses(now time.Time) bool {
	if b.max >= 0 && b.bytes > b.max/2 {
		return true
	}
	since := b.since()
	return !since.IsZero() && now.Sub(since) >= patientFor
}

// since is when the file was closed that waits longest; zero when none does.
func (b *backlog) since() (oldest time.Time) {
	for _, files := range []map[*content.File]unpacked{b.queued, b.busy} {
		for _, u := range files {
			if oldest.IsZero() || u.since.Before(oldest) {
				oldest = u.since
			}
		}
	}
	return oldest
}

// Presses is that of its backlog, and whether the disk is short: what is packed can be evicted.
func (q *Queue) Presses() bool {
	q.mu.Lock()
	b := q.backlog.presses(q.o.Now())
	q.mu.Unlock()
	return b || q.o.Reserve.Short()
}
