package residency

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

// diskWatch is how often the free space is looked at while there is something to evict.
const diskWatch = time.Second

// leafLock is LRU.mu, Hydrator.mu, Giver.mu and Hold.mu: a file is pinned under one of them.
type leafLock struct{}

func (leafLock) Rank() (int, string) { return locks.Volume + 800, "a leaf of fs/residency" }

// LRU bounds the resident bytes of packed files, which are a cache, and their number, since each takes
// memory: the least recently opened goes first.
//
// Of a file it knows the number of its inode alone. The file is found by its node, if it has one, else in the
// tree (evict.go).
type LRU struct {
	Options

	mu    locks.Mutex[leafLock]
	of    map[uint64]localCopy // by inode
	notes map[uint64]*note     // likewise, of few
	bytes int64
	clock int64      // the greatest use so far
	next  candidates // to go
	vain  vain       // which are not looked for
	held  held
	// since when an eighth more than the bound is resident; zero: it is not
	behind time.Time

	// since the start bytes were added, or checksums made or taken away: a clean end syncs them
	Grew atomic.Bool

	kick    chan struct{}
	stopped context.Context
	stop    context.CancelFunc
	end     sync.WaitGroup
}

// localCopy is what is known of most files.
type localCopy struct {
	size int64
	used int64 // when it was used last, in nanoseconds since 1970, at least 1; no two uses here are the same
}

// note is what else there is to know of some files. It pins the file.
type note struct {
	file   *content.File
	wanted bool     // to be evicted as soon as nothing uses it, whatever room there is
	failed *failure // or nil
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
	Max   int64 // bytes of packed files that may be resident
	Files int   // packed files that may be; 0: any number
	// for how long no program read packed files before one is hydrated; 0: a default; negative: it is not
	// waited for
	Still  time.Duration
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
	Count  *content.Counters
	Short  func() bool // the disk is nearly full: whatever can be evicted is
	// Holds reports whether a rule of the store has a file keep its local copy; nil: none does. File.mu may
	// be held.
	Holds func(*content.File) bool
	// Ready is closed once all local copies are known that earlier processes left: which is the oldest is not
	// known before. nil: all are.
	Ready <-chan struct{}

	// Known is the file of an inode, with one Pin more; nil: nobody has a node of it.
	Known func(ino uint64) *content.File
	// Seek looks through the tree for the files of some inodes, until found returns false.
	Seek func(ctx context.Context, wanted func(ino uint64) bool, found func(*content.File) bool) error
}

// NewLRU makes the bound; Start has it kept.
func NewLRU(o Options) *LRU {
	l := &LRU{
		Options: o, of: map[uint64]localCopy{}, notes: map[uint64]*note{}, kick: make(chan struct{}, 1),
		held: held{of: map[uint64]int64{}, dismissed: map[uint64]bool{}},
	}
	l.stopped, l.stop = context.WithCancel(context.Background())
	return l
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
			case <-l.stopped.Done():
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
	l.stop()
	l.end.Wait()
}

// Add counts the resident bytes of a packed file in, as the most recently used. File.mu is held.
func (l *LRU) Add(f *content.File, size int64) {
	l.Grew.Store(true)
	holds := l.holds(f)
	l.mu.Lock()
	l.enterLocked(f, localCopy{size, l.tickLocked()}, holds)
	gone := l.unwantLocked(f)
	if f.StateLocked().Kept > 0 { // how often is forgotten with the file
		l.noteLocked(f)
	}
	l.mu.Unlock()
	gone.drop()
	l.Wake()
}

// Found counts in the local copy of a file that an earlier process left, and that a program used last at
// used, in nanoseconds since 1970. File.mu is held.
func (l *LRU) Found(f *content.File, size, used int64) {
	holds := l.holds(f)
	l.mu.Lock()
	if _, is := l.sizeLocked(f.Node().Ino()); !is {
		l.enterLocked(f, localCopy{size, max(1, min(used, l.tickLocked()))}, holds)
		l.next = candidates{}
	}
	l.mu.Unlock()
	l.Wake()
}

func (l *LRU) countLocked(f *content.File, is localCopy) {
	ino := f.Node().Ino()
	l.bytes += is.size - l.of[ino].size
	l.of[ino] = is
	l.noteBehindLocked()
}

// behindFor is for how long much too much may be resident: to evict a few large files takes less.
const behindFor = time.Second

func (l *LRU) noteBehindLocked() {
	much := l.bytes > l.Max+l.Max/8 || l.Files > 0 && len(l.of) > l.Files+l.Files/8
	switch {
	case !much:
		l.behind = time.Time{}
	case l.behind.IsZero():
		l.behind = l.Now()
	}
}

