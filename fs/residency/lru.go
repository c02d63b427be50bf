package residency

import (
	"container/list"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
	"ckptfs/fs/throttle"
)

// diskWatch is how often the free space is looked at while there is something to evict.
const diskWatch = time.Second

// leafLock is LRU.mu and Hydrator.mu: a file is pinned under one of them.
type leafLock struct{}

func (leafLock) Rank() (int, string) { return locks.Volume + 800, "LRU.mu or Hydrator.mu" }

// LRU bounds the resident bytes of packed files, which are a cache: the least recently opened goes first.
type LRU struct {
	max    int64 // bytes
	now    func() time.Time
	report func(level slog.Level, msg string, args ...any)
	count  *content.Counters
	short  func() bool // the disk is nearly full

	mu     locks.Mutex[leafLock]
	lru    *list.List // of *entry, least recently used first
	of     map[*content.File]*entry
	bytes  int64
	wanted bool // some entry is

	// since the start bytes were added, or checksums made or taken away: a clean end syncs them
	Grew atomic.Bool

	kick chan struct{}
	quit chan struct{}
	end  sync.WaitGroup
}

// entry pins its file.
type entry struct {
	file   *content.File
	size   int64
	elem   *list.Element
	wanted bool // to be evicted as soon as nothing uses it, whatever room there is
	failed *failure
}

// failure is what is known of files that could not be evicted.
type failure struct {
	err      error
	since    time.Time
	attempts int
	retry    time.Time // not before
}

// Options are what the cache of resident bytes and the hydrator need.
type Options struct {
	Max int64 // bytes of packed files that may be resident
	// for how long no program read packed files before one is hydrated; 0: a default; negative: it is not
	// waited for
	Still  time.Duration
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
	Count  *content.Counters
	Short  func() bool // the disk is nearly full: whatever can be evicted is
}

// NewLRU makes the bound; Start has it kept.
func NewLRU(o Options) *LRU {
	return &LRU{
		max: o.Max, now: o.Now, report: o.Report, count: o.Count, short: o.Short,
		lru: list.New(), of: map[*content.File]*entry{}, kick: make(chan struct{}, 1),
		quit: make(chan struct{}),
	}
}

// Start keeps the bound in the background, until Stop.
func (l *LRU) Start() {
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
				l.Shrink()
			case <-tick.C: // others fill the disk too
				l.Shrink()
			}
		}
	}()
}

// Stop ends what Start began.
func (l *LRU) Stop() {
	close(l.quit)
	l.end.Wait()
}

// Add counts the resident bytes of a packed file in, as the most recently used.
func (l *LRU) Add(f *content.File, size int64) {
	l.Grew.Store(true)
	l.Found(f, size)
}

// Found is Add of a local copy that an earlier process left.
func (l *LRU) Found(f *content.File, size int64) {
	l.mu.Lock()
	if e := l.of[f]; e != nil {
		l.bytes += size - e.size
		e.size, e.wanted = size, false
		l.lru.MoveToBack(e.elem)
	} else {
		f.Pin()
		e = &entry{file: f, size: size}
		e.elem = l.lru.PushBack(e)
		l.of[f] = e
		l.bytes += size
	}
	l.mu.Unlock()
	l.Wake()
}

// Wake has the bound looked at now.
func (l *LRU) Wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Remove forgets bytes that are no cache any more.
func (l *LRU) Remove(f *content.File) {
	l.mu.Lock()
	e := l.of[f]
	if e != nil {
		delete(l.of, f)
		l.lru.Remove(e.elem)
		l.bytes -= e.size
	}
	l.mu.Unlock()
	if e != nil {
		f.Unpin()
	}
}

// Knows reports whether the bytes of a file are counted in.
func (l *LRU) Knows(f *content.File) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[f] != nil
}

// Touch makes a file the most recently used.
func (l *LRU) Touch(f *content.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[f]; e != nil {
		l.lru.MoveToBack(e.elem)
	}
}

// room is how many bytes may be added without anything else having to go.
func (l *LRU) room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max - l.bytes
}

// Want has a file evicted that is in use now.
func (l *LRU) Want(f *content.File) {
	f.Lock()
	defer f.Unlock()
	if !f.StateLocked().Resident() || f.Dead() {
		return
	}
	if !l.Knows(f) { // the survey has not come to it
		l.Found(f, f.UnpackedLocked())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[f]; e != nil {
		e.wanted = true
		l.wanted = true
	}
}

// Released is told of the end of a file's last use.
func (l *LRU) Released(f *content.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.of[f]; e != nil && (e.wanted || l.bytes > l.max) {
		l.Wake()
	}
}

// Shrink evicts until the bound holds and the disk is not short. Files that are in use are passed over.
func (l *LRU) Shrink() {
	if l.room() == l.max {
		return // nothing to evict
	}
	short := l.short()
	for _, c := range l.candidates(short) {
		l.mu.Lock()
		over := l.bytes > l.max
		l.mu.Unlock()
		if over || short || c.wanted {
			if _, err := c.file.Evict(); err != nil {
				l.failed(c.file, err)
			}
		}
		c.file.Unpin()
	}
}

// Free evicts the least recently opened files that nothing uses, until enough is true.
func (l *LRU) Free(enough func() bool) {
	for _, c := range l.candidates(true) {
		if !enough() {
			if _, err := c.file.Evict(); err != nil {
				l.failed(c.file, err)
			}
		}
		c.file.Unpin()
	}
}

// failed notes that the bytes of a file cannot be evicted, and puts the next attempt off.
func (l *LRU) failed(f *content.File, err error) {
	l.count.EvictErrs.Add(1)
	l.report(slog.LevelWarn, "eviction failed; it is tried again", "path", f.Path(), "reason", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of[f]
	if e == nil {
		return
	}
	if e.failed == nil {
		e.failed = &failure{since: l.now()}
	}
	e.failed.err = fmt.Errorf("its resident bytes could not be evicted: %w", err)
	e.failed.retry = l.now().Add(throttle.Backoff(e.failed.attempts))
	e.failed.attempts++
}

// candidates are files, oldest first, if the bound does not hold or all is set, else those that are wanted;
// each pinned.
func (l *LRU) candidates(all bool) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = all || l.bytes > l.max
	if !all && !l.wanted {
		return nil
	}
	var out []entry
	l.wanted = false
	now := l.now()
	for e := l.lru.Front(); e != nil; e = e.Next() {
		h := e.Value.(*entry)
		l.wanted = l.wanted || h.wanted
		if (all || h.wanted) && !(h.failed != nil && now.Before(h.failed.retry)) {
			h.file.Pin()
			out = append(out, *h)
		}
	}
	return out
}

// Each calls f, under no lock, with each file that is counted in.
func (l *LRU) Each(f func(*content.File)) {
	l.mu.Lock()
	var all []*content.File
	for file := range l.of {
		file.Pin()
		all = append(all, file)
	}
	l.mu.Unlock()
	for _, file := range all {
		f(file)
		file.Unpin()
	}
}

// Bytes is how many bytes of packed files are resident.
func (l *LRU) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Max is how many may be.
func (l *LRU) Max() int64 { return l.max }

// Failures calls f, under a lock, with each file that could not be evicted.
func (l *LRU) Failures(f func(file *content.File, err error, since time.Time, attempts int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.lru.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*entry); h.failed != nil {
			f(h.file, h.failed.err, h.failed.since, h.failed.attempts)
		}
	}
}
