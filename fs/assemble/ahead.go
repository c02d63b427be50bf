package assemble

import (
	"sync"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/index/manifest"
)

const (
	// maxStreams is how many readers in order one file tells apart.
	maxStreams = 8
	// lately is within how many reads of a file a stream has one that is not at its end.
	lately = 4 * maxStreams
	// firstWindow is read ahead once two reads have followed each other; it doubles with each one more, up to
	// what was read beyond burst.
	firstWindow = 512 << 10
	// burst is what the kernel asks for at once around a page that was touched. A mapped tensor is often read
	// no further.
	burst = 4 << 20
	// maxSlack bounds how far before its stream a read may lie, and twice that how far behind: the kernel
	// sends requests for that much at once, and more before the last of them are answered, and they overtake
	// each other.
	maxSlack = 4 << 20
)

// streams recognises readers in order, several of them interleaved, by where their next read should begin. A
// read of n bytes belongs to the stream nearest to where it begins, when that is within 4n of it, so small
// reads at random rarely look like one.
//
// The kernel keeps what it was answered, and does not ask for it again: several readers of a mapped file,
// each of which got 8 MiB around the page that it touched first, come to what the others had. What was
// answered is not read ahead, and a stream is expected behind it.
type streams struct {
	mu   locks.Mutex[orderLock]
	tick int64
	s    [maxStreams]stream
	got  []uint32 // bytes answered of each granule of the file
}

const (
	granule = 1 << 20
	// maxGranules bounds streams.got to a MiB, for files of 256 GiB. Of longer ones it is not known what was
	// answered.
	maxGranules = 1 << 18
)

// stream is one reader. Read ahead is [next, ahead), but for what was answered.
type stream struct {
	used   int64 // tick of the last read; 0: free
	read   int64 // bytes so far
	next   int64
	beyond int64 // next, or the end of what was answered from there on
	ahead  int64
	window int64
}

// near is how far off lies from where the stream is expected; not within: it is none of its reads.
func (s *stream) near(off, slack int64) (distance int64, within bool) {
	for _, at := range [2]int64{s.next, s.beyond} {
		if d := abs(off - at); off >= at-2*slack && off <= at+slack && (!within || d < distance) {
			distance, within = d, true
		}
	}
	return distance, within
}

// answer notes what is answered of a file of that size. What is answered twice the kernel has let go of, and
// perhaps more.
func (t *streams) answer(off, n, size int64) {
	if t.got == nil {
		if (size-1)/granule >= maxGranules {
			return
		}
		t.got = make([]uint32, (size-1)/granule+1)
	}
	for end := min(off+n, size); off < end; {
		g := off / granule
		k := min((g+1)*granule, end) - off
		if int64(t.got[g])+k > granule {
			clear(t.got)
		}
		t.got[g] += uint32(k)
		off += k
	}
}

// answered reports whether all of the granule was.
func (t *streams) answered(g, size int64) bool {
	return g < int64(len(t.got)) && int64(t.got[g]) >= min(granule, size-g*granule)
}

// beyond is where what was answered from off on ends.
func (t *streams) beyond(off, size int64) int64 {
	for off < size && t.answered(off/granule, size) {
		off = (off/granule + 1) * granule
	}
	return min(off, size)
}

// had reports whether all of a part was answered.
func (t *streams) had(off, n, size int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beyond(off, size) >= off+n
}

// missing calls visit with the parts of the range that were not answered.
func (t *streams) missing(from, to, size int64, visit func(from, to int64)) {
	for to = min(to, size); from < to; {
		t.mu.Lock()
		from = t.beyond(from, size)
		end := from
		for end < to && !t.answered(end/granule, size) {
			end = (end/granule + 1) * granule
		}
		t.mu.Unlock()
		if end = min(end, to); from < end {
			visit(from, end)
		}
		from = max(from, end)
	}
}

// advance notes a read of a file of that size, by a reader that does not go beyond stop, and returns what to
// read ahead now, if anything, and whether the read is in order.
func (t *streams) advance(off, n, size, stop, limit int64) (from, to int64, inOrder bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick++
	t.answer(off, n, size)
	slack := min(4*n, maxSlack)
	var s *stream
	var nearest int64
	for i := range t.s {
		c := &t.s[i]
		if c.used == 0 {
			continue
		}
		if d, within := c.near(off, slack); within &&
			(s == nil || d < nearest || d == nearest && c.read > s.read) {
			s, nearest = c, d
		}
	}
	if s == nil {
		s = &t.s[0]
		for i := range t.s {
			if t.s[i].used < s.used {
				s = &t.s[i]
			}
		}
		*s = stream{used: t.tick, read: n, next: off + n, beyond: off + n}
		return 0, 0, false
	}
	s.used = t.tick
	s.read += n
	s.next = max(s.next, off+n)
	s.beyond = t.beyond(s.next, size)
	if s.window == 0 {
		s.window = max(firstWindow, 2*n)
	} else {
		s.window *= 2
	}
	limit = max(limit/t.active(), min(limit, 2*n))
	s.window = min(s.window, limit, max(s.read-burst, firstWindow))
	from, to = max(s.ahead, s.beyond), min(s.beyond+s.window, stop)
	if to-from < s.window/4 && to < stop || to <= from {
		return 0, 0, true // not worth the walk yet
	}
	s.ahead = to
	return from, to, true
}

