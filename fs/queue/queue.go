// Package queue packs files in the background. It holds the files that wait to be packed, bounds their bytes,
// and has the workers that pack them in groups.
//
// # The files that wait
//
// A file waits from the close of its last writer on (Queue.Add), or from a start that finds it unpacked, or
// since its folder came (Queue.Found). It waits once, however often it is written meanwhile.
//
//	    last close           its turn            packed, or found to stay plain
//	plain ──────────▶ Queued ────────▶ Packing ───────────────────────────────▶ out
//	                    ▲                 │
//	                    │ later, or at    │ it failed, is mapped for writing,
//	                    │ once by PackAll │ or its sidecar is not whole yet
//	                    └──── Delayed ◀───┘
//
// A file that is written while it is packed waits for another turn as well: what was read of it is not
// published. The tries of a file that failed are a second apart, then two, four, up to a minute. Those of the
// other delayed files are half a second apart.
//
// # Order
//
// Files are packed in the order in which their last writers closed them. Those that are found come behind
// what is queued once all of them are found (Settle), or 131,072, and a worker has put them in order: the
// oldest first, and what others may be made of ahead of these (fs/order). What programs close meanwhile is
// packed meanwhile. There are exceptions.
//
// A file is passed over while what may be the version before it is not in the store yet: a file that was
// closed earlier and has a lower number in its path (index/runs). Without that version it would find nothing
// to be stored against. A file that was closed later is not waited for, so each has its turn. The paths are
// those of the moment in which a group is made, because programs rename what they have saved.
//
// Of a family of models that were found, one is packed at a time, in order. Those that are alike would wait
// for each other anyway (fs/bases), in whatever order they came.
//
// Of the files of a step, what others may be made of comes first: single precision, then what its name says
// is an average, then half precision and quantised files (order.Model.Turn). DeepSpeed saves a model in half
// precision before the optimizer that has its master copies. So what may be made of another file lingers: for
// two seconds after its close, and for half a minute while programs write files of its step. Not so while a
// PackAll or a close waits, or half of what may wait does.
//
// # Groups
//
// A group is packed into one batch of the store, so that small checkpoints share an fsync. Two groups are
// packed at the same time: one hashes while the other waits for the disk. Where there are more than eight
// processors there is a group for four of them: of small files, what one group does at a time keeps no more
// busy. Each takes its share of what is queued, 64 files at most. A worker begins with a group when the
// throttle lets it (fs/throttle).
//
// Of each file, content.File.BeginPack opens the bytes, fs/bases finds stored manifests with earlier versions
// of its tensors, and fs/pack puts its chunks and its manifest into the batch. Then the batch is committed,
// which makes them durable. Only then Packing.Publish writes the manifest's hash into the file's record,
// unless the file was changed since BeginPack. An error concerns one file; one of the commit concerns the
// group.
//
// # When there is little room
//
// Packing reads as long as more is free on the disk than the Reserve, and fails with ENOSPC after that. The
// rest is for the programs that write files. A file takes as much room as it has bytes until its local copy
// is evicted, if nothing is known of it. So of files that need more than there is, one is packed at a time:
//
//	before    the local copies of packed files are evicted, until it fits
//	fails     what the attempt wrote is taken back (store.Batch.TakeBack), also from a group; what cannot be,
//	          and what a crash left or files that were removed, a prune of the whole store gives back
//	          (Options.Reclaim): in a PackAll at once, else every ten minutes
//	after     its own local copy is evicted if nobody has it open: the segments and its record are written
//
// A file that failed so is not tried again before there is more room than there was. A PackAll tries it once
// more, and again whenever another file was packed since, or another attempt gave its room back. So a PackAll
// packs all that fits, in whatever order it came.
//
// # When a close waits
//
// MakeRoom delays a writer's close(2) while the bytes that wait exceed Options.MaxUnpacked, so that programs
// do not fill the disk faster than packing makes it smaller, or the files Options.MaxFiles, since each that
// waits takes memory. A file that is larger than the bound waits until
// it is alone, and then until its chunks are in the store (packAhead): it can be packed only after its close,
// which finds them there. A file that grows while it waits counts with its size at its last close. No close
// waits for what makes no progress: a delayed file does not count, a packing that has read nothing for 20
// seconds is not waited for, and one that fails ends the wait. So every close ends.
//
// When half of the bound waits, or a file has waited for ten minutes, or the disk is nearly full, packing
// goes on though other programs want the processors (Presses).
//
// # When a file is removed
//
// A file that lost its last name leaves all of this at once (Forget): its packing is cancelled, nothing here
// pins it any more, and it comes into nothing again. So its room is free as soon as no program has it open,
// whatever the processors do. Then Freed has the files looked at again for which there was no room.
//
// # What is durable
//
// A published record is not synced: a power cut that takes it back costs nothing but packing the file again.
// MakeDurable syncs the records that were published, and the bytes of the files that were found to stay plain
// or are put off, for the command sync. Up to 64 plain files are synced one by one; when there are more, or
// the sync before failed, the whole filesystem.
//
// The kernel tells of a write that the disk did not take once, and later syncs succeed. So a file of which a
// sync failed is one of Losses until it was written again from nothing and synced, or removed. Its record
// says so too (content/durable.go): the survey of the next start notes it again (FoundLost).
//
// State: Queue, under mu, which is taken with a file's mutex held. No file's mutex is taken with mu held.
// Each file that waits, and each plain file to be synced, is pinned.
package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/store"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
	"ckptfs/fs/throttle"
	"ckptfs/index/runs"
)

