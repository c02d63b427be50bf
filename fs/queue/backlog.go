package queue

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

const (
	// standstill is how long a close waits for a packing that reads nothing.
	standstill = 20 * time.Second
	// patientFor is how long a file waits for processors that other programs leave, before it presses.
	patientFor = 10 * time.Minute
)

// backlog counts the files that are queued or packed, and bounds their bytes and their number, since each is
// kept in memory. It is guarded by Queue.mu, but for read.
type backlog struct {
	max     int64 // bytes; negative: no bound
	most    int   // files; 0: no bound
	queued  map[*content.File]unpacked
	packing map[*content.File]unpacked
	bytes   int64 // sum of both
	waiting int   // closes that wait
	pinned  int   // files that were packed, and have their pin still

	// order has every file that waits by when it was queued first, the oldest in front, and some that do so
	// no longer.
	order []queuedAt

	patience time.Duration
	read     atomic.Int64 // bytes that packing has read
}

// unpacked is the size of a file that is not packed, and when it was queued first.
type unpacked struct {
	bytes int64
	since time.Time
}

// queuedAt is when a file was queued first.
type queuedAt struct {
	f     *content.File
	since time.Time
}

func newBacklog(max int64, most int) backlog {
	return backlog{
		max: max, most: most, queued: map[*content.File]unpacked{}, packing: map[*content.File]unpacked{},
		patience: standstill,
	}
}

// add counts a file that is queued. One that is queued already gets its new size, and has waited since then.
func (b *backlog) add(f *content.File, size int64, now time.Time) {
	u, waits := b.queued[f]
	if !waits {
		u.since = now
		b.note(f, now)
	}
	b.bytes += size - u.bytes
	u.bytes = size
	b.queued[f] = u
}

// note puts a file into the order. Those that wait no longer go once they are most of it.
func (b *backlog) note(f *content.File, now time.Time) {
	if len(b.order) > 2*b.files(nil)+64 {
		b.order = slices.DeleteFunc(b.order, func(o queuedAt) bool { return !b.waits(o) })
	}
	b.order = append(b.order, queuedAt{f, now})
}

// waits reports whether a file waits since then.
func (b *backlog) waits(o queuedAt) bool {
	queued, is := b.queued[o.f]
	packing, packed := b.packing[o.f]
	return is && queued.since.Equal(o.since) || packed && packing.since.Equal(o.since)
}

// packed is the sum of the files that are packed.
func (b *backlog) packed() (sum int64) {
	for _, u := range b.packing {
		sum += u.bytes
	}
	return sum
}

// forget counts a file out that was removed.
func (b *backlog) forget(f *content.File) {
	b.bytes -= b.queued[f].bytes + b.packing[f].bytes
	delete(b.queued, f)
	delete(b.packing, f)
}

// begin counts a queued file as one that is packed.
func (b *backlog) begin(f *content.File) {
	b.bytes -= b.packing[f].bytes
	b.packing[f] = b.queued[f]
	delete(b.queued, f)
}

// end counts a file out that was packed.
func (b *backlog) end(f *content.File) {
	b.bytes -= b.packing[f].bytes
	delete(b.packing, f)
}

// grow gives a file its new size if it is queued.
func (b *backlog) grow(f *content.File, size int64) {
	if u, ok := b.queued[f]; ok {
		b.add(f, size, u.since)
	}
}

// files is how many files wait, f not among them.
func (b *backlog) files(f *content.File) int {
	n := len(b.queued) + len(b.packing)
	if _, ok := b.queued[f]; ok {
		n--
	}
	return n
}

// full reports whether f, or own bytes of it, are too many beside the other files. A file larger than the
// bound waits until it is alone.
func (b *backlog) full(f *content.File, own int64) bool {
	if b.most > 0 && b.files(f) >= b.most {
		return true
	}
	others := b.bytes - b.queued[f].bytes
	return b.max >= 0 && others > 0 && others+own > b.max
}

// since is when the file was queued that waits longest; zero when none does.
func (b *backlog) since() time.Time {
	for len(b.order) > 0 {
		if b.waits(b.order[0]) {
			return b.order[0].since
		}
		b.order[0] = queuedAt{}
		b.order = b.order[1:]
	}
	return time.Time{}
}

// presses reports whether a file has waited for long, or half as much waits as makes closes wait.
func (b *backlog) presses(now time.Time) bool {
	if b.max >= 0 && b.bytes > b.max/2 || b.most > 0 && b.files(nil) > b.most/2 {
		return true
	}
	since := b.since()
	return !since.IsZero() && now.Sub(since) >= patientFor
}

// Presses reports whether packing has to go on though other programs want the processors: too much waits, or
// for too long, or the disk is nearly full, which evicting packed files mends.
func (q *Queue) Presses() bool {
	q.mu.Lock()
	b := q.backlog.presses(q.o.Now())
	q.mu.Unlock()
	return b || q.o.Reserve.Short()
}

// MakeRoom waits until the own bytes of f, which is being closed, and those of the files that wait keep to
// Options.MaxUnpacked. It does not wait for a packing that stands still. Of a file that alone has more than
// these the chunks are in the store then, unless there was no room for them.
func (q *Queue) MakeRoom(f *content.File, own int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.backlog
	b.grow(f, own)
	large := b.max >= 0 && own > b.max
	if !large && !b.full(f, own) || f.Dead() {
		return
	}
	b.waiting++
	defer func() { b.waiting-- }()
	defer q.o.Throttle.Wait()()
	if q.waitLocked(f, own) && large && q.packing[f] == nil {
		q.packAheadLocked(f, own)
	}
}

// waitLocked waits for the other files, and reports whether there is room now. A file that is removed is not
// to be packed: its close waits no longer.
func (q *Queue) waitLocked(f *content.File, own int64) bool {
	q.mu.AssertHeld()
	b := &q.backlog
	last, since := b.read.Load(), q.o.Now()
	tick := time.AfterFunc(b.patience/4, q.wake)
	defer tick.Stop()
	for b.full(f, own) && !q.stopping && !f.Dead() {
		if now := b.read.Load(); now != last {
			last, since = now, q.o.Now()
		} else if q.o.Now().Sub(since) > b.patience {
			q.o.Report(slog.LevelWarn, "packing stands still; a close waits for it no longer; `ckptfs status` says why it waits",
				"waiting bytes", b.bytes)
			return false
		}
		tick.Reset(b.patience / 4)
		q.cond.Wait()
	}
	return !q.stopping && !f.Dead()
}

// DefaultMaxUnpacked is a quarter of what is free on the disk of dir, in bytes; negative if that is not
// known.
func DefaultMaxUnpacked(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * st.Bsize / 4
}
