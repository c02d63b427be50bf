package assemble

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

const (
	// maxPieces bounds the chunks that one read has in hand.
	maxPieces = 32
	// directRead is the length from which a read takes whole chunks past the cache, straight into the
	// caller's bytes: it is long enough to keep all workers busy and would only push other chunks out.
	directRead = 2 << 20
	// longRead is the length from which a read need not be in order to be the last of the chunks that it
	// ends: the kernel has the pages, or a reader with O_DIRECT the bytes.
	longRead = cas.ChunkSize
)

// File is a packed file. It is safe for concurrent use.
type File struct {
	r       *Reader
	doc     *doc
	closed  atomic.Bool
	streams streams
	sweep   sweep
}

var _ io.ReaderAt = (*File)(nil)

// Open opens the file whose manifest is record h.
func (r *Reader) Open(h cas.Hash) (*File, error) {
	d, err := r.doc(h)
	if err != nil {
		return nil, err
	}
	return &File{r: r, doc: d}, nil
}

// Of opens the file of a manifest that need not be stored, whose objects are.
func (r *Reader) Of(m *manifest.Manifest) *File { return &File{r: r, doc: newDoc(m)} }

// Size is the file's length in bytes.
func (f *File) Size() int64 { return f.doc.Size }

// Manifest is the file's manifest, which is shared and must not be changed.
func (f *File) Manifest() *manifest.Manifest { return f.doc.Manifest }

// Close ends the file's read-ahead.
func (f *File) Close() error {
	f.closed.Store(true)
	return nil
}

// piece is a part of a read that one chunk serves.
type piece struct {
	n    int    // bytes
	dst  []byte // of that length; nil: it is lent
	off  int64  // in the file
	span manifest.Span
	skip int    // bytes of the chunk before dst
	e    *entry // nil: fetched straight into dst
	err  error  // of that
}

// ReadAt is io.ReaderAt's. Its errors but io.EOF are of type *Error; the bytes before the error's place have
// been read.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.ReadWithin(p, off, f.doc.Size) }

// ReadWithin is ReadAt for a caller that reads no further than end: nothing is read ahead beyond it.
func (f *File) ReadWithin(p []byte, off, end int64) (int, error) {
	if off < 0 {
		return 0, errors.New("assemble: negative offset")
	}
	if off >= f.doc.Size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var eof error
	if left := f.doc.Size - off; int64(len(p)) > left {
		p, eof = p[:left], io.EOF
	}
	way := readDirect
	if len(p) < directRead {
		way = f.advance(off, int64(len(p)), end)
	}
	var room [maxPieces]piece
	n := 0
	for n < len(p) {
		pieces, m, err := f.collect(room[:0], p[n:], len(p)-n, off+int64(n))
		if bad := f.fill(pieces, way); bad != nil {
			return int(bad.Off - off), bad
		}
		if n += m; err != nil {
			return n, err
		}
	}
	return n, eof
}

// collect finds the pieces of the size bytes at off, up to cap(pieces) of them, and the length they cover.
// Zeros are written to p at once, or are a piece of a chunk of length 0 when p is nil. An error is that of
// the piece after those returned.
func (f *File) collect(pieces []piece, p []byte, size int, off int64) ([]piece, int, error) {
	n := 0
	err := f.doc.walk(f.r, off, off+int64(size), func(s manifest.Span, skip, at, length int64) bool {
		q := piece{n: int(length), off: at, span: s, skip: int(skip)}
		if p != nil {
			q.dst = p[n : n+q.n]
		}
		if s.Len == 0 && p != nil {
			clear(q.dst)
		} else if len(pieces) == cap(pieces) {
			return false
		} else {
			pieces = append(pieces, q)
		}
		n += q.n
		return true
	})
	if err != nil {
		err = f.doc.tell(off+int64(n), err)
	}
	return pieces, n, err
}

// walk calls visit with the chunks that the bytes [off, end) of the file lie in, in order, until it returns
// false: the chunk, how many of its bytes come before, where in the file the part begins and how long it is.
// Zeros are a chunk of length 0.
func (d *doc) walk(r *Reader, off, end int64,
	visit func(s manifest.Span, skip, at, length int64) bool) error {
	first := sort.Search(len(d.ends), func(i int) bool { return d.ends[i] > off })
	for i := first; i < len(d.ends) && off < end; i++ {
		x := d.Extents[i]
		stop := min(end, d.ends[i])
		if x.Object < 0 {
			if !visit(manifest.Span{}, 0, off, stop-off) {
				return nil
			}
			off = stop
			continue
		}
		o := d.Objects[x.Object]
		pos := x.ObjOff + off - (d.ends[i] - x.Len) // in the object
		if !o.List {
			if !visit(manifest.Span{Hash: o.Digest, Len: uint32(o.Len)}, pos, off, stop-off) {
				return nil
			}
			off = stop
			continue
		}
		l, err := r.list(o)
		if err != nil {
			return err
		}
		for k := l.find(pos); off < stop; k++ {
			start := l.start(k)
			s := l.spans[k]
			n := min(stop-off, start+int64(s.Len)-pos)
			if !visit(s, pos-start, off, n) {
				return nil
			}
			off, pos = off+n, pos+n
		}
	}
	return nil
}