// active is how many streams that are read ahead had a read lately. What is read ahead of all of them is to
// fit into memory.
func (t *streams) active() (n int64) {
	for i := range t.s {
		if t.s[i].window > 0 && t.s[i].used > t.tick-lately {
			n++
		}
	}
	return n
}

func abs(n int64) int64 { return max(n, -n) }

// readAhead notes a read and queues what should be read ahead of it, up to end. It reports whether the read
// is one of several in order.
func (f *File) readAhead(off, n, end int64) (inOrder bool) {
	if f.closed.Load() || f.r.readAhead <= 0 {
		return false
	}
	f.sweep.look(f.doc, off, n, func(from, to int64) {
		f.r.ranges.push(span{f: f, from: from, to: min(to, end)})
	})
	from, to, inOrder := f.streams.advance(off, n, f.doc.Size, end, f.r.readAhead)
	f.streams.missing(from, to, f.doc.Size, func(from, to int64) {
		f.r.ranges.push(span{f: f, from: from, to: to})
	})
	return inOrder
}

// span is a range of a file to be read ahead.
type span struct {
	f        *File
	from, to int64
}

// job is a chunk to be fetched ahead.
type job struct {
	f     *File
	e     *entry
	at, n int64 // the part of the file that it is read for
	x     *expected
}

// expected is chunks that the store was told to expect.
type expected struct {
	left atomic.Int32 // jobs
	done func()
}

// partChunks is how many chunks the store is told to expect at a time. It may have to wait for room before it
// reads them.
const partChunks = 16

// expect has the store begin to read the chunks of a range, and queues them.
func (r *Reader) expect(s span) {
	if s.f.closed.Load() {
		return
	}
	var jobs []job
	var hashes []cas.Hash
	part := func() {
		if len(jobs) == 0 {
			return
		}
		x := &expected{done: r.store.Expect(hashes, false)}
		x.left.Store(int32(len(jobs)))
		for i := range jobs {
			jobs[i].x = x
		}
		r.ahead.push(jobs...)
		jobs, hashes = nil, nil
	}
	// What was answered since the range was queued is not wanted any more.
	s.f.streams.missing(s.from, s.to, s.f.doc.Size, func(from, to int64) {
		// A list that cannot be read will be met again by the reader, which returns the error.
		_ = s.f.doc.walk(r, from, to, func(c manifest.Span, skip, at, n int64) bool {
			if c.Len > 0 {
				if e := r.chunks.expect(c, at-skip); e != nil {
					jobs = append(jobs, job{f: s.f, e: e, at: at, n: n})
					hashes = append(hashes, c.Hash)
				}
			}
			if len(jobs) == partChunks {
				part()
			}
			return !s.f.closed.Load()
		})
	})
	part()
}

// fetchAhead does a job, unless a reader was faster.
func (r *Reader) fetchAhead(j job) {
	if !j.f.closed.Load() && !j.f.streams.had(j.at, j.n, j.f.doc.Size) && r.chunks.claim(j.e) {
		r.load(j.e)
	}
	r.drop(j)
}

// drop ends a job.
func (r *Reader) drop(j job) {
	r.chunks.release(j.e)
	if j.x.left.Add(-1) == 0 {
		j.x.done()
	}
}

// maxQueue bounds the jobs that wait. What is not read ahead is read when it is wanted.
const maxQueue = 4096

// queue is work ahead of readers. Its goroutines live while there is some.
type queue[J any] struct {
	max      int
	do, drop func(J) // each job is given to one of them
	mu       locks.Mutex[leafLock]
	idle     sync.Cond // running is 0
	closed   bool
	running  int
	jobs     []J
}

func (q *queue[J]) init(max int, do, drop func(J)) {
	q.max, q.do, q.drop = max, do, drop
	q.idle.L = &q.mu
}

// push adds jobs, unless there are too many: those are dropped.
func (q *queue[J]) push(jobs ...J) {
	for _, j := range jobs[q.accept(jobs):] {
		q.drop(j)
	}
}

// accept adds as many of jobs as there is room for, and returns how many.
func (q *queue[J]) accept(jobs []J) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(jobs), max(0, maxQueue-len(q.jobs)))
	if q.closed {
		n = 0
	}
	q.jobs = append(q.jobs, jobs[:n]...)
	for range min(n, q.max-q.running) {
		q.running++
		go q.run()
	}
	return n
}

func (q *queue[J]) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) > 0 {
		j := q.jobs[0]
		var none J
		q.jobs[0] = none
		if q.jobs = q.jobs[1:]; len(q.jobs) == 0 {
			q.jobs = nil
		}
		q.mu.Unlock()
		q.do(j)
		q.mu.Lock()
	}
	if q.running--; q.running == 0 {
		q.idle.Broadcast()
	}
}

// close empties the queue and waits for the jobs under way.
func (q *queue[J]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	jobs := q.jobs
	q.jobs = nil
	q.mu.Unlock()
	for _, j := range jobs {
		q.drop(j)
	}
	q.mu.Lock()
	q.drainLocked()
}

// drainLocked waits until nothing is under way. q.mu is held.
func (q *queue[J]) drainLocked() {
	for q.running > 0 {
		q.idle.Wait()
	}
}
