package zarr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"

	"ckptfs/formats"
)

// Bounds on memory, in bytes; less in tests.
var (
	slabBytes int64 = 32 << 20
	keptBytes int64 = 192 << 20
)

const (
	maxWindow  = 64 << 20
	maxIndexes = 64 << 20 // bytes of shards' indexes that are kept
	entryBytes = 16
	overhead   = 512 << 10 // of a decoder, besides its window
)

// Open opens the value of a key, of size bytes; fs.ErrNotExist when there is none. done closes it.
type Open func(key string) (r io.ReaderAt, size int64, done func(), err error)

// Reader reads the elements of an array, row-major and little-endian, forwards.
type Reader struct {
	a     *Array
	open  Open
	width int64
	at    []int64 // of the next slab's first element
	ended bool
	slab  []byte // what of it is not read yet
	buf   []byte

	kept    map[string]*stream // by the chunk's place
	memory  int64              // of those
	indexes map[string][]byte  // of shards, by key
	indexed int64              // bytes of those
}

// Elements opens the elements. The errors of Read wrap ErrUnread, formats.ErrNotFormat, or are open's and its
// readers'.
func (a *Array) Elements(open Open) (*Reader, error) {
	if a.why != nil {
		return nil, a.why
	}
	r := &Reader{a: a, open: open, width: int64(a.DType.Bits() / 8), at: make([]int64, len(a.Shape)),
		kept: map[string]*stream{}, indexes: map[string][]byte{}}
	for _, n := range a.Shape {
		r.ended = r.ended || n == 0
	}
	return r, nil
}

// Close releases what is held. The reader is not to be used again.
func (r *Reader) Close() {
	for _, s := range r.kept {
		s.close()
	}
	r.kept, r.ended, r.slab = nil, true, nil
}

func (r *Reader) Read(p []byte) (int, error) {
	for len(r.slab) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.slab)
	r.slab = r.slab[n:]
	return n, nil
}

