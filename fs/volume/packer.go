package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/formats/detect"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
)

const (
	// smallFile: a file below this size that is no checkpoint stays resident as it is.
	smallFile = 64 << 10
	// A group of files is packed into one batch, so that small checkpoints share an fsync.
	groupFiles = 64
	groupBytes = 256 << 20
	// packGroups are packed at the same time: one hashes while the other waits for the disk.
	packGroups = 2

	// maxPublished bounds the records that wait to be made durable; the kernel does that by itself in seconds.
	maxPublished = 4096

	mappedRetry = 500 * time.Millisecond // a writable mapping: look again
	failedRetry = time.Second            // doubled for each attempt
	maxRetry    = time.Minute
)

// packer packs files in the background, in the order in which their last writers closed them.
//
// A file is in the queue, with a group (busy), or put off (delayed) after a failure or while it is mapped for writing;
// each holds a reference to the node.
type packer struct {
	v *Volume

	mu        sync.Mutex
	cond      sync.Cond // anything below changed
	queue     []*Node
	busy      map[*Node]bool
	delayed   map[*Node]*delay
	published map[*Node]bool // records not known to be durable, at most maxPublished; each with a reference
	done      progress       // since the start
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

func newPacker(v *Volume) *packer {
	p := &packer{v: v, busy: map[*Node]bool{}, delayed: map[*Node]*delay{}, published: map[*Node]bool{}}
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

// stop ends the packing after the files that are at it are given up or done. What waits stays resident.
func (p *packer) stop() {
	p.cancel()
	p.mu.Lock()
	p.stopping = true
	p.cond.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, d := range p.delayed {
		d.timer.Stop()
		delete(p.delayed, n)
		p.v.unref(n, 1)
	}
	for _, n := range p.queue {
		p.v.unref(n, 1)
	}
	p.queue = nil
	for n := range p.published {
		delete(p.published, n)
		p.v.unref(n, 1)
	}
}

// add queues a file. f.mu is held.
func (p *packer) add(n *Node) {
	f := n.file
	if f.queued || !f.dirty {
		return
	}
	f.queued = true
	p.v.ref(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, n)
	p.cond.Broadcast()
}

func (p *packer) work() {
	defer p.workers.Done()
	for {
		group := p.take()
		if group == nil {
			return
		}
		p.v.packGroup(p.ctx, group)
	}
}

// take waits for files and returns some of them; nil when the packer stops.
func (p *packer) take() []*Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopping {
		if group := p.next(); len(group) > 0 {
			return group
		}
		p.cond.Wait()
	}
	return nil
}

// next moves files from the queue to busy: half of what waits, so that the other group gets something too. A file that
// is busy, because it was written again meanwhile, waits for its next turn. mu is held.
func (p *packer) next() []*Node {
	most := min(groupFiles, (len(p.queue)+packGroups-1)/packGroups)
	var group []*Node
	wait := p.queue[:0]
	for _, n := range p.queue {
		if p.busy[n] || len(group) == most {
			wait = append(wait, n)
			continue
		}
		p.busy[n] = true
		group = append(group, n)
	}
	clear(p.queue[len(wait):])
	p.queue = wait
	return group
}

// finish ends a file's turn. With again set it is put off.
func (p *packer) finish(n *Node, bytes int64, again bool, err error) {
	p.mu.Lock()
	delete(p.busy, n)
	p.done.files++
	p.done.bytes += bytes
	if again && !p.stopping {
		p.putOff(n, err)
		p.cond.Broadcast()
		p.mu.Unlock()
		return
	}
	if d := p.delayed[n]; d != nil {
		d.timer.Stop()
		delete(p.delayed, n)
		defer p.v.unref(n, 1)
	}
	p.cond.Broadcast()
	p.mu.Unlock()
	p.v.unref(n, 1)
}

// putOff keeps the turn's reference in delayed. mu is held.
func (p *packer) putOff(n *Node, err error) {
	d := p.delayed[n]
	if d == nil {
		d = &delay{since: p.v.now()}
		p.delayed[n] = d
	} else {
		defer p.v.unref(n, 1) // it has one already
	}
	wait := mappedRetry
	if d.err = err; err != nil {
		wait = min(failedRetry<<min(d.attempts, 10), maxRetry)
		d.attempts++
	}
	d.timer = time.AfterFunc(wait, func() { p.retry(n) })
}

// retry queues a file that was put off.
func (p *packer) retry(n *Node) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writers > 0 || !f.dirty {
		// Its last close will queue it, or there is nothing to do any more.
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.delayed[n] != nil {
			delete(p.delayed, n)
			defer p.v.unref(n, 1)
		}
		return
	}
	p.add(n)
}

// retryAll queues everything that was put off, now.
func (p *packer) retryAll() {
	p.mu.Lock()
	nodes := make([]*Node, 0, len(p.delayed))
	for n, d := range p.delayed {
		if d.timer.Stop() {
			nodes = append(nodes, n)
		}
	}
	p.mu.Unlock()
	for _, n := range nodes {
		p.retry(n)
	}
}

// job is a file in a group.
type job struct {
	node *Node
	gen  uint64
	id   tree.ID
	size int64
	res  *pack.Result

	viewSize int64
}

