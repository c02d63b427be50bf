package volume

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats/canonical"
)

const (
	// identifyTurn is how long it works before it looks whether anything else wants to.
	identifyTurn = 10 * time.Millisecond
	// maxNone bounds the manifests without an id that are noted in one commit.
	maxNone = 256
)

// errOvertaken: the file is another now, or somebody who asked was faster.
var errOvertaken = errors.New("overtaken")

// identifier computes the artifact ids of packed files before anybody asks for them, so that .ckptfs/artifacts finds them: one file after
// the other, on one processor, while nothing is packed or waits to be, and while packing might use a processor (see courtesy). Which manifests
// have an id and which have none is in the index; so a file is read once, whatever becomes of the daemon. What is not there the survey of
// the start finds.
type identifier struct {
	v     *Volume
	after time.Duration // for how long a file was left alone before; negative: nothing is computed

	mu      sync.Mutex
	waiting map[*Node]time.Time // since when; at most maxResting, each with a reference
	more    bool                // others too
	since   time.Time           // of the last that was added
	told    bool                // of a failure
	walked  time.Time
	took    time.Duration

	none []cas.Hash // manifests without an id, to be noted; of the one goroutine

	ctx    context.Context
	cancel context.CancelFunc
	end    sync.WaitGroup
}

func newIdentifier(v *Volume, after time.Duration) *identifier {
	if after == 0 {
		after = restBefore
	}
	i := &identifier{v: v, after: after, waiting: map[*Node]time.Time{}}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

func (i *identifier) start() {
	if i.after < 0 {
		return
	}
	i.end.Go(func() {
		tick := time.NewTicker(max(i.after/10, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-i.ctx.Done():
				return
			case <-tick.C:
				i.turn(i.after)
			}
		}
	})
}

func (i *identifier) stop() {
	i.cancel()
	i.end.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range i.waiting {
		delete(i.waiting, n)
		i.v.unref(n, 1)
	}
}

// add notes a packed file.
func (i *identifier) add(n *Node) {
	if i.after < 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.since = time.Now()
	if _, known := i.waiting[n]; known || len(i.waiting) == maxResting {
		i.more = i.more || !known
		return
	}
	i.v.ref(n)
	i.waiting[n] = i.since
}

// found is add of a file that the survey looks at, unless what there is to know is known. f.mu is held.
func (i *identifier) found(n *Node) {
	if i.after < 0 {
		return
	}
	if known, err := i.v.index.Identified(n.file.rec.Manifest); err == nil && !known {
		i.add(n)
	}
}

// forget lets go of a file whose last name went. The caller has a reference.
func (i *identifier) forget(n *Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.waiting[n]; ok {
		delete(i.waiting, n)
		i.v.unref(n, 1)
	}
}

// waits is how many files wait, and whether there may be others.
func (i *identifier) waits() (files int, more bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.waiting), i.more
}

// turn sees to the files that have rested for so long.
func (i *identifier) turn(after time.Duration) {
	now := time.Now()
	var nodes []*Node
	i.mu.Lock()
	for n, since := range i.waiting {
		if now.Sub(since) >= after {
			i.v.ref(n)
			nodes = append(nodes, n)
		}
	}
	walk := i.more && len(i.waiting) == 0 && now.Sub(i.since) >= after &&
		(i.walked.IsZero() || now.Sub(i.walked) >= max(min(walkPause, 6*after), walkShare*i.took))
	i.mu.Unlock()
	defer i.note()
	for _, n := range nodes {
		if i.ctx.Err() == nil {
			i.one(n)
			i.forget(n)
		}
		i.v.unref(n, 1)
	}
	if !walk {
		return
	}
	i.mu.Lock()
	i.more = false
	i.mu.Unlock()
	if err := i.v.walk(i.ctx, "", func(_ string, n *Node) error { i.one(n); return i.ctx.Err() }); err != nil {
		i.failed(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.walked, i.took = time.Now(), time.Since(now)
}

// one sees to a file.
func (i *identifier) one(n *Node) {
	v, f := i.v, n.file
	f.mu.Lock()
	err := v.load(n)
	h := f.rec.Manifest
	todo := err == nil && f.rec.Packed() && f.damaged == nil && f.writers == 0 && !v.isDead(n)
	f.mu.Unlock()
	if err == nil && todo {
		if known, kerr := v.index.Identified(h); known || kerr != nil {
			todo, err = false, kerr
		}
	}
	if err == nil && todo {
		var r *paced
		_, err = v.computeArtifact(i.ctx, n, 1, func(gen uint64) io.ReaderAt {
			r = &paced{v: v, ctx: i.ctx, n: n, gen: gen}
			return r
		})
		if r != nil {
			r.pause()
		}
	}
	switch {
	case err == nil, errors.Is(err, errOvertaken), errors.Is(err, errBeingWritten):
	case errors.Is(err, canonical.ErrNoID):
		if i.none = append(i.none, h); len(i.none) == maxNone {
			i.note()
		}
	default:
		i.failed(err)
	}
}

// note keeps which manifests have no id.
func (i *identifier) note() {
	if len(i.none) == 0 {
		return
	}
	if err := i.v.index.PutNoArtifact(i.none); err != nil {
		i.failed(err)
	}
	i.none = i.none[:0]
}

// failed tells of the first failure: an id that is not known is computed for who asks.
func (i *identifier) failed(err error) {
	if i.ctx.Err() != nil || errors.Is(err, unix.ENOENT) {
		return
	}
	i.mu.Lock()
	told := i.told
	i.told = true
	i.mu.Unlock()
	if !told {
		i.v.report(slog.LevelWarn, "artifact ids may be unknown until somebody asks for them", "reason", err)
	}
}

// paced reads a file for who has time.
type paced struct {
	v     *Volume
	ctx   context.Context
	n     *Node
	gen   uint64
	over  func() // ends its turn; nil: it has none
	until time.Time
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	if p.over != nil && !time.Now().Before(p.until) {
		p.pause()
	}
	if p.over == nil {
		if err := p.v.packer.rests(p.ctx); err != nil {
			return 0, err
		}
		over, err := p.v.courtesy.turn(p.ctx)
		if err != nil {
			return 0, err
		}
		p.over, p.until = over, time.Now().Add(identifyTurn)
	}
	f := p.n.file
	f.mu.Lock()
	overtaken := f.gen != p.gen || f.writers > 0 || f.id.gen == f.gen+1 || p.v.isDead(p.n)
	f.mu.Unlock()
	if overtaken {
		return 0, errOvertaken
	}
	return f.ReadAt(b, off)
}

// pause ends its turn.
func (p *paced) pause() {
	if p.over != nil {
		p.over()
		p.over = nil
	}
}