// Behind reports whether evictions have not kept up with what is packed for a while, as of very many small
// files: these are to be evicted then as soon as they are packed.
func (l *LRU) Behind() bool {
	if !l.ready() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.behind.IsZero() && l.Now().Sub(l.behind) >= behindFor
}

// tickLocked is the time of a use.
func (l *LRU) tickLocked() int64 {
	l.clock = max(l.Now().UnixNano(), l.clock+1)
	return l.clock
}

// Wake has the bound looked at now.
func (l *LRU) Wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Remove forgets the bytes of an inode that are no cache any more.
func (l *LRU) Remove(ino uint64) {
	l.mu.Lock()
	l.leaveLocked(ino)
	l.held.forget(ino)
	delete(l.held.dismissed, ino)
	n := l.notes[ino]
	delete(l.notes, ino)
	l.mu.Unlock()
	n.drop()
}

// leaveLocked takes an inode's bytes out of what is bounded.
func (l *LRU) leaveLocked(ino uint64) {
	l.bytes -= l.of[ino].size
	delete(l.of, ino)
	l.noteBehindLocked()
}

// Used is when an inode was used last that is counted in, in nanoseconds since 1970; 0: it is not.
func (l *LRU) Used(ino uint64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[ino].used
}

// Knows reports whether the bytes of an inode are counted in.
func (l *LRU) Knows(ino uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.sizeLocked(ino)
	return is
}

// sizeLocked is how many bytes of an inode are resident, if that is known.
func (l *LRU) sizeLocked(ino uint64) (size int64, known bool) {
	if size, known = l.held.of[ino]; known {
		return size, true
	}
	is, known := l.of[ino]
	return is.size, known
}

// Touch makes a resident file the most recently used. File.mu is held.
func (l *LRU) Touch(f *content.File) {
	size := l.sizeOf(f)
	holds := l.holds(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enterLocked(f, localCopy{size, l.tickLocked()}, holds)
}

// sizeOf is how many bytes a file's local copy is counted with. One that was not found when it was to be
// evicted, or that the survey has not come to, is looked at. File.mu is held.
func (l *LRU) sizeOf(f *content.File) int64 {
	l.mu.Lock()
	size, ok := l.sizeLocked(f.Node().Ino())
	l.mu.Unlock()
	if !ok {
		return f.UnpackedLocked()
	}
	return size
}

// Want has a file evicted that is in use now.
func (l *LRU) Want(f *content.File) {
	f.Lock()
	defer f.Unlock()
	if !f.StateLocked().Resident() || f.Dead() {
		return
	}
	size := l.sizeOf(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.sizeLocked(f.Node().Ino()); !is {
		l.countLocked(f, localCopy{size, l.tickLocked()})
	}
	l.noteLocked(f).wanted = true
}

// unwantLocked undoes Want. It returns the note that is not needed any more, or nil.
func (l *LRU) unwantLocked(f *content.File) *note {
	n := l.notes[f.Node().Ino()]
	if n == nil {
		return nil
	}
	if n.failed != nil {
		n.wanted = false
		return nil
	}
	delete(l.notes, f.Node().Ino())
	return n
}

// noteLocked is the note of a file, made if there is none.
func (l *LRU) noteLocked(f *content.File) *note {
	n := l.notes[f.Node().Ino()]
	if n == nil {
		f.Pin()
		n = &note{file: f}
		l.notes[f.Node().Ino()] = n
	}
	return n
}

// drop lets go of the file. n may be nil. No lock is held but File.mu.
func (n *note) drop() {
	if n != nil {
		n.file.Unpin()
	}
}

// Released is told of the end of a file's last use.
func (l *LRU) Released(f *content.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ino := f.Node().Ino()
	if _, is := l.sizeLocked(ino); !is {
		return
	}
	if n := l.notes[ino]; n != nil && n.wanted || l.overLocked() {
		l.Wake()
	}
}

// over reports whether the bound does not hold, and what is to go is known.
func (l *LRU) over() bool {
	if !l.ready() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overLocked()
}

func (l *LRU) ready() bool {
	if l.Ready == nil {
		return true
	}
	select {
	case <-l.Ready:
		return true
	default:
		return false
	}
}

func (l *LRU) overLocked() bool {
	return l.bytes > l.Max || l.Files > 0 && len(l.of) > l.Files
}

// Bytes is how many bytes of packed files are resident, those aside that rules hold.
func (l *LRU) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Failures calls f, under a lock, with each file that could not be evicted.
func (l *LRU) Failures(f func(file *content.File, err error, since time.Time, attempts int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.notes {
		if h := n.failed; h != nil {
			f(n.file, h.err, h.since, h.attempts)
		}
	}
}
