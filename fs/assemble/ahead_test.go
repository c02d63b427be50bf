package assemble

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

// settle waits until nothing is read ahead any more.
func (r *Reader) settle() {
	wait := func(mu sync.Locker, drain func()) {
		mu.Lock()
		defer mu.Unlock()
		drain()
	}
	wait(&r.ranges.mu, r.ranges.drainLocked)
	wait(&r.ahead.mu, r.ahead.drainLocked)
}

// Jobs that are not done are dropped without the queue's lock, since dropping takes the cache's.
func TestQueueDrops(t *testing.T) {
	var q queue[int]
	var dropped []int
	drop := func(job int) {
		if !q.mu.TryLock() {
			t.Error("the queue is locked while a job is dropped")
			return
		}
		q.mu.Unlock()
		dropped = append(dropped, job)
	}
	q.init(0, nil, drop)
	q.push(1, 2)
	q.close()
	q.push(3)
	if !slices.Equal(dropped, []int{1, 2, 3}) {
		t.Error(dropped)
	}
}

// A file read in order, and several places of it interleaved, is read ahead; reads at random are not.
func TestReadAhead(t *testing.T) {
	s := newShelf()
	want := random(32<<20, 6)
	h := s.grid(t, want)
	run := func(streams, size int) (missed float64) {
		r := New(s, Options{ReadAhead: 4 << 20})
		f := file(t, r, h)
		p := make([]byte, size)
		part := len(want) / streams
		for off := 0; off+size <= part; off += size {
			for i := range streams {
				at := i*part + off
				if _, err := f.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, want[at:at+size]) {
					t.Fatal(at, err)
				}
				r.settle()
			}
		}
		st := r.Stats()
		// A reader is read ahead into what the next one has begun with, which may be forgotten by then.
		least := int64(len(want) / cas.ChunkSize)
		if most := least + int64(streams-1)*(4<<20)/cas.ChunkSize; st.Fetched < least || st.Fetched > most {
			t.Errorf("%d chunks fetched, want %d to %d", st.Fetched, least, most)
		}
		return float64(st.Misses)
	}
	for _, streams := range []int{1, 4} {
		for _, size := range []int{64 << 10, 1 << 20} {
			most := 2*size/cas.ChunkSize + 2
			if size > firstWindow { // the kernel's burst comes first
				most = burst/cas.ChunkSize + 2
			}
			if missed := run(streams, size); missed > float64(streams*most) {
				t.Errorf("%d streams, %d bytes: %v chunks not read ahead", streams, size, missed)
			}
		}
	}
	r := New(s, Options{})
	f := file(t, r, h)
	p := make([]byte, 4096)
	rng := rand.New(rand.NewPCG(1, 2))
	chunks := map[int64]bool{}
	for range 100 {
		off := rng.Int64N(int64(len(want)) - 4096)
		chunks[off/cas.ChunkSize] = true
		chunks[(off+4095)/cas.ChunkSize] = true
		if _, err := f.ReadAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	if n := r.Stats().Fetched; n > int64(len(chunks))*5/4 {
		t.Errorf("%d chunks fetched for reads of %d", n, len(chunks))
	}
}

// Requests that overtake each other, as those that the kernel sends at once do, belong to one reader.
func TestOvertaking(t *testing.T) {
	const n, size = 1 << 20, 256 << 20
	r := rand.New(rand.NewPCG(3, 4))
	var s streams
	s.advance(0, n, size, size, defaultReadAhead)
	var ahead int64
	for first := int64(1); first < 200; first += 4 {
		for _, i := range r.Perm(4) {
			from, to, inOrder := s.advance((first+int64(i))*n, n, size, size, defaultReadAhead)
			if !inOrder {
				t.Fatalf("request %d after %d is none of the reader's", i, first)
			}
			if from < ahead && to > from {
				t.Errorf("[%d, %d) is read ahead again", from, ahead)
			}
			ahead = max(ahead, to)
		}
	}
	// One that was left behind by as many.
	if _, _, inOrder := s.advance(194*n, n, size, size, defaultReadAhead); !inOrder {
		t.Error("a late request is none of the reader's")
	}
	if _, _, inOrder := s.advance(20*n, n, size, size, defaultReadAhead); inOrder {
		t.Error("another place is the reader's")
	}
}

