package tier

import (
	"context"
	"sync"
	"time"

	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/segment"
)

const (
	// maxAhead bounds the stored bytes that are fetched ahead of a reader, and minAhead is what it may be
	// where the remote is slow. In between it is what comes in aheadTime.
	maxAhead  = 256 << 20
	minAhead  = 16 << 20
	aheadTime = 2 * time.Second
	// cacheShare is the part of the cache that it may take.
	cacheShare = 4
	// growth is how much is fetched ahead for each byte that was read, so that who reads the begin alone
	// fetches little more.
	growth = 16
	// firstAhead is fetched ahead of who reads in order at all: what a fast network brings in a round trip.
	firstAhead = 4 << 20
	// minRun is how many chunks are read in order before anything is fetched ahead: a header is mostly
	// shorter.
	minRun = 2
	// slack is how many chunks a read may be ahead of those before it: the kernel and fs/assemble ask for
	// several at a time.
	slack = 96
	// maxSkip is how many chunks of the local store, one after the other, a reader may pass.
	maxSkip = 4096
	// One batch is fetched at once, by one request of each object: small ones at first, so that the reader
	// has something soon. It may be twice that where chunks lie in two objects by turns, and then pass the
	// window by a batch.
	minBatch, maxBatch = 1 << 20, fetch.MaxRange
)

// stream is the reader of a file from its begin, and what is fetched ahead of it. Chunks are counted from 0.
//
//	0 ≤ next ≤ front ≤ the chunks; [next, front) are local, in the cache, or asked for
//	asked − read  the stored bytes of [next, front)
type stream struct {
	mu          sync.Mutex
	p           *plan
	all, bases  int64 // stored bytes of the chunks, and of what of their bases was not here at the begin
	came, along int64 // of chunks that were fetched, and of what had to be fetched along with them
	run         int64 // of those that were read in order
	next, front int
	read, asked int64
	live        bool // everything from the begin was read in order
	pumping     bool
	paused      bool // nobody has the file open
}

func (s *stream) init(p *plan) {
	s.p = p
	for i := range p.Chunks {
		s.all += int64(p.Chunks[i].Stored)
	}
}

// fetched notes that a record was fetched, as one of the chunks or along with them.
func (s *stream) fetched(chunk bool, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if chunk {
		s.came += n
	} else {
		s.along += n
	}
}

// scaledLocked is how many bytes of chunks come with n bytes in all: of what they are stored against some is
// here, mostly.
func (s *stream) scaledLocked(n int64) int64 {
	chunks, along := s.came, s.along
	if chunks < s.all/64 {
		chunks, along = s.all, s.bases
	}
	return int64(float64(n) * float64(chunks) / float64(max(chunks+along, 1)))
}

func (s *stream) pause()  { s.set(true) }
func (s *stream) resume() { s.set(false) }

func (s *stream) set(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
}

// follow notes that a record is read that is not in the local store, and fetches ahead of it.
func (t *Tier) follow(w wanted) {
	c := w.n - w.p.firstChunk()
	if c < 0 || c >= len(w.p.Chunks) {
		return
	}
	s := &w.p.stream
	s.mu.Lock()
	pump := s.advanceLocked(c, t) && !s.pumping && s.roomLocked(t.window())
	s.pumping = s.pumping || pump
	s.mu.Unlock()
	if pump && !t.flights.work(func() { t.pump(s) }) {
		s.stopped()
	}
}

// advanceLocked notes that a chunk is read, and reports whether that went on where reading was.
func (s *stream) advanceLocked(c int, t *Tier) bool {
	switch {
	case c == 0 && !s.live:
		s.live, s.run, s.next, s.front, s.read, s.asked = true, 0, 0, 0, 0, 0
	case !s.live, c < s.next:
		return false
	case c > s.next+slack && (c > s.next+maxSkip || len(t.absent(s.p.between(s.p.firstChunk()+s.next,
		s.p.firstChunk()+c))) > 0):
		s.live = false
		return false
	}
	s.run += int64(s.p.Chunks[c].Stored)
	for ; s.next <= c; s.next++ {
		s.read += int64(s.p.Chunks[s.next].Stored)
	}
	if s.front < s.next {
		s.front, s.asked = s.next, s.read
	}
	return c+1 >= minRun
}

// window is how many bytes are fetched ahead of a reader at most.
func (t *Tier) window() int64 {
	return min(max(t.meter.bytesIn(aheadTime), minAhead), maxAhead, t.o.Cache.Max()/cacheShare)
}

// sizesLocked are how many stored bytes of chunks may be asked for, and how many are at once.
func (s *stream) sizesLocked(window int64) (room, batch int64) {
	window = s.scaledLocked(window)
	room = min(window, max(growth*s.run, s.scaledLocked(firstAhead))) - (s.asked - s.read)
	return room, min(max(s.asked/8, s.scaledLocked(minBatch)), maxBatch, window/2)
}

// roomLocked reports whether a batch is worth while, or the rest is to be had.
func (s *stream) roomLocked(window int64) bool {
	room, batch := s.sizesLocked(window)
	return s.live && !s.paused && s.front < len(s.p.Chunks) && batch > 0 &&
		room >= min(batch, s.all-s.asked)
}

// batch takes the chunks that are fetched next; none: pumping ends.
func (s *stream) batch(window int64) []wanted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.roomLocked(window) {
		s.pumping = false
		return nil
	}
	_, batch := s.sizesLocked(window)
	first, n, of := s.front, int64(0), map[uint32]int64{} // bytes, and those of each object
	for ; s.front < len(s.p.Chunks); s.front++ {
		at := &s.p.Chunks[s.front]
		size := segment.Size(int(at.Stored))
		n, of[at.Object] = n+size, of[at.Object]+size
		if (of[at.Object] > batch || n > 2*batch) && s.front > first {
			break
		}
		s.asked += int64(at.Stored)
	}
	return s.p.between(s.p.firstChunk()+first, s.p.firstChunk()+s.front)
}

func (s *stream) stopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pumping = false
}

// pump fetches ahead as long as there is room.
func (t *Tier) pump(s *stream) {
	for {
		if t.ahead.Acquire(t.ctx, 1) != nil {
			s.stopped()
			return
		}
		all := s.batch(t.window())
		if all == nil {
			t.ahead.Release(1)
			return
		}
		mine := t.launch(all)
		if !t.flights.work(func() {
			defer t.ahead.Release(1)
			_ = t.fetch(t.ctx, mine)
		}) {
			t.land(mine, context.Canceled)
			t.ahead.Release(1)
		}
	}
}

// meter measures how many bytes come in a second, while some are asked for.
type meter struct {
	mu    sync.Mutex
	busy  int // requests
	since time.Time
	bytes int64 // since then
	rate  float64
}

// metered is for how long bytes are counted at least.
const metered = 250 * time.Millisecond

func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy == 0 {
		m.since, m.bytes = time.Now(), 0
	}
	m.busy++
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy--
}

func (m *meter) got(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += n
	d := time.Since(m.since)
	if d < metered {
		return
	}
	now := float64(m.bytes) / d.Seconds()
	if m.rate > 0 {
		now = (now + m.rate) / 2
	}
	m.rate, m.since, m.bytes = now, time.Now(), 0
}

func (m *meter) bytesIn(d time.Duration) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(m.rate * d.Seconds())
}