// The locks of this package, in the order in which they may be taken. The mutexes of files come between.
type (
	syncingLock struct{} // Queue.syncing
	queueLock   struct{} // Queue.mu; files are pinned under it, and the throttle's mutex is taken
)

func (syncingLock) Rank() (int, string) { return locks.Volume + 6, "Queue.syncing" }
func (queueLock) Rank() (int, string)   { return locks.Volume + 800, "Queue.mu" }

// Queue is the files that wait to be packed, and the workers that pack them.
type Queue struct {
	o      Options
	groups int // that are packed at the same time

	syncing locks.Mutex[syncingLock] // held by the one MakeDurable that is under way

	mu      locks.Mutex[queueLock]
	cond    sync.Cond // anything below changed
	queued  []*content.File
	waits   map[*content.File]bool          // those queued, and those of packing whose packing has not begun
	packing map[*content.File]*turn         // with a group, or packed ahead; pinned
	ahead   map[*content.File]runs.Position // those of packing that are not in the store yet
	changes int                             // of queued and of ahead
	alone   bool                            // the only file that is packed: there is little room
	swept   time.Time                       // when Reclaim was called last
	delayed map[*content.File]*delay
	crowded map[*content.File]crowd

	positions positions
	backlog   backlog
	found     found
	closed    closedFile // that packAhead had last
	unsynced  unsynced
	lost      lost
	done      progress // since the start
	stopping  bool

	workers sync.WaitGroup
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
}

// Options are what packing needs.
type Options struct {
	MaxUnpacked int64 // bytes that may wait before closes wait; negative: no bound
	MaxFiles    int   // likewise, since each takes memory; 0: no bound
	Store       *store.Store
	Pack        *pack.Packer
	Bases       *bases.Finder      // nil: nothing is stored against other files
	Throttle    *throttle.Throttle // nil: packing does not ask who else wants the processors
	Reserve     *Reserve
	Now         func() time.Time
	Report      func(level slog.Level, msg string, args ...any)
	Count       *content.Counters
	// Keep is given the manifest of each file as soon as its chunks are in a batch. Files after it ask for it
	// before the batch is committed, and lineage soon after.
	Keep   func(*pack.Result)
	Stored func(*content.File) // called when a file was packed
	Failed func()              // called when one could not be packed: the disk may be full
	// Evict evicts local copies of packed files that nobody uses, until enough is true. May be nil.
	Evict func(enough func() bool)
	// Writing reports whether programs are writing files of the step at a path. May be nil.
	Writing func(step string) bool
	// Reclaim gives back what the segments hold that no file needs, and returns how many bytes. It waits for
	// one that is under way. May be nil.
	Reclaim func(context.Context) (freed int64, err error)
}