// next reads a slab: all of the last dimensions, a part of the one before them, one place in the others; it
// is a run of the elements.
func (r *Reader) next() error {
	shape := r.a.Shape
	rank := len(shape)
	from, to := append([]int64(nil), r.at...), make([]int64, rank)
	row, k := r.width, rank-1 // bytes of one place in dimension k
	for ; k > 0 && row*shape[k] <= slabBytes/2; k-- {
		row *= shape[k]
	}
	for d := range to {
		to[d] = from[d] + 1
		if d == k {
			to[d] = min(shape[d], from[d]+max(1, slabBytes/row))
		} else if d > k {
			to[d] = shape[d]
		}
	}
	size := row
	if rank > 0 {
		size *= to[k] - from[k]
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	buf := r.buf[:size]
	if err := r.fill(buf, from, to); err != nil {
		return err
	}
	r.slab = buf
	if r.ended = rank == 0; !r.ended { // the next place
		r.at[k] = to[k]
		for d := k; d >= 0 && r.at[d] == shape[d]; d-- {
			if r.at[d] = 0; d == 0 {
				r.ended = true
			} else {
				r.at[d-1]++
			}
		}
	}
	return nil
}

// fill reads the box from, to of the array into buf, chunk by chunk.
func (r *Reader) fill(buf []byte, from, to []int64) error {
	rank := len(from)
	first, grid := make([]int64, rank), make([]int64, rank)
	for d := range first {
		first[d] = from[d] / r.a.chunk[d]
		grid[d] = (to[d]-1)/r.a.chunk[d] - first[d] + 1
	}
	at := make([]int64, rank)
	lo, hi := make([]int64, rank), make([]int64, rank)
	for more := true; more; more = step(at, grid) {
		c := make([]int64, rank)
		done := true // with the chunk, after this
		for d := range c {
			c[d] = first[d] + at[d]
			begin := c[d] * r.a.chunk[d]
			lo[d], hi[d] = max(from[d], begin), min(to[d], begin+r.a.chunk[d])
			done = done && hi[d] == min(r.a.Shape[d], begin+r.a.chunk[d])
		}
		if err := r.part(buf, from, to, c, lo, hi, done); err != nil {
			return fmt.Errorf("chunk %v: %w", c, err)
		}
	}
	return nil
}

// step counts at up, the last dimension first; false when it was the last place.
func step(at, grid []int64) bool {
	for d := len(at) - 1; d >= 0; d-- {
		if at[d]++; at[d] < grid[d] {
			return true
		}
		at[d] = 0
	}
	return false
}

// part reads the box lo, hi, which lies in chunk c, into buf, which is the box from, to.
func (r *Reader) part(buf []byte, from, to, c, lo, hi []int64, done bool) error {
	name := fmt.Sprint(c)
	s := r.kept[name]
	if s == nil {
		var err error
		if s, err = r.stream(c); err != nil {
			return err
		}
	}
	keep := false
	defer func() {
		was := r.kept[name] != nil
		switch {
		case keep && !was:
			r.kept[name] = s
			r.memory += s.memory
		case !keep:
			if was {
				delete(r.kept, name)
				r.memory -= s.memory
			}
			s.close()
		}
	}()
	rank := len(lo)
	run := r.width // bytes that follow one another in both
	rows := make([]int64, rank)
	whole := true
	for d := rank - 1; d >= 0; d-- {
		rows[d] = hi[d] - lo[d]
		if whole {
			run *= rows[d]
			whole = rows[d] == r.a.chunk[d] && rows[d] == to[d]-from[d]
			rows[d] = 1
		}
	}
	at := make([]int64, rank)
	for more := true; more; more = step(at, rows) {
		var in, out int64
		for d := range at {
			in = in*r.a.chunk[d] + lo[d] + at[d] - c[d]*r.a.chunk[d]
			out = out*(to[d]-from[d]) + lo[d] + at[d] - from[d]
		}
		if err := s.read(buf[out*r.width:][:run], in*r.width); err != nil {
			return err
		}
	}
	if done {
		return s.end()
	}
	keep = s.src != nil && (r.memory+s.memory <= keptBytes || r.kept[name] != nil)
	return nil
}

// stream opens the chunk at a place in the grid.
func (r *Reader) stream(c []int64) (*stream, error) {
	t := formats.Tensor{Shape: r.a.chunk, DType: r.a.DType}
	s := &stream{size: t.NumBytes(), close: func() {}}
	src, n, done, err := r.chunk(c)
	if errors.Is(err, fs.ErrNotExist) {
		if r.a.filled {
			return nil, unread("it is not there, and the fill value is not zero")
		}
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.decode(r.a.codec, src, n); err != nil {
		done()
		return nil, err
	}
	free := s.close
	s.close = func() { free(); done() }
	return s, nil
}

// chunk opens the bytes of a chunk.
func (r *Reader) chunk(c []int64) (src io.ReaderAt, n int64, done func(), err error) {
	if r.a.index == nil {
		return r.open(r.a.key(c))
	}
	shard := make([]int64, len(c))
	var k, total int64 = 0, 1 // which of the shard's chunks, and how many there are
	for d := range c {
		inner := r.a.shard[d] / r.a.chunk[d]
		shard[d] = c[d] / inner
		k = k*inner + c[d]%inner
		total *= inner
	}
	key := r.a.key(shard)
	src, n, opened, err := r.open(key)
	if err != nil {
		return nil, 0, nil, err
	}
	defer func() {
		if err != nil {
			opened()
		}
	}()
	table, ok := r.indexes[key]
	if !ok {
		if table, err = r.a.index.read(src, n, total); err != nil {
			return nil, 0, nil, err
		}
		if r.indexed += int64(len(table)); r.indexed > maxIndexes {
			clear(r.indexes)
			r.indexed = int64(len(table))
		}
		r.indexes[key] = table
	}
	off, size := binary.LittleEndian.Uint64(table[k*entryBytes:]),
		binary.LittleEndian.Uint64(table[k*entryBytes+8:])
	if off == math.MaxUint64 && size == math.MaxUint64 {
		return nil, 0, nil, fs.ErrNotExist
	}
	if off > uint64(n) || size > uint64(n)-off {
		return nil, 0, nil, reject("bytes %d+%d of a shard of %d", off, size, n)
	}
	return io.NewSectionReader(src, int64(off), int64(size)), int64(size), opened, nil
}

// read reads the index of a shard of n bytes, of so many chunks.
func (x *index) read(src io.ReaderAt, n, chunks int64) ([]byte, error) {
	size := chunks * entryBytes
	if x.crc {
		size += 4
	}
	if size > n {
		return nil, reject("a shard of %d bytes, of %d chunks", n, chunks)
	}
	at := n - size
	if x.first {
		at = 0
	}
	p := make([]byte, size)
	if err := formats.ReadFull(src, p, at); err != nil {
		return nil, err
	}
	if x.crc {
		p = p[:size-4]
		if crc32.Checksum(p,
			crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(p[len(p):][:4]) {
			return nil, reject("checksum of a shard's index")
		}
	}
	return p, nil
}
