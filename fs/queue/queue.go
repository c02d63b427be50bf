package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ckptfs/cas/store"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
	"ckptfs/fs/throttle"
	"ckptfs/index/runs"
)

const (
	// A group of files is packed into one batch, so that small checkpoints share an fsync.
	groupFiles = 64
	// packGroups are packed at the same time: one hashes while the other waits for the disk.
	packGroups = 2
	// maxAhead is how many files at the queue's head are looked at for a group.
	maxAhead = 2 * groupFiles

	// maxPlain bounds the files that a Sync makes durable one by one; when there are more it syncs the filesystem.
	maxPlain = 64

	mappedRetry = 500 * time.Millisecond // a writable mapping: look again
)

// Queue packs files in the background, in the order in which their last writers closed them. Some are packed at the same time, but none
// while what may be the version before it, a file closed earlier with a lower number in its path, is not in the store yet: it would find
// nothing to be stored against.
//
// A file is in the queue, with a group (busy), or put off (delayed) after a failure or while it is mapped for writing;
// each holds a reference to the node.
type Queue struct {
	o Options

	mu        sync.Mutex
	cond      sync.Cond // anything below changed
	queue     []*content.File
	waits     map[*content.File]bool // those of the queue, and of busy until the packing begins
	busy      map[*content.File]bool
	ahead     map[*content.File]runs.Position // those of busy that are not in the store yet
	changes   int                             // of the queue and of ahead
	delayed   map[*content.File]*delay
	plain     map[*content.File]bool // files that stay as they are, not known to be durable, at most maxPlain; each with a reference
	morePlain bool                   // others too
	published bool                   // records that name manifests are not known to be durable
	done      progress               // since the start
	backlog   backlog
	stopping  bool

	workers sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

type progress struct {
	files int
	bytes int64
}

type delay struct {
	timer    *time.Timer
	err      error // nil: mapped for writing
	since    time.Time
	attempts int
}

// Options are what packing needs.
type Options struct {
	MaxUnpacked int64 // bytes that may wait to be packed before closes wait; negative: no bound
	Store       *store.Store
	Pack        *pack.Packer
	Bases       *bases.Finder      // nil: nothing is stored against other files
	Throttle    *throttle.Throttle // nil: packing does not ask who else wants the processors
	Reserve     *Reserve
	Now         func() time.Time
	Report      func(level slog.Level, msg string, args ...any)
	Count       *content.Counters
	Stored      func(*content.File) // a file was packed
	Failed      func()              // one could not be packed: the disk may be full
}

func New(o Options) *Queue {
	q := &Queue{
		o:       o,
		backlog: newBacklog(o.MaxUnpacked),
		waits:   map[*content.File]bool{},
		busy:    map[*content.File]bool{},
		ahead:   map[*content.File]runs.Position{},
		delayed: map[*content.File]*delay{},
		plain:   map[*content.File]bool{},
	}
	q.cond.L = &q.mu
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

func (q *Queue) Start() {
	for range packGroups {
		q.workers.Add(1)
		go q.work()
	}
}

// Stop ends the packing after the files that are being packed are abandoned or done. Those in the queue stay plain.
func (q *Queue) Stop() {
	q.cancel()
	q.mu.Lock()
	q.stopping = true
	q.changed()
	q.mu.Unlock()
	q.workers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for f, d := range q.delayed {
		d.timer.Stop()
		delete(q.delayed, f)
		f.Unpin()
	}
	for _, f := range q.queue {
		f.Unpin()
	}
	q.queue = nil
	clear(q.waits)
	q.forgetPlain()
}

// Stage says how far a file is that is not packed yet.
type Stage int

const (
	Delayed Stage = iota // it could not be packed, or is mapped for writing: it is tried again
	Packing              // it is with a group
	Queued
)

// Pending is the files that are not packed yet. Each is pinned: the caller unpins it.
func (q *Queue) Pending() map[*content.File]Stage {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[*content.File]Stage, len(q.busy)+len(q.queue)+len(q.delayed))
	for f := range q.delayed {
		all[f] = Delayed
	}
	for f := range q.busy {
		all[f] = Packing
	}
	for _, f := range q.queue {
		all[f] = Queued
	}
	for f := range all {
		f.Pin()
	}
	return all
}

// Status is what a queue says of itself.
type Status struct {
	MaxUnpacked   int64  // bytes that may wait to be packed before closes wait; negative: no bound
	WaitingCloses int    // closes that wait
	Waits         string // why packing waits though there are files; "": it does not
	Unsynced      bool   // MakeDurable has something to do
}

// Status is what the queue is doing now.
func (q *Queue) Status() Status {
	q.mu.Lock()
	s := Status{MaxUnpacked: q.backlog.max, WaitingCloses: q.backlog.waiting, Unsynced: q.unsyncedLocked()}
	since := q.backlog.since()
	q.mu.Unlock()
	if !since.IsZero() {
		s.Waits = q.o.Throttle.Why(since.Add(patientFor))
	}
	return s
}

// Add queues a file. f.mu is held.
func (q *Queue) Add(f *content.File) {
	if !f.StateLocked().Dirty || q.has(f) { // q.waits gains files under their mu only
		return
	}
	size := f.UnpackedLocked()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits[f] = true
	f.Pin()
	q.backlog.add(f, size, q.o.Now())
	q.queue = append(q.queue, f)
	q.changed()
}

// has reports whether a file has its turn still before it.
func (q *Queue) has(f *content.File) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits[f]
}

// taken notes that the packing of a file begins: what is written from now on wants another turn.
func (q *Queue) taken(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waits, f)
}