// New makes an empty queue. Files may be added before Start.
func New(o Options) *Queue {
	q := &Queue{
		o:         o,
		groups:    max(2, cas.Processors/4),
		waits:     map[*content.File]bool{},
		packing:   map[*content.File]*turn{},
		ahead:     map[*content.File]runs.Position{},
		delayed:   map[*content.File]*delay{},
		crowded:   map[*content.File]crowd{},
		backlog:   newBacklog(o.MaxUnpacked, o.MaxFiles),
		unsynced:  unsynced{plain: map[*content.File]bool{}},
		lost:      lost{files: map[*content.File]*loss{}},
		positions: newPositions(),
		found:     newFound(),
	}
	q.cond.L = &q.mu
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Start begins to pack.
func (q *Queue) Start() {
	for range q.groups {
		q.workers.Add(1)
		go q.work()
	}
}

// Stop ends the packing: it returns once the files that are being packed are packed or abandoned. All others
// stay plain; no file waits from now on.
func (q *Queue) Stop() {
	q.cancel()
	q.mu.Lock()
	q.stopping = true
	q.changedLocked()
	q.mu.Unlock()
	q.workers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for f, d := range q.delayed {
		d.timer.Stop()
		delete(q.delayed, f)
		f.Unpin()
	}
	for _, f := range q.queued {
		f.Unpin()
	}
	for f := range q.found.files {
		delete(q.found.files, f)
		f.Unpin()
	}
	for f := range q.crowded {
		q.crowdOutLocked(f)
	}
	q.queued = nil
	clear(q.waits)
	clear(q.positions.places)
	q.unsynced.forgetPlain()
	q.lost.more += len(q.lost.files)
	for f := range q.lost.files {
		q.forgetLostLocked(f)
	}
}

// Add queues a file that changed and has no writer, unless it waits already. f's mutex is held.
func (q *Queue) Add(f *content.File) {
	enter(q, f, func(int64) { q.queued = append(q.queued, f) })
}

// enter has a file wait, and calls into, with mu held and the file's size, to say where; unless it waits
// already. f's mutex is held.
func enter(q *Queue, f *content.File, into func(size int64)) {
	if !f.StateLocked().Dirty || waits(q, f) { // q.waits gains a file with the file's mutex held only
		return
	}
	size := f.UnpackedLocked()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping || f.Dead() { // Forget comes, or came
		return
	}
	q.waits[f] = true
	delete(q.positions.places, f)
	f.Pin()
	q.backlog.add(f, size, q.o.Now())
	into(size)
	q.changedLocked()
}

// waits reports whether a file has its turn still before it.
func waits(q *Queue, f *content.File) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits[f]
}

// changedLocked wakes all that wait for a change of the queue.
func (q *Queue) changedLocked() {
	q.mu.AssertHeld()
	q.changes++
	q.cond.Broadcast()
}

// wake has all that wait for a change look again: their time is over, say.
func (q *Queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cond.Broadcast()
}

// restsLocked reports whether no file is packed or queued. None that lost its name is kept for packing then.
func (q *Queue) restsLocked() bool {
	q.mu.AssertHeld()
	return len(q.queued) == 0 && len(q.packing) == 0 && len(q.found.files) == 0 && q.backlog.pinned == 0
}

// Rests waits until no file is packed or queued; the error is that of ctx.
func (q *Queue) Rests(ctx context.Context) error {
	defer context.AfterFunc(ctx, q.wake)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.restsLocked() && ctx.Err() == nil {
		q.cond.Wait()
	}
	return ctx.Err()
}
