package volume

import (
	"container/list"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// diskWatch is how often the free space is looked at while there is something to evict.
const diskWatch = time.Second

// hotList bounds the raw copies of packed files, which are a cache: the least recently opened goes first.
type hotList struct {
	v   *Volume
	max int64 // bytes

	mu    sync.Mutex
	lru   *list.List // of *hotEntry, least recently used first
	bytes int64

	grew atomic.Bool // a copy was added since the start

	kick chan struct{}
	quit chan struct{}
	end  sync.WaitGroup
}

// hotEntry holds a reference to its node.
type hotEntry struct {
	node *Node
	size int64
	elem *list.Element
}

func newHotList(v *Volume, max int64) *hotList {
	return &hotList{v: v, max: max, lru: list.New(), kick: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (l *hotList) start() {
	l.end.Add(1)
	go func() {
		defer l.end.Done()
		tick := time.NewTicker(diskWatch)
		defer tick.Stop()
		for {
			select {
			case <-l.quit:
				return
			case <-l.kick:
				l.shrink()
			case <-tick.C: // others fill the disk too
				l.shrink()
			}
		}
	}()
}

func (l *hotList) stop() {
	close(l.quit)
	l.end.Wait()
}

// add counts the raw copy of a packed file in, as the most recently used.
func (l *hotList) add(n *Node, size int64) {
	l.grew.Store(true)
	l.mu.Lock()
	if e := n.file.hot; e != nil {
		l.bytes += size - e.size
		e.size = size
		l.lru.MoveToBack(e.elem)
	} else {
		l.v.ref(n)
		e = &hotEntry{node: n, size: size}
		e.elem = l.lru.PushBack(e)
		n.file.hot = e
		l.bytes += size
	}
	l.mu.Unlock()
	l.wake()
}

func (l *hotList) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// remove forgets a copy that is no cache any more.
func (l *hotList) remove(n *Node) {
	l.mu.Lock()
	e := n.file.hot
	if e != nil {
		n.file.hot = nil
		l.lru.Remove(e.elem)
		l.bytes -= e.size
	}
	l.mu.Unlock()
	if e != nil {
		l.v.unref(n, 1)
	}
}

// touch makes a copy the most recently used.
func (l *hotList) touch(n *Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := n.file.hot; e != nil {
		l.lru.MoveToBack(e.elem)
	}
}

// room is how many bytes may be added without anything else having to go.
func (l *hotList) room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max - l.bytes
}

// shrink evicts until the bound holds and the disk is not short. Files that are in use are passed over.
func (l *hotList) shrink() {
	if l.room() == l.max {
		return // nothing to evict
	}
	short := l.v.diskShort()
	for _, n := range l.candidates(short) {
		l.mu.Lock()
		over := l.bytes > l.max
		l.mu.Unlock()
		if over || short {
			if _, err := l.v.evict(n); err != nil {
				l.v.report(slog.LevelWarn, "eviction failed", "path", l.v.Path(n), "reason", err)
			}
		}
		l.v.unref(n, 1)
	}
}

// candidates are nodes, oldest first, that hold what is over the bound; each with a reference.
func (l *hotList) candidates(all bool) []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes <= l.max && !all {
		return nil
	}
	var out []*Node
	for e := l.lru.Front(); e != nil; e = e.Next() {
		n := e.Value.(*hotEntry).node
		l.v.ref(n)
		out = append(out, n)
	}
	return out
}

// diskShort: under 2 % of the disk is free for use.
func (v *Volume) diskShort() bool {
	st, err := v.StatFS()
	return err == nil && st.Blocks > 0 && st.Bavail < st.Blocks/50
}

// Reasons for which evict leaves a file as it is.
const (
	skipNotPacked = "not packed"
	skipOpen      = "open"
	skipBusy      = "being hydrated"
)

// evict drops the raw copy of a packed file. A reason says why it was kept; "" and nil also when there was none.
func (v *Volume) evict(n *Node) (skip string, err error) {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := v.load(n); err != nil {
		return "", err
	}
	switch {
	case !f.rec.Packed():
		return skipNotPacked, nil
	case !f.resident || v.isDead(n):
		return "", nil
	case f.pass > 0:
		return skipOpen, nil
	case f.hydrating:
		return skipBusy, nil
	}
	// The record that names the manifest must be durable before the copy goes.
	if err := v.syncStub(n); err != nil {
		return "", err
	}
	if f.users() > 0 {
		if err := v.openAsm(f); err != nil {
			return "", err
		}
	}
	f.io.Lock()
	if f.raw != nil {
		f.raw.Close()
		f.raw = nil
	}
	f.io.Unlock()
	// Unlinked, never truncated: a reader may still map it.
	if err := v.content.Remove(f.rec.ID); err != nil {
		return "", err
	}
	f.resident = false
	v.hot.remove(n)
	return "", nil
}

// opened notes an open; a packed file that is opened a second time is hydrated. f.mu is held.
func (v *Volume) opened(n *Node) {
	f := n.file
	if !f.rec.Packed() {
		return
	}
	f.opens++
	if f.resident {
		v.hot.touch(n)
	} else if f.opens > 1 {
		v.hydrator.add(n)
	}
}

// closed notes the end of a handle; a packed file most of which was read is hydrated. f.mu is held.
func (v *Volume) closed(n *Node, h *Handle) {
	f := n.file
	if h.Mode == Cached && f.rec.Packed() && !f.resident && f.asm != nil && h.read.Load() > f.asm.Size()/2 {
		v.hydrator.add(n)
	}
}
