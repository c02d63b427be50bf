package store

import (
	"cmp"
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/pages"
	"ckptfs/cas/segment"
)

// maxSkip is how many bytes between two chunks are read along rather than left out of one request to the
// disk.
const maxSkip = 64 << 10

// Expect has the disk begin to read chunks that Get will be asked for soon, and their bases, in few large
// requests: chunks of one file mostly lie one after the other. What cannot be located is passed over. Of
// deltas it waits for the records, to learn their bases. done, to be called once, says that the chunks were
// got or will not be.
func (s *Store) Expect(hashes []cas.Hash) (done func()) {
	links := make([]Link, len(hashes))
	locs := make([]cas.Location, len(hashes))
	if s.Locate(hashes, locs) != nil {
		return func() {}
	}
	for i, h := range hashes {
		links[i] = Link{Hash: h, Loc: locs[i]}
	}
	s.reader.located.Add(links)
	named := slices.Clone(links)
	var all []*stretch
	for range segment.RoundedNumber + 1 {
		all = s.reader.willRead(locs, all)
		if links = s.reader.basesOf(links); len(links) == 0 {
			break
		}
		locs = locs[:0]
		for _, l := range links {
			locs = append(locs, l.Loc)
		}
	}
	return func() {
		s.reader.located.Remove(named)
		s.reader.ahead.release(all...)
	}
}

// basesOf are the bases of those records that have some, each once. What cannot be read or found is passed
// over.
func (r *reader) basesOf(links []Link) (bases []Link) {
	seen := map[cas.Hash]bool{}
	for _, l := range links {
		b, _, err := r.baseOf(l.Hash, l.Loc)
		if err != nil {
			continue
		}
		for _, h := range b.Hashes() {
			if seen[h] {
				continue
			}
			seen[h] = true
			if loc, err := r.in.locateNow(false, h); err == nil && loc.Segment != 0 {
				bases = append(bases, Link{Hash: h, Loc: loc})
			}
		}
	}
	return bases
}

// willRead has the disk begin to read records, and appends what is read to memory of our own to all. It
// changes locs.
func (r *reader) willRead(locs []cas.Location, all []*stretch) []*stretch {
	locs = slices.DeleteFunc(locs, func(l cas.Location) bool { // others expect it
		t := r.ahead.find(l.Segment, l.Off, segment.RecordHeaderSize+int(l.Stored))
		if t != nil {
			all = append(all, t)
		}
		return t != nil
	})
	slices.SortFunc(locs, func(a, b cas.Location) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Off, b.Off))
	})
	end := func(l cas.Location) int64 { return l.Off + segment.Size(int(l.Stored)) }
	for len(locs) > 0 {
		from, to := locs[0], end(locs[0])
		n := 1
		for ; n < len(locs) && locs[n].Segment == from.Segment && locs[n].Off <= to+maxSkip &&
			fits(from.Off, end(locs[n])); n++ {
			to = max(to, end(locs[n]))
		}
		locs = locs[n:]
		if from.Segment == 0 {
			continue
		}
		f, err := r.files.Get(from.Segment)
		if err != nil {
			continue
		}
		if t := r.ahead.add(from.Segment, from.Off, to); t != nil {
			all = append(all, t)
			go func() {
				r.ahead.read(t, f.Reader)
				r.files.Put(f)
			}()
			continue
		}
		f.WillRead(from.Off, to-from.Off)
		r.files.Put(f)
	}
	return all
}

const (
	// stretchSize is the most that a stretch has, fewBytes the most that one in a smaller buffer has, and
	// minStretch the least worth that.
	stretchSize = 1 << 20
	fewBytes    = 256 << 10
	minStretch  = 64 << 10
	// maxReading is how many stretches are read at a time.
	maxReading = 4
	// maxOnce bounds stretches.once: 8 GiB that were read.
	maxOnce = 1 << 13
)