// changed wakes whoever waits for a change. mu is held.
func (q *Queue) changed() {
	q.changes++
	q.cond.Broadcast()
}

func (q *Queue) work() {
	defer q.workers.Done()
	for {
		if !q.await() {
			return
		}
		group := q.take()
		if group == nil {
			return
		}
		q.packGroup(q.ctx, group)
	}
}

// await waits for files and then for the turn to begin with some; false when the packer stops.
func (q *Queue) await() bool {
	q.mu.Lock()
	for len(q.queue) == 0 && !q.stopping {
		q.cond.Wait()
	}
	q.mu.Unlock()
	return q.o.Throttle.Pass(q.ctx) == nil
}

// take waits for files and returns some of them; nil when the packer stops.
func (q *Queue) take() []*content.File {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.stopping {
		seen, files := q.changes, slices.Clone(q.queue[:min(len(q.queue), maxAhead)])
		q.mu.Unlock()
		positions := make(map[*content.File]runs.Position, len(files))
		for _, f := range files {
			positions[f] = runs.PositionOf(f.Path()) // now: programs rename what they have saved
		}
		q.mu.Lock()
		if group := q.next(positions); len(group) > 0 {
			return group
		}
		if q.changes == seen && !q.stopping {
			q.cond.Wait()
		}
	}
	return nil
}

// Rests waits until nothing is packed or waits to be.
func (q *Queue) Rests(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for (len(q.queue) > 0 || len(q.busy) > 0) && ctx.Err() == nil {
		q.cond.Wait()
	}
	return ctx.Err()
}

// next moves files from the queue to busy: half of what waits, so that the other group gets something too, of those whose positions are
// known. A file that is busy, because it was written again meanwhile, waits for its next turn, and so does one for the version before it; who
// was closed later is not waited for, so that each has its turn. mu is held.
func (q *Queue) next(positions map[*content.File]runs.Position) []*content.File {
	most := min(groupFiles, (len(q.queue)+packGroups-1)/packGroups)
	var group []*content.File
	before := runs.Upcoming{}
	for _, at := range q.ahead {
		before.Add(at)
	}
	wait := q.queue[:0]
	for _, f := range q.queue {
		at, known := positions[f]
		if len(group) == most || !known {
			wait = append(wait, f)
			continue
		}
		if q.busy[f] || before.HasBefore(at) {
			before.Add(at)
			wait = append(wait, f)
			continue
		}
		q.busy[f] = true
		q.ahead[f] = at
		q.backlog.begin(f)
		group = append(group, f)
	}
	clear(q.queue[len(wait):])
	q.queue = wait
	return group
}

// put notes that a file with a group is in the store, as far as packing others is concerned.
func (q *Queue) put(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.ahead, f)
	if len(q.ahead) == 0 {
		q.changed()
	}
}

// finish ends a file's turn. With again set it is put off.
func (q *Queue) finish(f *content.File, bytes int64, again bool, err error) {
	q.mu.Lock()
	delete(q.busy, f)
	delete(q.ahead, f)
	q.backlog.end(f)
	q.done.files++
	q.done.bytes += bytes
	if again && !q.stopping {
		q.putOff(f, err)
		q.changed()
		q.mu.Unlock()
		return
	}
	if d := q.delayed[f]; d != nil {
		d.timer.Stop()
		delete(q.delayed, f)
		defer f.Unpin()
	}
	q.changed()
	q.mu.Unlock()
	f.Unpin()
}

// putOff keeps the turn's reference in delayed. mu is held.
func (q *Queue) putOff(f *content.File, err error) {
	d := q.delayed[f]
	if d == nil {
		d = &delay{since: q.o.Now()}
		q.delayed[f] = d
	} else {
		defer f.Unpin() // it has one already
	}
	wait := mappedRetry
	if d.err = err; err != nil {
		wait = throttle.Backoff(d.attempts)
		d.attempts++
	}
	d.timer = time.AfterFunc(wait, func() { q.retry(f) })
}

// retry queues a file that was put off.
func (q *Queue) retry(f *content.File) {
	f.Lock()
	defer f.Unlock()
	if is := f.StateLocked(); is.Writers > 0 || !is.Dirty {
		// Its last close will queue it, or there is nothing to do any more.
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.delayed[f] != nil {
			delete(q.delayed, f)
			defer f.Unpin()
		}
		return
	}
	q.Add(f)
}

// retryAll queues everything that was put off, now.
func (q *Queue) retryAll() {
	q.mu.Lock()
	files := make([]*content.File, 0, len(q.delayed))
	for f, d := range q.delayed {
		if d.timer.Stop() {
			files = append(files, f)
		}
	}
	q.mu.Unlock()
	for _, f := range files {
		q.retry(f)
	}
}

// NotePacked has MakeDurable make the record of a packed file durable.
func (q *Queue) NotePacked() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.published = true
}

// NotePlain has MakeDurable make the bytes of a file durable that stays plain.
func (q *Queue) NotePlain(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.morePlain || q.plain[f]:
	case len(q.plain) == maxPlain:
		q.morePlain = true
		q.forgetPlain()
	default:
		f.Pin()
		q.plain[f] = true
	}
}

// Forget lets go of a file whose last name went: nothing of it has to be made durable. The caller has a reference.
func (q *Queue) Forget(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.plain[f] {
		delete(q.plain, f)
		f.Unpin()
	}
}

// forgetPlain gives the references back. mu is held.
func (q *Queue) forgetPlain() {
	for f := range q.plain {
		delete(q.plain, f)
		f.Unpin()
	}
}
