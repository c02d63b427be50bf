package residency

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

const (
	// againAfter is how long after a held copy went it is looked whether there is room for it, and
	// againFullAfter how many times as long if there was none.
	againAfter     = time.Minute
	againFullAfter = 10
	// beginsAfter is how long after a change of rules or names files are looked at: who pins some hydrates
	// them first.
	beginsAfter = time.Second
	// looksAgain is how often it is looked whether a command is done.
	looksAgain = 100 * time.Millisecond
)

// HoldOptions are what a Hold needs besides.
type HoldOptions struct {
	Walk Walk
	// Room reports whether the disk has room for so many bytes, and does not run short by them.
	Room func(bytes int64) bool
	// Ready is closed once all local copies are known; nil: they are.
	Ready <-chan struct{}
}

// Hold hydrates the files that rules of the store hold, one after the other, while no program reads packed
// files. What a user evicts it leaves alone, until the rules change or there is another Hold.
type Hold struct {
	HoldOptions
	lru      *LRU
	hydrator *Hydrator
	kick     chan struct{}
	stopped  context.Context
	stop     context.CancelFunc
	commands atomic.Int32 // that hydrate now
	start    sync.Once
	end      sync.WaitGroup

	mu   locks.Mutex[leafLock]
	todo []string // paths at and below which files are looked at

	told bool // that there is no room; of the one goroutine
}

// mostTodo is how many paths may wait, before all files are looked at instead.
const mostTodo = 64

// NewHold makes one that has nothing to do yet. Start has it work.
func NewHold(l *LRU, h *Hydrator, o HoldOptions) *Hold {
	w := &Hold{HoldOptions: o, lru: l, hydrator: h, kick: make(chan struct{}, 1)}
	w.stopped, w.stop = context.WithCancel(context.Background())
	return w
}

// Changed says that there are other rules: all files are looked at.
func (w *Hold) Changed() {
	w.lru.mu.Lock()
	clear(w.lru.held.dismissed)
	w.lru.held.vain = time.Time{}
	w.lru.mu.Unlock()
	w.Look("")
}

// Look has the files at and below a path looked at: whether a rule holds them.
func (w *Hold) Look(path string) {
	w.mu.Lock()
	switch {
	case len(w.todo) > 0 && w.todo[0] == "":
	case path == "" || len(w.todo) == mostTodo:
		w.todo = append(w.todo[:0], "")
	default:
		w.todo = append(w.todo, path)
	}
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// next takes a path that is to be looked at.
func (w *Hold) next() (path string, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.todo) == 0 {
		return "", false
	}
	path, w.todo = w.todo[0], w.todo[1:]
	return path, true
}

// Start works in the background, until Stop. Only the first call does.
func (w *Hold) Start() { w.start.Do(w.work) }

func (w *Hold) work() {
	w.end.Go(func() {
		if w.Ready != nil {
			select {
			case <-w.Ready:
			case <-w.stopped.Done():
				return
			}
		}
		tick := time.NewTicker(againAfter)
		defer tick.Stop()
		for n := 1; ; {
			select {
			case <-w.stopped.Done():
				return
			case <-tick.C:
				if n++; (!w.told || n%againFullAfter == 0) && w.Room(0) && w.lru.missing() {
					w.Look("")
				}
				continue
			case <-w.kick:
			}
			if !w.wait(beginsAfter) {
				return
			}
			for path, some := w.next(); some && w.stopped.Err() == nil; path, some = w.next() {
				w.pass(path)
			}
		}
	})
}

// wait waits so long, and until no command hydrates; false: it is the end.
func (w *Hold) wait(d time.Duration) bool {
	for {
		select {
		case <-time.After(d):
		case <-w.stopped.Done():
			return false
		}
		if w.commands.Load() == 0 {
			return true
		}
		d = looksAgain
	}
}

// Command says that a command begins to hydrate, and done that it has ended: nothing is hydrated beside it.
func (w *Hold) Command() (done func()) {
	w.commands.Add(1)
	return func() { w.commands.Add(-1) }
}

// Stop ends what Start began.
func (w *Hold) Stop() {
	w.stop()
	w.end.Wait()
}

// pass looks at the files at and below a path, and hydrates those that are to be.
func (w *Hold) pass(path string) {
	var wanted []string
	err := w.Walk(w.stopped, path, func(p string, f *content.File) error {
		f.Lock()
		defer f.Unlock()
		if f.LoadLocked() == nil && w.lru.Judge(f) { // who opens it is told of an error
			wanted = append(wanted, p)
		}
		return nil
	})
	for i := 0; i < len(wanted) && err == nil; i++ {
		err = w.hydrate(wanted[i])
	}
	known := w.told
	w.told = errors.Is(err, errNoRoom)
	if err != nil && !(known && w.told) && w.stopped.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
		w.lru.Report(slog.LevelWarn, "files that a rule of the store holds could not all be hydrated", "path", path, "reason", err)
	}
}

// hydrate hydrates the file at a path once no program reads packed files. An error ends the pass.
func (w *Hold) hydrate(path string) error {
	if w.commands.Load() > 0 && !w.wait(looksAgain) {
		return w.stopped.Err()
	}
	for waited := time.Duration(0); waited < maxHydrateWait; {
		left := min(w.hydrator.quiet(), maxHydrateWait-waited)
		if left <= 0 {
			break
		}
		waited += left
		if !w.wait(left) {
			return w.stopped.Err()
		}
	}
	err := w.Walk(w.stopped, path, func(p string, f *content.File) error {
		f.Lock()
		var st unix.Stat_t
		err := f.Node().Stat(&st)
		wants := err == nil && f.LoadLocked() == nil && w.lru.Judge(f)
		f.Unlock()
		if !wants {
			return nil
		}
		if !w.Room(st.Size) {
			return errNoRoom
		}
		if _, err := f.Hydrate(); err != nil && !errors.Is(err, content.ErrEnding) {
			w.hydrator.count.HydrateErrs.Add(1)
			w.lru.Report(slog.LevelWarn, "a file that a rule of the store holds could not be hydrated; it is read from the segments",
				"path", p, "reason", err)
		}
		content.DropPages(f)
		return nil
	})
	if errors.Is(err, errNoRoom) {
		w.lru.mu.Lock()
		w.lru.held.missing = true
		w.lru.mu.Unlock()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// errNoRoom: a local copy would leave too little of the disk.
var errNoRoom = errors.New("the disk has no room for it; it is looked again once a minute")