// find is the number of the chunk that has the object's byte pos.
func (l *list) find(pos int64) int {
	if l.ends == nil {
		return int(pos / cas.ChunkSize)
	}
	return sort.Search(len(l.ends), func(i int) bool { return l.ends[i] > pos })
}

func (l *list) start(k int) int64 {
	switch {
	case l.ends == nil:
		return int64(k) * cas.ChunkSize
	case k == 0:
		return 0
	}
	return l.ends[k-1]
}

// way is what a read does with the cache of chunks.
type way int

const (
	readCached  way = iota // chunks are kept
	readPassing            // chunks of which all has been read are not likely to be wanted again
	readDirect             // whole chunks are not kept at all
)

// advance notes a read, short of directRead, that goes no further than end, and says which way it is to go.
func (f *File) advance(off, n, end int64) way {
	if f.readAhead(off, n, min(end, f.doc.Size)) || n >= longRead {
		return readPassing
	}
	return readCached
}

// fill reads the pieces, several at a time, and returns the first one's error.
func (f *File) fill(pieces []piece, how way) (first *Error) {
	f.start(pieces, how)
	for i := range pieces {
		q := &pieces[i]
		err := q.err
		if q.e != nil {
			if err = f.await(q, how); err == nil {
				copy(q.dst, q.e.data[q.skip:])
			}
			f.r.chunks.release(q.e)
		}
		if err != nil && first == nil {
			first = f.doc.tell(q.off, err)
		}
	}
	return first
}

// await waits for the chunk of a piece that was acquired.
func (f *File) await(q *piece, how way) error {
	<-q.e.done
	if q.e.err != nil {
		return q.e.err
	}
	if err := fits(q.span, q.e.data); err != nil {
		return err
	}
	// The kernel's requests overtake each other: a chunk whose end was read may be in another request with
	// its begin.
	if q.e.seen.Add(int64(q.n)) >= int64(q.span.Len) && how == readPassing {
		f.r.chunks.pass(q.e)
	}
	return nil
}

// start acquires the pieces' chunks, and loads those that no other goroutine does.
func (f *File) start(pieces []piece, how way) {
	var mine [maxPieces]int // pieces that this call loads
	n := 0
	for i := range pieces {
		q := &pieces[i]
		queued := true
		switch {
		case q.span.Len == 0:
			queued = false
		case how == readDirect && q.n == int(q.span.Len):
			if q.e = f.r.chunks.peek(q.span.Hash); q.e != nil {
				queued = false
			}
		default:
			q.e, queued = f.r.chunks.acquire(q.span, q.off-int64(q.skip))
		}
		if queued {
			mine[n] = i
			n++
		}
	}
	switch n {
	case 0:
	case 1:
		f.load(&pieces[mine[0]])
	default:
		f.loadAll(pieces, mine[:n], how)
	}
}

// loadAll loads pieces[i] for all i of mine.
func (f *File) loadAll(pieces []piece, mine []int, how way) {
	own := make([]piece, len(mine)) // the caller's stay on its stack
	hashes := make([]cas.Hash, len(mine))
	for k, i := range mine {
		own[k] = pieces[i]
		hashes[k] = own[k].span.Hash
	}
	defer f.r.store.Expect(hashes, how == readDirect)()
	var next atomic.Int32
	work := func() {
		for k := next.Add(1); int(k) <= len(own); k = next.Add(1) {
			f.load(&own[k-1])
		}
		f.r.loading.Add(-1)
	}
	var wg sync.WaitGroup
	f.r.loading.Add(1)
	for range own[1:] {
		if f.r.loading.Add(1) > f.r.workers { // those that could help have work
			f.r.loading.Add(-1)
			break
		}
		wg.Go(work)
	}
	work()
	wg.Wait()
	for k, i := range mine {
		pieces[i].err = own[k].err
	}
}

// load fetches a piece's chunk unless someone else does by now.
func (f *File) load(q *piece) {
	if q.e != nil {
		if f.r.chunks.claim(q.e) {
			f.r.load(q.e)
		}
		return
	}
	p, err := f.r.fetch(q.span, q.dst[:0:len(q.dst)])
	if q.err = err; err == nil && &p[0] != &q.dst[0] {
		copy(q.dst, p)
	}
}

// Error is a failed read.
type Error struct {
	Off    int64  // byte of the file that could not be read
	Tensor string // a tensor that has it; empty when none has
	Err    error
}

func (e *Error) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("byte %d: %v", e.Off, e.Err)
	}
	return fmt.Sprintf("byte %d, tensor %q: %v", e.Off, e.Tensor, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// tell makes the error of a read that failed at off.
func (d *doc) tell(off int64, err error) *Error {
	e := &Error{Off: off, Err: err}
	k := sort.Search(len(d.Regions), func(i int) bool { return d.Regions[i].Off+d.Regions[i].Len > off })
	if k == len(d.Regions) {
		return e
	}
	in := off - d.Regions[k].Off
	for i := range d.Tensors {
		t := &d.Tensors[i]
		if t.Region != k {
			continue
		}
		if e.Tensor == "" || t.Contiguous() && in >= t.Offset && in < t.Offset+t.NumBytes() {
			e.Tensor = t.Name
		}
	}
	return e
}
