package pack

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

const (
	batchBytes  = 512 << 10 // read at once, so that hashing finds the bytes in the processor's cache
	batchChunks = 1 << 10
)

// batch is some chunks of a file whose bytes lie near each other.
type batch struct {
	buf    []byte // batchBytes long
	off    int64  // place of buf in the file
	held   bool   // buf has the bytes already
	n      int    // bytes of buf in use
	pieces []piece
	raws   [][]byte   // of the pieces, and
	sums   []cas.Hash // their hashes, while it is worked on
	fresh  []cas.Hash // chunks that the store did not hold
	locs   []cas.Location
}

// piece is one chunk.
type piece struct {
	o       *object
	span    *manifest.Span
	at, len int // in buf
	rel     cas.Related
	odds    chances // of rel's being of use
	low     *lowRank
	k       int64 // of low's chunks it is this one
}

var batches = sync.Pool{New: func() any { return &batch{buf: make([]byte, batchBytes)} }}

func newBatch(off int64) *batch {
	b := batches.Get().(*batch)
	b.off, b.held, b.n = off, false, 0
	return b
}

func (b *batch) free() {
	clear(b.pieces)
	b.pieces = b.pieces[:0]
	batches.Put(b)
}

func (b *batch) end() int64 { return b.off + int64(b.n) }

// full reports whether a batch of n bytes and one chunk more is too large.
func (b *batch) full(n int64) bool { return n > batchBytes || len(b.pieces) == batchChunks }

func (b *batch) add(o *object, at, n int, rel cas.Related, odds chances) *piece {
	atomic.AddInt64(&o.open, 1)
	b.pieces = append(b.pieces, piece{o: o, span: o.add(n), at: at, len: n, rel: rel, odds: odds})
	b.n = at + n
	return &b.pieces[len(b.pieces)-1]
}

// job is the packing of one file.
type job struct {
	*Packer
	ctx    context.Context
	cancel context.CancelFunc
	batch  Batch
	r      io.ReaderAt
	group  *errgroup.Group
	alone  bool // there is too little for several workers: the caller is the one

	crowd   crowd
	series  string   // of the file
	before  *earlier // whose skeleton and manifest are the file's a version before; nil: not known
	origins []origin // of the regions
	masters masters
	recipes *recipes.Finder
	mixer   *mixer
	anchors Anchors
	beside  []*manifest.Manifest
	size    int64

	noRecipes bool
	ranks     odds           // of a tensor's difference being of low rank
	mayBeNew  int64          // bytes of the skeleton that are not in the one before
	running   sync.WaitGroup // batches

	fresh, freshRaw, freshStored, deltas atomic.Int64
}

func newJob(ctx context.Context, p *Packer, b Batch, r io.ReaderAt) *job {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	return &job{Packer: p, ctx: ctx, cancel: cancel, batch: b, r: r, group: g}
}

// do runs f on a worker as soon as one is free and has its turn; alone, it returns f's error.
func (j *job) do(f func() error) error {
	select {
	case <-j.ctx.Done():
		return j.ctx.Err()
	case j.slots <- struct{}{}:
	}
	over, err := j.turn(j.ctx)
	if err != nil {
		<-j.slots
		return err
	}
	if j.alone {
		defer func() { <-j.slots }()
		defer over()
		return f()
	}
	j.group.Go(func() error {
		defer func() { <-j.slots }()
		defer over()
		return f()
	})
	return nil
}

func (j *job) start(b *batch) error {
	j.running.Add(1)
	done := sync.OnceFunc(func() {
		b.free()
		j.running.Done()
	})
	err := j.do(func() error {
		defer done()
		return j.work(b)
	})
	if err != nil {
		done()
	}
	return err
}

// finish waits for the workers and returns the error that came first; err is the cutter's.
func (j *job) finish(err error) error {
	if err != nil {
		j.cancel()
	}
	werr := j.group.Wait()
	j.cancel()
	if err == nil || werr != nil && errors.Is(err, context.Canceled) {
		return werr // the cutter may only have seen that a worker failed
	}
	return err
}

// sum hashes the pieces that are not hashed yet. The XXH3 of all are of the same bytes.
func (b *batch) sum() {
	b.raws = b.raws[:0]
	for i := range b.pieces {
		p := &b.pieces[i]
		p.rel.XXH3 = cas.SumXXH3(b.buf[p.at : p.at+p.len])
		if !b.held {
			p.rel.InFile, p.rel.Off = true, b.off+int64(p.at)
		}
		if p.span.Hash.IsZero() {
			b.raws = append(b.raws, b.buf[p.at:p.at+p.len])
		}
	}
	b.sums = slices.Grow(b.sums[:0], len(b.raws))[:len(b.raws)]
	cas.SumAll(b.sums, b.raws)
	next := b.sums
	for _, p := range b.pieces {
		if p.span.Hash.IsZero() {
			p.span.Hash, next = next[0], next[1:]
		}
	}
}

