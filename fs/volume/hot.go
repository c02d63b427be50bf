package volume

import (
	"container/list"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// diskWatch is how often the free space is looked at while there is something to evict.
const diskWatch = time.Second

// hotList bounds the bytes in place of packed files, which are a cache: the least recently opened goes first.
type hotList struct {
	v   *Volume
	max int64 // bytes

	mu     sync.Mutex
	lru    *list.List // of *hotEntry, least recently used first
	of     map[*Node]*hotEntry
	bytes  int64
	wanted bool // some entry is

	grew atomic.Bool // since the start bytes were added, or checksums made or taken away: a clean end syncs them

	kick chan struct{}
	quit chan struct{}
	end  sync.WaitGroup
}

// hotEntry holds a reference to its node.
type hotEntry struct {
	node   *Node
	size   int64
	elem   *list.Element
	wanted bool // to be evicted as soon as nobody uses it, whatever room there is
	failed *delay
	retry  time.Time // not before, if failed
}

func newHotList(v *Volume, max int64) *hotList {
	return &hotList{v: v, max: max, lru: list.New(), of: map[*Node]*hotEntry{}, kick: make(chan struct{}, 1), quit: make(chan struct{})}
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

// add counts the bytes put in place of a packed file in, as the most recently used.
func (l *hotList) add(n *Node, size int64) {
	l.grew.Store(true)
	l.found(n, size)
}

// found is add of bytes that an earlier process put in place.
func (l *hotList) found(n *Node, size int64) {
	l.mu.Lock()
	if e := l.of[n]; e != nil {
		l.bytes += size - e.size
		e.size, e.wanted = size, false
		l.lru.MoveToBack(e.elem)
	} else {
		n.Pin()
		e = &hotEntry{node: n, size: size}
		e.elem = l.lru.PushBack(e)
		l.of[n] = e
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

// remove forgets bytes that are no cache any more.
func (l *hotList) remove(n *Node) {
	l.mu.Lock()
	e := l.of[n]
	if e != nil {
		delete(l.of, n)
		l.lru.Remove(e.elem)
		l.bytes -= e.size
	}
	l.mu.Unlock()
	if e != nil {
		n.unref(1)
	}
}

// knows reports whether the bytes of a file are counted in.
func (l *hotList) knows(n *Node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[n] != nil
}

// touch makes a file the most recently used.
func (l *hotList) touch(n *Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[n]; e != nil {
		l.lru.MoveToBack(e.elem)
	}
}

// room is how many bytes may be added without anything else having to go.
func (l *hotList) room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max - l.bytes
}

// want has a file evicted that is in use now.
func (l *hotList) want(n *Node) {
	f := n.file
	f.Lock()
	defer f.Unlock()
	if !f.PackedLocked() || f.RecordLocked().Hollow || n.Dead() {
		return
	}
	if !l.knows(n) { // the survey has not come to it
		l.found(n, f.UnpackedLocked())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[n]; e != nil {
		e.wanted = true
		l.wanted = true
	}
}

// released is told of the end of a file's last use.
func (l *hotList) released(n *Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[n]; e != nil && (e.wanted || l.bytes > l.max) {
		l.wake()
	}
}

// shrink evicts until the bound holds and the disk is not short. Files that are in use are passed over.
func (l *hotList) shrink() {
	if l.room() == l.max {
		return // nothing to evict
	}
	short := l.v.diskShort()
	for _, c := range l.candidates(short) {
		l.mu.Lock()
		over := l.bytes > l.max
		l.mu.Unlock()
		if over || short || c.wanted {
			if _, err := c.node.file.Evict(); err != nil {
				l.failed(c.node, err)
			}
		}
		c.node.unref(1)
	}
}

// failed notes that the bytes of a file cannot be given up, and puts the next attempt off.
func (l *hotList) failed(n *Node, err error) {
	l.v.content.Count.EvictErrs.Add(1)
	l.v.report(slog.LevelWarn, "eviction failed; it is tried again", "path", n.Path(), "reason", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of[n]
	if e == nil {
		return
	}
	if e.failed == nil {
		e.failed = &delay{since: l.v.now()}
	}
	e.failed.err = fmt.Errorf("its bytes in place could not be given up: %w", err)
	e.retry = l.v.now().Add(min(failedRetry<<min(e.failed.attempts, 10), maxRetry))
	e.failed.attempts++
}

// candidates are files, oldest first, if the bound does not hold or all is set, else those that are wanted; each with a
// reference to its node.
func (l *hotList) candidates(all bool) []hotEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = all || l.bytes > l.max
	if !all && !l.wanted {
		return nil
	}
	var out []hotEntry
	l.wanted = false
	now := l.v.now()
	for e := l.lru.Front(); e != nil; e = e.Next() {
		h := e.Value.(*hotEntry)
		l.wanted = l.wanted || h.wanted
		if (all || h.wanted) && !(h.failed != nil && now.Before(h.retry)) {
			h.node.Pin()
			out = append(out, *h)
		}
	}
	return out
}

// diskShort: under 2 % of the disk is free for use.
func (v *Volume) diskShort() bool {
	st, err := v.names.StatFS()
	return err == nil && st.Blocks > 0 && st.Bavail < st.Blocks/50
}