// What the kernel asks for around one page is followed by little.
func TestBurst(t *testing.T) {
	s := newShelf()
	h := s.grid(t, random(64<<20, 6))
	r := New(s, Options{})
	f := file(t, r, h)
	p := make([]byte, 1<<20)
	for off := int64(8 << 20); off < 12<<20; off += 1 << 20 {
		if _, err := f.ReadAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	if n := r.Stats().Fetched * cas.ChunkSize; n > burst+firstWindow+cas.ChunkSize {
		t.Errorf("%d bytes fetched for a burst of %d", n, burst)
	}
}

// What the kernel was given around a page is not read ahead of a reader that comes there in order, which is
// known beyond it, too.
func TestAnsweredBefore(t *testing.T) {
	const n, size = 1 << 20, 64 << 20
	s := newShelf()
	want := random(size, 6)
	h := s.grid(t, want)
	r := New(s, Options{})
	f := file(t, r, h)
	p := make([]byte, n)
	read := func(from, to int64) {
		for off := from; off < to; off += n {
			if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, want[off:off+n]) {
				t.Fatal(off, err)
			}
			r.settle()
		}
	}
	read(24<<20, 32<<20)
	read(0, 24<<20)
	var ahead int64
	for _, s := range f.streams.s {
		ahead = max(ahead, s.ahead)
	}
	if ahead != 32<<20+defaultReadAhead/2 { // there were two readers lately
		t.Errorf("read ahead to %d at the begin of what was answered", ahead)
	}
	read(32<<20, size)
	r.settle()
	if n := r.Stats().Fetched; n > size/cas.ChunkSize {
		t.Errorf("%d chunks fetched of %d", n, size/cas.ChunkSize)
	}

	// Once more: the kernel has let go of it.
	read(0, 8<<20)
	if f.streams.answered(30, size) {
		t.Error("what was answered before is believed to be there yet")
	}
}

// Requests overtake each other: of a chunk in two of them the end may be read first, and much else before the
// begin.
func TestOvertaken(t *testing.T) {
	s := newShelf()
	want := random(32<<20, 6)
	h := s.grid(t, want)
	r := New(s, Options{ReadAhead: 1 << 20})
	f := file(t, r, h)
	const half = cas.ChunkSize / 2
	p := make([]byte, 1<<20)
	read := func(off int64) {
		if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, want[off:off+int64(len(p))]) {
			t.Fatal(off, err)
		}
		r.settle()
	}
	for i := range int64(10) {
		read(half + i<<20)
	}
	for i := int64(11); i < 20; i++ {
		read(half + i<<20)
	}
	before := r.Stats().Fetched
	read(half + 10<<20)
	if n := r.Stats().Fetched - before; n > 0 {
		t.Errorf("%d chunks fetched again", n)
	}
}

// Close ends the read-ahead that is not under way; the queue is forgotten.
func TestCloseEndsReadAhead(t *testing.T) {
	s := newShelf()
	want := random(16<<20, 7)
	h := s.grid(t, want)
	r := New(s, Options{Workers: 1})
	f := file(t, r, h)
	p := make([]byte, 128<<10)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	s.gate = gate
	if _, err := f.ReadAt(p, 128<<10); err != nil { // in the chunk that is there; queues more
		t.Fatal(err)
	}
	f.Close()
	close(gate)
	r.settle()
	if n := r.Stats().Fetched; n > 2 {
		t.Errorf("%d chunks fetched", n)
	}
	if len(r.chunks.coming) != 0 {
		t.Error("entries left")
	}
	r.Close()
	if _, err := f.ReadAt(p, 8<<20); err != nil || !bytes.Equal(p, want[8<<20:8<<20+len(p)]) {
		t.Error("read after Close:", err)
	}
}

