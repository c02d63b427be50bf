package idle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

const (
	// restBefore is how long a file was left alone before work of the background begins: files that live
	// shortly or are written again and again cost nothing.
	restBefore = 10 * time.Second
	// MaxResting bounds the files that are remembered one by one; when there are more the tree is walked.
	MaxResting = 1024
	// walkPause is the least time between two walks, and walkShare bounds their share of all time.
	walkPause = time.Minute
	walkShare = 20
)

// workerLock is Worker.mu: a file is pinned and unpinned under it.
type workerLock struct{}

func (workerLock) Rank() (int, string) { return locks.Volume + 800, "idle.Worker.mu" }

// Worker does what can wait to files that were left alone for a while, one after the other, in a goroutine of
// its own.
type Worker struct {
	ready  <-chan struct{} // closed when the files that were there at the start are known
	walk   func(ctx context.Context, f func(*content.File) error) error
	now    func() time.Time
	busy   func() bool
	report func(level slog.Level, msg string, args ...any)
	// for how long a file was left alone before; negative: nothing is done
	After   time.Duration
	One     func(context.Context, *content.File) // sees to a file
	warning string                               // what a failure means

	mu      locks.Mutex[workerLock]
	waiting map[*content.File]time.Time // since when; at most MaxResting, each with a reference
	at      int                         // that are being seen to
	more    bool                        // others wait, too
	since   time.Time                   // of the last that was added
	told    bool                        // of a failure
	walked  time.Time
	took    time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	end    sync.WaitGroup
}

// Options are what work on files at rest needs.
type Options struct {
	// for how long a file was left alone before; 0: a default; negative: nothing is done
	After   time.Duration
	Warning string // what a failure means
	// closed when the files that were there at the start are known
	Ready  <-chan struct{}
	Walk   func(ctx context.Context, f func(*content.File) error) error // calls f with every file
	Now    func() time.Time
	Busy   func() bool // a pass over all files runs, for which somebody waits; nil: none ever does
	Report func(level slog.Level, msg string, args ...any)
}

func NewWorker(o Options) *Worker {
	if o.After == 0 {
		o.After = restBefore
	}
	if o.Busy == nil {
		o.Busy = func() bool { return false }
	}
	r := &Worker{
		After: o.After, warning: o.Warning, ready: o.Ready, walk: o.Walk, now: o.Now, busy: o.Busy,
		report:  o.Report,
		waiting: map[*content.File]time.Time{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *Worker) Start() {
	if r.After < 0 {
		return
	}
	r.end.Go(func() {
		select { // a file that the survey has not seen may have to be packed
		case <-r.ready:
		case <-r.ctx.Done():
			return
		}
		tick := time.NewTicker(max(r.After/10, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-r.ctx.Done():
				return
			case <-tick.C:
				r.Turn(r.After)
			}
		}
	})
}

func (r *Worker) Stop() {
	r.cancel()
	r.end.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.waiting {
		delete(r.waiting, f)
		f.Unpin()
	}
}

// Add notes a file that was touched just now.
func (r *Worker) Add(f *content.File) {
	if r.After < 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Dead() { // Forget comes, or came
		return
	}
	r.since = r.now()
	_, known := r.waiting[f]
	if !known && len(r.waiting) == MaxResting {
		r.more = true
		return
	}
	if !known {
		f.Pin()
	}
	r.waiting[f] = r.since
}

// Forget lets go of a file whose last name went. The caller has a reference.
func (r *Worker) Forget(f *content.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.waiting[f]; ok {
		delete(r.waiting, f)
		f.Unpin()
	}
}

// Pending is how many files wait, and whether there may be others.
func (r *Worker) Pending() (files int, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) + r.at, r.more
}

// LookAtAll has the next turn look at all files, as when there are too many to remember.
func (r *Worker) LookAtAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.waiting {
		delete(r.waiting, f)
		f.Unpin()
	}
	r.more = true
}

// errBusy ends a walk for another turn.
var errBusy = errors.New("a pass over all files runs")

// Turn sees to the files that have rested for so long, and to all when there were too many to remember. While
// a pass runs it leaves them for another turn.
func (r *Worker) Turn(after time.Duration) {
	if r.busy() {
		return
	}
	now := r.now()
	var rested []*content.File
	r.mu.Lock()
	for f, since := range r.waiting {
		if now.Sub(since) >= after {
			rested = append(rested, f)
		}
	}
	walk := r.more && len(r.waiting) == len(rested) && now.Sub(r.since) >= after &&
		(r.walked.IsZero() || now.Sub(r.walked) >= max(min(walkPause, 6*after), walkShare*r.took))
	if walk {
		r.more = false
	}
	r.mu.Unlock()
	for _, f := range rested {
		if r.ctx.Err() != nil || r.busy() {
			return // Stop unpins them
		}
		if !r.takes(f, now, after) {
			continue
		}
		r.One(r.ctx, f)
		f.Unpin()
		r.mu.Lock()
		r.at--
		r.mu.Unlock()
	}
	if walk {
		err := r.walk(r.ctx, func(f *content.File) error {
			if r.busy() {
				return errBusy
			}
			r.One(r.ctx, f)
			return r.ctx.Err()
		})
		r.mu.Lock()
		if err == errBusy {
			r.more = true
			err = nil
		}
		r.walked = r.now()
		r.took = r.walked.Sub(now)
		r.mu.Unlock()
		r.Failed(err)
	}
}

// takes takes a file that had rested for so long by now, with its pin, unless it was touched or removed.
func (r *Worker) takes(f *content.File, now time.Time, after time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, waits := r.waiting[f]
	if !waits || now.Sub(since) < after {
		return false
	}
	delete(r.waiting, f)
	r.at++
	return true
}

// Failed tells of the first failure.
func (r *Worker) Failed(err error) {
	if err == nil || r.ctx.Err() != nil || errors.Is(err, unix.ENOENT) {
		return
	}
	r.mu.Lock()
	told := r.told
	r.told = true
	r.mu.Unlock()
	if !told {
		r.report(slog.LevelWarn, r.warning, "reason", err)
	}
}
