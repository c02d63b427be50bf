package volume

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
	groupBytes = 256 << 20
	// packGroups are packed at the same time: one hashes while the other waits for the disk.
	packGroups = 2
	// maxAhead is how many files at the queue's head are looked at for a group.
	maxAhead = 2 * groupFiles

	// maxPlain bounds the files that a Sync makes durable one by one; when there are more it syncs the filesystem.
	maxPlain = 64

	mappedRetry = 500 * time.Millisecond // a writable mapping: look again
)

// packer packs files in the background, in the order in which their last writers closed them. Some are packed at the same time, but none
// while what may be the version before it, a file closed earlier with a lower number in its path, is not in the store yet: it would find
// nothing to be stored against.
//
// A file is in the queue, with a group (busy), or put off (delayed) after a failure or while it is mapped for writing;
// each holds a reference to the node.
type packer struct {
	queueOptions

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

// queueOptions are what packing needs.
type queueOptions struct {
	MaxUnpacked int64 // bytes that may wait to be packed before closes wait; negative: no bound
	Store       *store.Store
	Pack        *pack.Packer
	Bases       *bases.Finder      // nil: nothing is stored against other files
	Throttle    *throttle.Throttle // nil: packing does not ask who else wants the processors
	Reserve     *reserve
	Now         func() time.Time
	Report      func(level slog.Level, msg string, args ...any)
	Count       *content.Counters
	Stored      func(*content.File) // a file was packed
	Failed      func()              // one could not be packed: the disk may be full
}

func newPacker(o queueOptions) *packer {
	p := &packer{
		queueOptions: o,
		backlog:      newBacklog(o.MaxUnpacked),
		waits:        map[*content.File]bool{},
		busy:         map[*content.File]bool{},
		ahead:        map[*content.File]runs.Position{},
		delayed:      map[*content.File]*delay{},
		plain:        map[*content.File]bool{},
	}
	p.cond.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *packer) start() {
	for range packGroups {
		p.workers.Add(1)
		go p.work()
	}
}

// stop ends the packing after the files that are being packed are abandoned or done. Those in the queue stay plain.
func (p *packer) stop() {
	p.cancel()
	p.mu.Lock()
	p.stopping = true
	p.changed()
	p.mu.Unlock()
	p.workers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for f, d := range p.delayed {
		d.timer.Stop()
		delete(p.delayed, f)
		f.Unpin()
	}
	for _, f := range p.queue {
		f.Unpin()
	}
	p.queue = nil
	clear(p.waits)
	p.forgetPlain()
}

// waiting says where a file is that is not packed yet.
type waiting int

const (
	putOff waiting = iota // delayed
	withGroup
	inQueue
)

// pending is the files that are not packed yet, each with a reference more. mu is held.
func (p *packer) pending() map[*content.File]waiting {
	all := make(map[*content.File]waiting, len(p.busy)+len(p.queue)+len(p.delayed))
	for f := range p.delayed {
		all[f] = putOff
	}
	for f := range p.busy {
		all[f] = withGroup
	}
	for _, f := range p.queue {
		all[f] = inQueue
	}
	for f := range all {
		f.Pin()
	}
	return all
}

// add queues a file. f.mu is held.
func (p *packer) add(f *content.File) {
	if !f.StateLocked().Dirty || p.has(f) { // p.waits gains files under their mu only
		return
	}
	size := f.UnpackedLocked()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits[f] = true
	f.Pin()
	p.backlog.add(f, size, p.Now())
	p.queue = append(p.queue, f)
	p.changed()
}

// has reports whether a file has its turn still before it.
func (p *packer) has(f *content.File) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits[f]
}

// taken notes that the packing of a file begins: what is written from now on wants another turn.
func (p *packer) taken(f *content.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, f)
}

// changed wakes whoever waits for a change. mu is held.
func (p *packer) changed() {
	p.changes++
	p.cond.Broadcast()
}

func (p *packer) work() {
	defer p.workers.Done()
	for {
		if !p.await() {
			return
		}
		group := p.take()
		if group == nil {
			return
		}
		p.packGroup(p.ctx, group)
	}
}

// await waits for files and then for the turn to begin with some; false when the packer stops.
func (p *packer) await() bool {
	p.mu.Lock()
	for len(p.queue) == 0 && !p.stopping {
		p.cond.Wait()
	}
	p.mu.Unlock()
	return p.Throttle.Pass(p.ctx) == nil
}