// A reader in order leaves few chunks behind; one that reads at random leaves what it read.
func TestPassedChunksAreLetGo(t *testing.T) {
	s := newShelf()
	want := random(48<<20, 9)
	h := s.grid(t, want)
	r := New(s, Options{ReadAhead: 2 << 20})
	f := file(t, r, h)
	p := make([]byte, 128<<10)
	for off := 0; off < len(want); off += len(p) {
		if _, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+len(p)]) {
			t.Fatal(off, err)
		}
		r.settle()
	}
	st := r.Stats()
	if most := int64(maxPassed + 2<<20 + 4*cas.ChunkSize); st.CacheBytes > most {
		t.Errorf("%d bytes kept, want at most %d", st.CacheBytes, most)
	}
	if n := int64(len(want) / cas.ChunkSize); st.Fetched != n {
		t.Errorf("%d chunks fetched of %d", st.Fetched, n)
	}
	for off := int64(0); off < 32; off++ {
		if _, err := f.ReadAt(p[:4096], (off*7%32)*1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if now := r.Stats().CacheBytes; now < 28*cas.ChunkSize {
		t.Errorf("%d bytes kept of what was read at random", now)
	}
	r.chunks.mu.Lock()
	defer r.chunks.mu.Unlock()
	var bytes, passed int64
	for _, h := range r.chunks.lru.Keys() {
		e, _ := r.chunks.lru.Peek(h)
		bytes += e.size()
		if r.chunks.gone.Contains(h) {
			passed += e.size()
		}
	}
	if bytes != r.chunks.bytes || passed != r.chunks.passed {
		t.Errorf("%d bytes held, %d passed; counted %d and %d", bytes, passed, r.chunks.bytes, r.chunks.passed)
	}
}

// Long reads need not be in order for chunks to be let go of that they end.
func TestLongReadsLetGo(t *testing.T) {
	const n = 1 << 20
	s := newShelf()
	want := random(48<<20, 10)
	h := s.grid(t, want)
	r := New(s, Options{ReadAhead: 2 << 20})
	f := file(t, r, h)
	p := make([]byte, n)
	for _, i := range rand.New(rand.NewPCG(5, 6)).Perm(len(want) / n) {
		if _, err := f.ReadAt(p, int64(i)*n); err != nil || !bytes.Equal(p, want[i*n:(i+1)*n]) {
			t.Fatal(i, err)
		}
		r.settle()
	}
	if kept := r.Stats().CacheBytes; kept > maxPassed {
		t.Errorf("%d bytes kept, want at most %d", kept, maxPassed)
	}
}

// What was answered while it was queued to be read ahead is not read for that.
func TestAnsweredMeanwhile(t *testing.T) {
	const size = 8 << 20
	s := newShelf()
	h := s.grid(t, random(size, 11))
	r := New(s, Options{})
	f := file(t, r, h)
	f.streams.answer(2<<20, 4<<20, size)
	r.expect(span{f: f, from: 0, to: size})
	r.settle()
	if n := r.Stats().Fetched; n != 4<<20/cas.ChunkSize {
		t.Errorf("%d chunks fetched", n)
	}
	before := r.Stats().Fetched
	_ = f.doc.walk(r, 2<<20, 6<<20, func(c manifest.Span, _, at, n int64) bool {
		x := &expected{done: func() {}}
		x.left.Store(1)
		r.fetchAhead(job{f: f, e: r.chunks.expect(c, at), at: at, n: n, x: x})
		return true
	})
	if n := r.Stats().Fetched - before; n != 0 || len(r.chunks.coming) > 0 {
		t.Errorf("%d chunks fetched, %d left", n, len(r.chunks.coming))
	}
}

// Several readers of a file share what is read ahead of one, and who is alone again has all of it.
func TestSharedWindow(t *testing.T) {
	const n, part, limit = 1 << 20, 512 << 20, 16 << 20
	const size = maxStreams * part
	var s streams
	ahead := func() (sum int64) {
		for _, c := range s.s {
			sum += max(0, c.ahead-c.next)
		}
		return sum
	}
	for i := range int64(100) {
		for k := range int64(maxStreams) {
			s.advance(k*part+i*n, n, size, size, limit)
		}
	}
	if sum := ahead(); sum < limit/2 || sum > limit {
		t.Errorf("%d bytes ahead of %d readers", sum, maxStreams)
	}
	for i := int64(100); i < 200; i++ {
		s.advance(i*n, n, size, size, limit)
	}
	if most := s.s[0].ahead - s.s[0].next; most < limit/2 {
		t.Errorf("%d bytes ahead of the last reader", most)
	}
	for i := int64(200); i < 300; i++ { // reads at random are no readers
		s.advance(i*n, n, size, size, limit)
		s.advance(part+i*7919%part, 4096, size, size, limit)
	}
	if most := s.s[0].ahead - s.s[0].next; most < limit/2 {
		t.Errorf("%d bytes ahead of the reader beside reads at random", most)
	}
}

// What is read stays within the bound, and buffers are used again.
func TestMemory(t *testing.T) {
	s := newShelf()
	want := random(64<<20, 8)
	h := s.grid(t, want)
	r := New(s, Options{CacheBytes: 4 << 20})
	f := file(t, r, h)
	p := make([]byte, 128<<10)
	pass := func() {
		for off := int64(0); off < f.Size(); off += int64(len(p)) {
			if _, err := f.ReadAt(p, off); err != nil {
				t.Fatal(err)
			}
		}
		r.settle()
	}
	pass()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pass()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40<<20 { // under the race detector pools forget much
		t.Errorf("%d MiB allocated to read 64", n>>20)
	}
	if st := r.Stats(); st.CacheBytes > 4<<20 {
		t.Errorf("%d bytes cached", st.CacheBytes)
	}
}

// Readers of all sorts at once, with a cache far too small, all see the right bytes.
func TestConcurrent(t *testing.T) {
	s := newShelf()
	want := random(8<<20, 9)
	h := s.grid(t, want)
	r := New(s, Options{CacheBytes: 1 << 20, Workers: 3})
	defer r.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			f, err := r.Open(h)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			off := 0
			for range 100 {
				size := 1 + rng.IntN(300_000)
				if g%2 == 0 {
					off = rng.IntN(len(want) - size)
				} else if off+size > len(want) {
					off = 0
				}
				if g == 7 {
					off, size = 0, 3<<20
				}
				p := make([]byte, size)
				if _, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+size]) {
					t.Error(g, off, size, err)
					return
				}
				off += size
			}
		})
	}
	wg.Wait()
	r.settle()
	r.chunks.mu.Lock()
	defer r.chunks.mu.Unlock()
	if len(r.chunks.coming) != 0 {
		t.Errorf("%d entries on their way", len(r.chunks.coming))
	}
	for _, h := range r.chunks.lru.Keys() {
		if e, _ := r.chunks.lru.Peek(h); e.refs != 1 {
			t.Errorf("entry with %d references", e.refs)
		}
	}
}