var errMapped = errors.New("mapped for writing")

// packGroup packs files into one batch and publishes them.
func (v *Volume) packGroup(ctx context.Context, group []*Node) {
	var jobs []job
	b := v.store.Begin()
	for _, n := range group {
		j, err := v.packFile(ctx, b, n)
		if err != nil && v.overtaken(&j) {
			err, j.res = nil, nil // its last close has queued it again, or will
		}
		if err != nil || j.res == nil {
			v.packed(n, 0, err)
			continue
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		b.Abort()
		return
	}
	err := b.Commit()
	for i := range jobs {
		j := &jobs[i]
		jerr := err
		if jerr == nil {
			jerr = v.publish(j)
		}
		v.packed(j.node, j.size, jerr)
	}
	if v.packer.tooManyPublished() {
		if err := v.syncPublished(); err != nil {
			v.report(slog.LevelWarn, "records could not be made durable", "reason", err)
		}
	}
}

// overtaken reports whether the file changed since beginPack: what went wrong with the old bytes is no news.
func (v *Volume) overtaken(j *job) bool {
	f := j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gen != j.gen || f.writers > 0
}

// packed reports the end of a file's turn.
func (v *Volume) packed(n *Node, size int64, err error) {
	switch {
	case err == nil:
		v.packer.finish(n, size, false, nil)
	case errors.Is(err, errMapped):
		v.packer.finish(n, 0, true, nil)
	case errors.Is(err, context.Canceled):
		v.packer.finish(n, 0, false, nil)
	default:
		v.report(slog.LevelError, "packing failed; the file stays as it is and is tried again", "path", v.Path(n), "reason", err)
		v.packer.finish(n, 0, true, err)
		v.hot.wake() // the disk may be full
	}
}

// packFile puts a file's chunks and manifest into b. A job without a result has nothing to pack.
func (v *Volume) packFile(ctx context.Context, b *store.Batch, n *Node) (job, error) {
	j := job{node: n}
	raw, err := v.beginPack(n, &j)
	if err != nil || raw == nil {
		return j, err
	}
	defer raw.Close()
	if v.mappedForWriting(raw) {
		return j, errMapped
	}
	st, err := raw.Stat()
	if err != nil {
		return j, err
	}
	j.size = st.Size()
	if small, err := staysResident(raw, j.size); err != nil {
		return j, err
	} else if small {
		v.staysAsIs(&j)
		return j, nil
	}
	layout, err := detect.Detect(raw, j.size)
	if err != nil {
		return j, err
	}
	j.viewSize = viewSize(layout)
	j.res, err = v.pack.Layout(ctx, b, raw, j.size, layout)
	return j, err
}

// beginPack opens the raw file of a node that is to be packed; nil when it is not, any more.
func (v *Volume) beginPack(n *Node, j *job) (*os.File, error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = false
	if err := v.load(n); err != nil {
		return nil, err
	}
	if !f.dirty || f.writers > 0 || !f.resident || f.rec.Packed() || v.isDead(n) {
		return nil, nil
	}
	j.gen, j.id = f.gen, f.rec.ID
	return v.content.OpenQuietly(f.rec.ID)
}

// mappedForWriting reports whether anybody can still write the raw file past this process: by a shared mapping that
// outlived its descriptor, or by a descriptor of an earlier daemon's mount. The kernel grants a read lease only when
// nobody has the file open for writing; a filesystem without leases leaves only the mode without passthrough.
func (v *Volume) mappedForWriting(raw *os.File) bool {
	_, err := unix.FcntlInt(raw.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		unix.FcntlInt(raw.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	}
	return err == unix.EAGAIN || v.passthrough.Load()
}

func staysResident(raw *os.File, size int64) (bool, error) {
	if size == 0 {
		return true, nil
	}
	if size >= smallFile {
		return false, nil
	}
	head := make([]byte, min(size, 4096))
	if _, err := raw.ReadAt(head, 0); err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	return !detect.Sniff(head, size), nil
}

// staysAsIs notes that a small file needs no packing.
func (v *Volume) staysAsIs(j *job) {
	f := j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gen == j.gen && f.writers == 0 {
		v.settleStub(j.node)
		f.dirty = false
	}
}

// publish makes a committed manifest the file's, unless the file changed meanwhile.
func (v *Volume) publish(j *job) error {
	f := j.node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gen != j.gen || f.writers > 0 || v.isDead(j.node) {
		if f.writers == 0 {
			v.packer.add(j.node)
		}
		return nil
	}
	v.settleStub(j.node)
	rec := f.rec
	rec.Manifest = j.res.Hash
	if j.res.Manifest.Format != "blob" { // the layout was kept
		rec.ViewSize = j.viewSize
	}
	if err := v.writeRecord(j.node, rec); err != nil {
		return err
	}
	f.dirty = false
	f.opens = 0
	v.hot.add(j.node, j.size)
	v.packer.notePublished(j.node)
	return nil
}

// notePublished has the next Sync make the node's record durable.
func (p *packer) notePublished(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.published[n] {
		p.v.ref(n)
		p.published[n] = true
	}
}

// tooManyPublished reports whether it is time not to wait for a Sync.
func (p *packer) tooManyPublished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.published) >= maxPublished
}