// work reads, hashes and puts a batch.
func (j *job) work(b *batch) error {
	if !b.held {
		if err := readFull(j.r, b.buf[:b.n], b.off); err != nil {
			return err
		}
	}
	b.sum()
	// Put is asked about every chunk, held or not: it is what makes this batch depend on chunks of others
	// that are not durable yet, and what keeps a sweep off.
	b.fresh = b.fresh[:0]
	for _, p := range b.pieces {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		raw := b.buf[p.at : p.at+p.len]
		ok, id, err := j.put(&p, raw)
		if err != nil {
			return err
		}
		if ok {
			if codec.NeedsBase(id) {
				j.deltas.Add(1)
			}
			b.fresh = append(b.fresh, p.span.Hash)
			j.freshRaw.Add(int64(p.len))
			p.mark(b, raw, id)
		}
		if ok && id == codec.LowRank {
			if c := p.low.used(); c != nil {
				b.fresh = append(b.fresh, c.Hash)
				j.freshRaw.Add(int64(len(c.Raw)))
			}
		}
	}
	var err error
	if b.locs, err = j.count(b.fresh, b.locs); err != nil {
		return err
	}
	for _, p := range b.pieces {
		if atomic.AddInt64(&p.o.open, -1) == 0 {
			if err := j.name(p.o); err != nil {
				return err
			}
		}
	}
	return nil
}

// put puts a piece, with the help of what it is related to where that has paid so far.
func (j *job) put(p *piece, raw []byte) (fresh bool, id byte, err error) {
	if p.rel.Recipe == nil && (p.rel.IsZero() || !p.odds.good()) {
		fresh, _, err = j.batch.PutRelated(cas.Chunk, p.span.Hash, raw, p.o.hint(),
			cas.Related{XXH3: p.rel.XXH3, InFile: p.rel.InFile, Off: p.rel.Off})
		return fresh, 0, err
	}
	rel := p.rel
	read := func() ([]byte, error) { return raw, nil }
	if err := p.low.relate(j, p.k, p.span.Hash, read, &rel); err != nil {
		return false, 0, err
	}
	fresh, id, err = j.batch.PutRelated(cas.Chunk, p.span.Hash, raw, p.o.hint(), rel)
	if fresh {
		p.odds.tell(codec.NeedsBase(id))
	}
	return fresh, id, err
}

// name gives an object, all of whose chunks are in the store, its digest.
func (j *job) name(o *object) error {
	spans := o.list()
	if o.of == nil || !o.of.keep {
		o.spans = nil
	}
	if len(spans) == 1 {
		o.named.Digest = spans[0].Hash
		return nil
	}
	enc := manifest.EncodeList(spans)
	o.named.Digest, o.named.List = cas.Sum(enc), true
	j.lists.add(o.named.Digest, spans)
	return j.putAgainst(cas.List, o.named.Digest, enc, cas.Hash{})
}

// putAgainst stores one record, against prev if that is not zero, and counts it.
func (j *job) putAgainst(kind cas.Kind, h cas.Hash, p []byte, prev cas.Hash) error {
	ok, id, err := j.batch.PutRelated(kind, h, p, codec.Hint{}, cas.Related{Prev: prev})
	if err != nil || !ok {
		return err
	}
	if codec.NeedsBase(id) {
		j.deltas.Add(1)
	}
	j.freshRaw.Add(int64(len(p)))
	_, err = j.count([]cas.Hash{h}, nil)
	return err
}

// count adds up what the records just put take in the store.
func (j *job) count(fresh []cas.Hash, locs []cas.Location) ([]cas.Location, error) {
	if len(fresh) == 0 {
		return locs, nil
	}
	if cap(locs) < len(fresh) {
		locs = make([]cas.Location, max(len(fresh), 16))
	}
	locs = locs[:len(fresh)]
	if err := j.store.Locate(fresh, locs); err != nil {
		return locs, err
	}
	j.fresh.Add(int64(len(fresh)))
	for _, l := range locs {
		j.freshStored.Add(int64(l.Stored))
	}
	return locs, nil
}