// A stretch is whole blocks of a segment that several records lie in. It is read past the page cache, and
// decoded where it is: the pages would be allocated, filled and copied from in as much processor time as
// decoding takes. What is read a second time is read through the page cache: other files have it too.
type stretch struct {
	place       // of its first block
	end   int64 // of the last one
	refs  int   // how many expect it, read it, or decode from it; under stretches.mu
	again bool  // it was read before
	pool  *pages.Pool
	buf   *pages.Buffer
	ready chan struct{} // closed once it was read; from then on
	got   []byte        // what was
}

// stretches are those that are expected.
type stretches struct {
	mu      locks.Mutex[leafLock]
	closed  bool
	all     []*stretch
	bytes   int64                       // of their buffers
	max     int64                       // of bytes; what is expected beyond is read to the page cache
	once    *lru.Cache[place, struct{}] // those that were read
	reading sync.WaitGroup
	slots   chan struct{} // one in it for each that is being read
}

var stretchBuffers, smallBuffers = pages.NewPool(stretchSize), pages.NewPool(fewBytes)

func (a *stretches) init(bytes int64) {
	a.max = bytes
	a.once, _ = lru.New[place, struct{}](maxOnce) // the size is positive
	a.slots = make(chan struct{}, maxReading)
}

// blocks widens a range to whole blocks.
func blocks(from, to int64) (int64, int64) {
	return from &^ (disk.BlockSize - 1), (to + disk.BlockSize - 1) &^ (disk.BlockSize - 1)
}

// fits reports whether one stretch can have the range.
func fits(from, to int64) bool {
	from, to = blocks(from, to)
	return to-from <= stretchSize
}

// add returns a new stretch, for its caller and for read; nil: it would be too short or too long, or there
// are too many.
func (a *stretches) add(number uint32, from, to int64) *stretch {
	if to-from < minStretch || !fits(from, to) {
		return nil
	}
	from, to = blocks(from, to)
	pool, size := stretchBuffers, int64(stretchSize)
	if to-from <= fewBytes {
		pool, size = smallBuffers, fewBytes
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.bytes+size > a.max {
		return nil
	}
	t := &stretch{place: place{number, from}, end: to, refs: 2, pool: pool, buf: pool.Get(),
		ready: make(chan struct{})}
	t.again, _ = a.once.ContainsOrAdd(t.place, struct{}{})
	a.all = append(a.all, t)
	a.bytes += size
	a.reading.Add(1)
	return t
}

// read reads a stretch, for which it was added. A reader that needs what could not be read tries again
// itself, and learns why.
func (a *stretches) read(t *stretch, f *segment.Reader) {
	defer a.reading.Done()
	a.slots <- struct{}{}
	n, _ := f.ReadBlocks(t.buf.Bytes[:t.end-t.off], t.off, t.again)
	<-a.slots
	t.got = t.buf.Bytes[:n]
	close(t.ready)
	a.release(t)
}

// find returns the stretch that n bytes of a segment lie in, to be released; nil: there is none.
func (a *stretches) find(number uint32, off int64, n int) *stretch {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.all, func(t *stretch) bool {
		return t.segment == number && t.off <= off && off+int64(n) <= t.end
	})
	if i < 0 {
		return nil
	}
	a.all[i].refs++
	return a.all[i]
}

// borrow returns n bytes of a segment, once they are read, if they are expected; nil: they are not. They stay
// until the stretch is released.
func (a *stretches) borrow(number uint32, off int64, n int) ([]byte, *stretch) {
	t := a.find(number, off, n)
	if t == nil {
		return nil, nil
	}
	<-t.ready
	at := int(off - t.off)
	if at+n > len(t.got) {
		a.release(t)
		return nil, nil
	}
	return t.got[at : at+n : at+n], t
}

// release drops one reference to each.
func (a *stretches) release(ts ...*stretch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range ts {
		if t.refs--; t.refs == 0 {
			a.all = slices.DeleteFunc(a.all, func(o *stretch) bool { return o == t })
			a.bytes -= int64(len(t.buf.Bytes))
			t.pool.Put(t.buf)
		}
	}
}

// close waits for what is being read. No stretch is added any more.
func (a *stretches) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.reading.Wait()
}
