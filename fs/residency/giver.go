package residency

import (
	"sync"
	"time"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
)

// givesAgain is after how long the pages are tried again that stayed, and givesLast how long at most: the
// kernel tells nobody when the last mapping of a file ends that it reads by itself.
const (
	givesAgain = 100 * time.Millisecond
	givesLast  = 30 * time.Second
)

// mostGiven is how many files may wait. The pages of others stay until they are closed once more.
const mostGiven = 1 << 14

// Giver gives back the memory of files that are read once, when the last program has closed them: it takes as
// long as there are pages, and who closes a file does not wait for it.
type Giver struct {
	kick chan struct{}
	quit chan struct{}
	end  sync.WaitGroup

	mu    locks.Mutex[leafLock]
	queue map[*content.File]bool // pinned
}

// NewGiver makes one that has nothing to do yet. Start has it work.
func NewGiver() *Giver {
	return &Giver{kick: make(chan struct{}, 1), quit: make(chan struct{}), queue: map[*content.File]bool{}}
}

// Start works in the background, until Stop.
func (g *Giver) Start() {
	g.end.Go(func() {
		pause := givesAgain
		for {
			var again <-chan time.Time
			if g.waits() {
				again = time.After(pause)
				pause = min(2*pause, givesLast)
			}
			select {
			case <-g.quit:
				return
			case <-g.kick:
				pause = givesAgain
			case <-again:
			}
			for f := range g.take() {
				if !content.DropPages(f) || !g.again(f) {
					f.Unpin()
				}
			}
		}
	})
}

// Stop ends what Start began. Files that are in the queue keep their pages.
func (g *Giver) Stop() {
	close(g.quit)
	g.end.Wait()
	for f := range g.take() {
		f.Unpin()
	}
}

// Add has a file's pages dropped that nobody has open any more. File.mu is held.
func (g *Giver) Add(f *content.File) {
	g.mu.Lock()
	if g.roomLocked(f) {
		f.Pin()
		g.queue[f] = true
	}
	g.mu.Unlock()
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// again keeps a file whose pages stay, with its pin; false: it need not, or cannot.
func (g *Giver) again(f *content.File) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.roomLocked(f) {
		return false
	}
	g.queue[f] = true
	return true
}

func (g *Giver) roomLocked(f *content.File) bool { return !g.queue[f] && len(g.queue) < mostGiven }

func (g *Giver) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue) > 0
}

func (g *Giver) take() map[*content.File]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	some := g.queue
	g.queue = map[*content.File]bool{}
	return some
}
