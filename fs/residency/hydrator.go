package residency

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

const (
	// readsStill is for how long no program read packed files before one is hydrated: a loader opens a file
	// twice before it reads it, and the next shard when it has read one, and what is decoded beside it is
	// decoded twice.
	readsStill = 500 * time.Millisecond
	// maxHydrateWait is after how long a file is hydrated though packed files are read all the time.
	maxHydrateWait = time.Minute
	maxWaiting     = 256 // files
)

// Hydrator restores the local copies of packed files that proved hot, one after the other, while no program
// reads packed files.
type Hydrator struct {
	max    int64 // bytes: a file that is longer than half of it is not hydrated
	now    func() time.Time
	report func(level slog.Level, msg string, args ...any)
	count  *content.Counters
	still  time.Duration                        // readsStill; not above 0: nothing waits
	after  func(time.Duration) <-chan time.Time // time.After
	kick   chan struct{}
	quit   chan struct{}
	end    sync.WaitGroup

	mu    locks.Mutex[leafLock]
	queue []toHydrate
	in    map[*content.File]bool // those that wait, and the one that is being hydrated
	reads int64                  // how often packed files were read when that was looked at
	since time.Time              // when that had changed, or a file proved hot
}

// toHydrate is a file that proved hot, pinned.
type toHydrate struct {
	file  *content.File
	since time.Time
}

// NewHydrator makes the queue; Start has it worked off.
func NewHydrator(o Options) *Hydrator {
	still := o.Still
	if still == 0 {
		still = readsStill
	}
	return &Hydrator{max: o.Max, now: o.Now, report: o.Report, count: o.Count, still: still,
		after: time.After, in: map[*content.File]bool{}, kick: make(chan struct{}, 1),
		quit: make(chan struct{})}
}

// Start hydrates in the background, until Stop.
func (h *Hydrator) Start() {
	h.end.Add(1)
	go func() {
		defer h.end.Done()
		for h.wait() {
			f := h.next()
			if f == nil {
				continue
			}
			if _, err := f.Hydrate(); err != nil && !errors.Is(err, content.ErrEnding) {
				h.count.HydrateErrs.Add(1)
				h.report(slog.LevelWarn, "hydration failed; the file is read from the segments as before", "path", f.Path(), "reason", err)
			}
			content.DropPages(f)
			h.mu.Lock()
			delete(h.in, f)
			h.mu.Unlock()
			f.Unpin()
		}
	}()
}

// Stop ends what Start began, and abandons the files that wait.
func (h *Hydrator) Stop() {
	close(h.quit)
	h.end.Wait()
	for f := h.next(); f != nil; f = h.next() {
		f.Unpin()
	}
}

// wait returns when a file is to be hydrated; false: it is the end.
func (h *Hydrator) wait() bool {
	for {
		var again <-chan time.Time
		left, some := h.left()
		if some && left > 0 {
			again = h.after(left)
		}
		if !some || left > 0 {
			select {
			case <-h.quit:
				return false
			case <-h.kick:
			case <-again:
			}
			continue
		}
		select {
		case <-h.quit:
			return false
		default:
			return true
		}
	}
}

// left is for how long the file that came first has to wait at least, if there is one.
func (h *Hydrator) left() (time.Duration, bool) {
	quiet, now := h.quiet(), h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 || h.still <= 0 {
		return 0, len(h.queue) > 0
	}
	return min(quiet, h.queue[0].since.Add(maxHydrateWait).Sub(now)), true
}

// quiet is for how long no program is to read packed files yet; not above 0: they are not read.
func (h *Hydrator) quiet() time.Duration {
	reads := h.count.ReadPacked.Calls.Load() + h.count.Views.Calls.Load()
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if reads != h.reads {
		h.reads, h.since = reads, now
	}
	return h.since.Add(h.still).Sub(now)
}

// next takes the file that came first, with its reference; nil: none waits any more.
func (h *Hydrator) next() *content.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return nil
	}
	f := h.queue[0].file
	h.queue = slices.Delete(h.queue, 0, 1)
	return f
}

// Pending is how many files wait or are being hydrated.
func (h *Hydrator) Pending() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.in)
}

// Add asks for the bytes if they fit into the hot size. File.mu is held.
func (h *Hydrator) Add(f *content.File) {
	size := f.StateLocked().PackedSize
	if size > h.max/2 || f.Dead() {
		return
	}
	now := h.now()
	h.mu.Lock()
	h.since = now
	known := h.in[f]
	if !known && len(h.queue) < maxWaiting { // else there is enough to do; it will prove hot again
		f.Pin()
		h.in[f] = true
		h.queue = append(h.queue, toHydrate{f, now})
	}
	h.mu.Unlock()
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// Forget lets go of a file that waits: as long as anything holds its node, a file without a name keeps its
// chunks. The caller has a reference of its own.
func (h *Hydrator) Forget(f *content.File) {
	h.mu.Lock()
	i := slices.IndexFunc(h.queue, func(w toHydrate) bool { return w.file == f })
	if i >= 0 {
		h.queue = slices.Delete(h.queue, i, i+1)
		delete(h.in, f)
	}
	h.mu.Unlock()
	if i >= 0 {
		f.Unpin()
	}
}