// take waits for files and returns some of them; nil when the packer stops.
func (p *packer) take() []*content.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopping {
		seen, files := p.changes, slices.Clone(p.queue[:min(len(p.queue), maxAhead)])
		p.mu.Unlock()
		positions := make(map[*content.File]runs.Position, len(files))
		for _, f := range files {
			positions[f] = runs.PositionOf(f.Path()) // now: programs rename what they have saved
		}
		p.mu.Lock()
		if group := p.next(positions); len(group) > 0 {
			return group
		}
		if p.changes == seen && !p.stopping {
			p.cond.Wait()
		}
	}
	return nil
}

// rests waits until nothing is packed or waits to be.
func (p *packer) rests(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for (len(p.queue) > 0 || len(p.busy) > 0) && ctx.Err() == nil {
		p.cond.Wait()
	}
	return ctx.Err()
}

// next moves files from the queue to busy: half of what waits, so that the other group gets something too, of those whose positions are
// known. A file that is busy, because it was written again meanwhile, waits for its next turn, and so does one for the version before it; who
// was closed later is not waited for, so that each has its turn. mu is held.
func (p *packer) next(positions map[*content.File]runs.Position) []*content.File {
	most := min(groupFiles, (len(p.queue)+packGroups-1)/packGroups)
	var group []*content.File
	before := runs.Upcoming{}
	for _, at := range p.ahead {
		before.Add(at)
	}
	wait := p.queue[:0]
	for _, f := range p.queue {
		at, known := positions[f]
		if len(group) == most || !known {
			wait = append(wait, f)
			continue
		}
		if p.busy[f] || before.HasBefore(at) {
			before.Add(at)
			wait = append(wait, f)
			continue
		}
		p.busy[f] = true
		p.ahead[f] = at
		p.backlog.begin(f)
		group = append(group, f)
	}
	clear(p.queue[len(wait):])
	p.queue = wait
	return group
}

// put notes that a file with a group is in the store, as far as packing others is concerned.
func (p *packer) put(f *content.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ahead, f)
	if len(p.ahead) == 0 {
		p.changed()
	}
}

// finish ends a file's turn. With again set it is put off.
func (p *packer) finish(f *content.File, bytes int64, again bool, err error) {
	p.mu.Lock()
	delete(p.busy, f)
	delete(p.ahead, f)
	p.backlog.end(f)
	p.done.files++
	p.done.bytes += bytes
	if again && !p.stopping {
		p.putOff(f, err)
		p.changed()
		p.mu.Unlock()
		return
	}
	if d := p.delayed[f]; d != nil {
		d.timer.Stop()
		delete(p.delayed, f)
		defer f.Unpin()
	}
	p.changed()
	p.mu.Unlock()
	f.Unpin()
}

// putOff keeps the turn's reference in delayed. mu is held.
func (p *packer) putOff(f *content.File, err error) {
	d := p.delayed[f]
	if d == nil {
		d = &delay{since: p.Now()}
		p.delayed[f] = d
	} else {
		defer f.Unpin() // it has one already
	}
	wait := mappedRetry
	if d.err = err; err != nil {
		wait = throttle.Backoff(d.attempts)
		d.attempts++
	}
	d.timer = time.AfterFunc(wait, func() { p.retry(f) })
}

// retry queues a file that was put off.
func (p *packer) retry(f *content.File) {
	f.Lock()
	defer f.Unlock()
	if is := f.StateLocked(); is.Writers > 0 || !is.Dirty {
		// Its last close will queue it, or there is nothing to do any more.
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.delayed[f] != nil {
			delete(p.delayed, f)
			defer f.Unpin()
		}
		return
	}
	p.add(f)
}

// retryAll queues everything that was put off, now.
func (p *packer) retryAll() {
	p.mu.Lock()
	files := make([]*content.File, 0, len(p.delayed))
	for f, d := range p.delayed {
		if d.timer.Stop() {
			files = append(files, f)
		}
	}
	p.mu.Unlock()
	for _, f := range files {
		p.retry(f)
	}
}

// notePublished has the next Sync make durable that a file is packed, or the bytes of one that stays plain.
func (p *packer) notePublished(f *content.File, plain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !plain:
		p.published = true
	case p.morePlain || p.plain[f]:
	case len(p.plain) == maxPlain:
		p.morePlain = true
		p.forgetPlain()
	default:
		f.Pin()
		p.plain[f] = true
	}
}

// forget lets go of a file whose last name went: nothing of it has to be made durable. The caller has a reference.
func (p *packer) forget(f *content.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plain[f] {
		delete(p.plain, f)
		f.Unpin()
	}
}

// forgetPlain gives the references back. mu is held.
func (p *packer) forgetPlain() {
	for f := range p.plain {
		delete(p.plain, f)
		f.Unpin()
	}
}
