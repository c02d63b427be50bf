package assemble

import (
	"sync"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

const (
	// maxStreams is how many readers in order one file tells apart.
	maxStreams = 8
	// firstWindow is read ahead once two reads have followed each other; it doubles with each one more, up to what was read
	// beyond burst.
	firstWindow = 512 << 10
	// burst is what the kernel asks for at once around a page that was touched. A mapped tensor is often read no further.
	burst = 4 << 20
	// maxSlack bounds how far before its stream a read may lie, and twice that how far behind: the kernel sends requests for that much
	// at once, and more before the last of them are answered, and they overtake each other.
	maxSlack = 4 << 20
)

// streams recognises readers in order, several of them interleaved, by where their next read should begin. A read of n
// bytes belongs to the stream nearest to where it begins, when that is within 4n of it, so small reads at random rarely look like one.
type streams struct {
	mu   sync.Mutex
	tick int64
	s    [maxStreams]stream
}

// stream is one reader. Read ahead is [next, ahead).
type stream struct {
	used   int64 // tick of the last read; 0: free
	read   int64 // bytes so far
	next   int64
	ahead  int64
	window int64
}

// advance notes a read and returns what to read ahead now, if anything, and whether the read is in order.
func (t *streams) advance(off, n, size, limit int64) (from, to int64, inOrder bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick++
	slack := min(4*n, maxSlack)
	var s *stream
	for i := range t.s {
		c := &t.s[i]
		if c.used > 0 && off >= c.next-2*slack && off <= c.next+slack && (s == nil || abs(off-c.next) < abs(off-s.next)) {
			s = c
		}
	}
	if s == nil {
		s = &t.s[0]
		for i := range t.s {
			if t.s[i].used < s.used {
				s = &t.s[i]
			}
		}
		*s = stream{used: t.tick, read: n, next: off + n}
		return 0, 0, false
	}
	s.used = t.tick
	s.read += n
	s.next = max(s.next, off+n)
	if s.window == 0 {
		s.window = max(firstWindow, 2*n)
	} else {
		s.window *= 2
	}
	s.window = min(s.window, limit, max(s.read-burst, firstWindow))
	from, to = max(s.ahead, s.next), min(s.next+s.window, size)
	if to-from < s.window/4 && to < size || to <= from {
		return 0, 0, true // not worth the walk yet
	}
	s.ahead = to
	return from, to, true
}

func abs(n int64) int64 { return max(n, -n) }

// readAhead notes a read and queues what should be read ahead of it, up to end. It reports whether the read is one of several in order.
func (f *File) readAhead(off, n, end int64) (inOrder bool) {
	if f.closed.Load() || f.r.readAhead <= 0 {
		return false
	}
	from, to, inOrder := f.streams.advance(off, n, end, f.r.readAhead)
	if to > from {
		f.r.ranges.push(span{f: f, from: from, to: to})
	}
	return inOrder
}

// span is a range of a file to be read ahead.
type span struct {
	f        *File
	from, to int64
}

// job is a chunk to be fetched ahead.
type job struct {
	f *File
	e *entry
	x *expected
}

// expected is chunks that the store was told to expect.
type expected struct {
	left atomic.Int32 // jobs
	done func()
}

// expect has the store begin to read the chunks of a range, and queues them.
func (r *Reader) expect(s span) {
	if s.f.closed.Load() {
		return
	}
	x := &expected{}
	var jobs []job
	var hashes []cas.Hash
	// A list that cannot be read will be met again by the reader, who has someone to tell.
	_ = s.f.doc.walk(r, s.from, s.to, func(c manifest.Span, _, _, _ int64) bool {
		if c.Len > 0 {
			if e := r.chunks.expect(c); e != nil {
				jobs = append(jobs, job{s.f, e, x})
				hashes = append(hashes, c.Hash)
			}
		}
		return true
	})
	if len(jobs) == 0 {
		return
	}
	x.done = r.store.Expect(hashes)
	x.left.Store(int32(len(jobs)))
	r.ahead.push(jobs...)
}

// fetchAhead does a job, unless a reader was faster.
func (r *Reader) fetchAhead(j job) {
	if !j.f.closed.Load() && r.chunks.claim(j.e) {
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
	mu       sync.Mutex
	idle     sync.Cond // running is 0
	closed   bool
	running  int
	jobs     []J
}

func (q *queue[J]) init(max int, do, drop func(J)) {
	q.max, q.do, q.drop = max, do, drop
	q.idle.L = &q.mu
}

// push adds jobs, unless there are too many.
func (q *queue[J]) push(jobs ...J) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		if q.closed || len(q.jobs) >= maxQueue {
			q.drop(j)
			continue
		}
		q.jobs = append(q.jobs, j)
		if q.running < q.max {
			q.running++
			go q.run()
		}
	}
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

// close drops what waits and waits for what is under way.
func (q *queue[J]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, j := range q.jobs {
		q.drop(j)
	}
	q.jobs = nil
	q.drain()
}

// drain waits until nothing is under way. q.mu is held.
func (q *queue[J]) drain() {
	for q.running > 0 {
		q.idle.Wait()
	}
}
