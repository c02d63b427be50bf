package pack

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/chunk"
	"ckptfs/cas/codec"
	"ckptfs/cas/locks"
	"ckptfs/cas/lowrank"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

const (
	// minLowRank is the length of a tensor, in bytes, below which factors are no gain, and minLine and
	// maxLine that of its lines: the least in elements, the most in bytes.
	minLowRank = 64 << 10
	minLine    = 32
	maxLine    = 64 << 10
	// minLooked and maxLooked bound of how many chunks it is told whether the tensor may be of low rank.
	minLooked = 2
	maxLooked = 16
	// factored is of how many chunks factors are made.
	factored = 32
)

// lineOf is how many elements make a line of a tensor that fills a region: elements that lie one after the
// other and hang on one factor of the rows, or, of a matrix that lies transposed, of the columns. 0: it is
// none of which a difference may be of low rank.
func lineOf(t *formats.Tensor, r *formats.Region) int64 {
	switch t.DType {
	case "BF16", "F16", "F32":
	default:
		return 0
	}
	if r.Len < minLowRank || len(t.Shape) < 2 || !fills(t, r) {
		return 0
	}
	size := int64(t.DType.Bits() / 8)
	line := r.Len / size / t.Shape[0] // the region has elements, so there is no zero in the shape
	if t.Stride != nil {
		if len(t.Shape) != 2 || t.Stride[0] != 1 || t.Stride[1] != t.Shape[0] {
			return 0
		}
		line = t.Shape[0]
	}
	if line < minLine || line*size > maxLine || r.Len/size/line < minLine {
		return 0
	}
	return line
}

// lowRank is a tensor of which the difference from the one before may be of low rank, as that of weights is
// into which an adapter was merged. When the first of its chunks is new it is found out whether it is, from a
// few of them and what these are stored against; then factors are made of chunks from all over it, and the
// columns are what all its chunks are stored with the help of. Where several versions have had an adapter
// merged into them, each differs from the key before all of them by less than from another, which is rounded
// as it is: so factors are made of the difference from that, too.
type lowRank struct {
	line int64 // elements
	hint codec.Hint
	len  int64                         // of the tensor, in bytes
	rel  *relatives                    // prev of it
	read func(k int64) ([]byte, error) // chunk k of the tensor

	mu      locks.Mutex[tensorLock]
	asked   bool
	columns *cas.Columns // nil: it is not
	ofKey   bool         // they are of the difference from the key
	held    bool         // the columns are in the store, or counted
}

// tensorLock is the one lock of this package. It is held while the tensor is read, which may look at the
// queue's reserve, and while the store is asked, which may wait for a record that another goroutine claimed.
type tensorLock struct{}

func (tensorLock) Rank() (int, string) { return locks.Volume + 700, "lowRank.mu" }

// lowRankOf is the region's tensor t, which had the chunks rel.prev before, as one that may be of low rank;
// nil: it is not.
func lowRankOf(t *formats.Tensor, r *formats.Region, rel *relatives,
	read func(k int64) ([]byte, error)) *lowRank {
	if t == nil || len(rel.prev) == 0 {
		return nil
	}
	line := lineOf(t, r)
	if line == 0 || int64(len(rel.prev)) != chunk.GridLen(r.Len) {
		return nil
	}
	return &lowRank{line: line, hint: hintOf(t), len: r.Len, rel: rel, read: read}
}

// at is the index of chunk k's first element.
func (l *lowRank) at(k int64) int64 {
	off, _ := chunk.GridSpan(l.len, k)
	return off / int64(l.hint.Elem)
}

// relate adds to rel what chunk k, which has hash h, may be stored with the help of. raw gives its bytes. An
// error is that of reading the tensor.
func (l *lowRank) relate(j *job, k int64, h cas.Hash, raw func() ([]byte, error), rel *cas.Related) error {
	if l == nil || rel.Prev.IsZero() || rel.Prev == h {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked {
		var loc [1]cas.Location
		if j.batch != nil && (j.store.Locate([]cas.Hash{h}, loc[:]) != nil || loc[0].Segment != 0) {
			return nil
		}
		p, err := raw()
		if err != nil {
			return err
		}
		if rel.Base, err = l.ask(j, k, p); err != nil {
			return err
		}
	}
	if l.columns == nil {
		return nil
	}
	if key, ok := j.store.Key(rel.Prev); ok && l.ofKey {
		rel.Prev = key
	}
	rel.Columns, rel.At = l.columns, l.at(k)
	return nil
}

// base is the content of what chunk k, n bytes, is stored against, or of the key before that; nil: there is
// none.
func (l *lowRank) base(j *job, k int64, n int, ofKey bool) []byte {
	if l.rel.prev[k].Hash.IsZero() || int(l.rel.prev[k].Len) != n {
		return nil
	}
	h, ok := j.store.Against(l.rel.of(k))
	if ofKey {
		h, ok = j.store.Key(l.rel.prev[k].Hash)
	}
	if !ok {
		return nil
	}
	p, err := j.store.Get(h, nil)
	if err != nil || len(p) != n {
		return nil
	}
	return p
}

// ask finds out whether the tensor, of which chunk k is raw, is of low rank, and makes the columns. base is
// what the chunk is stored against, if it was read.
func (l *lowRank) ask(j *job, k int64, raw []byte) (base []byte, err error) {
	// zero: there have been so many versions that this one is alone
	against, _ := j.store.Against(l.rel.of(k))
	key, _ := j.store.Key(l.rel.prev[k].Hash)
	if against.IsZero() && key.IsZero() {
		return nil, nil
	}
	l.asked = true
	if !j.ranks.fair() {
		return nil, nil
	}
	ofKey := against.IsZero()
	if base = l.base(j, k, len(raw), ofKey); base == nil {
		return nil, nil
	}
	if ok, err := l.mayBe(j, lowrank.Stretch{Raw: raw, Base: base, At: l.at(k)}, ofKey); !ok || err != nil {
		j.ranks.tell(false)
		return base, err
	}
	select { // what is read for it takes memory
	case j.factoring <- struct{}{}:
	case <-j.ctx.Done():
		return base, j.ctx.Err()
	}
	defer func() { <-j.factoring }()
	columns, err := l.factor(j, ofKey)
	if err != nil {
		return base, err
	}
	if !ofKey && key != against && !key.IsZero() {
		other, err := l.factor(j, true)
		if err != nil {
			return base, err
		}
		if old := l.base(j, k, len(raw), true); other != nil && old != nil &&
			l.size(k, raw, old, other) < l.size(k, raw, base, columns) {
			columns, base, ofKey = other, old, true
		}
	}
	if columns != nil {
		l.columns, l.ofKey = columns, ofKey
		var loc [1]cas.Location
		l.held = j.store.Locate([]cas.Hash{l.columns.Hash}, loc[:]) == nil && loc[0].Segment != 0
	}
	j.ranks.tell(columns != nil)
	return base, nil
}

// mayBe looks at chunks from all over the tensor, which are the same whichever chunk was the first to be new:
// as many as have enough lines. One is at hand.
func (l *lowRank) mayBe(j *job, one lowrank.Stretch, ofKey bool) (bool, error) {
	n := chunk.GridLen(l.len)
	some := lowrank.SampleRows*l.line*int64(l.hint.Elem)/cas.ChunkSize + 1
	some = min(n, max(some, minLooked), maxLooked)
	s := make([]lowrank.Stretch, 0, some)
	for i := range some {
		k := i * n / some
		if l.at(k) == one.At {
			s = append(s, one)
		} else if err := l.add(j, k, ofKey, &s); err != nil {
			return false, err
		}
	}
	size := int64(l.hint.Elem)
	return codec.MayBeLowRank(s, int(l.len/size/l.line), int(l.line), l.hint), nil
}

// factor makes the columns, of chunks from all over the tensor; nil: that would not pay.
func (l *lowRank) factor(j *job, ofKey bool) (*cas.Columns, error) {
	var s []lowrank.Stretch
	n := chunk.GridLen(l.len)
	for i := range min(n, factored) {
		if err := l.add(j, i*n/min(n, factored), ofKey, &s); err != nil {
			return nil, err
		}
	}
	p, ok := codec.FactorColumns(s, int(l.line), l.hint)
	if !ok {
		return nil, nil
	}
	return &cas.Columns{Hash: cas.Sum(p), Raw: p, Cols: int(l.line)}, nil
}

// size is what chunk k takes, with those columns if there are some.
func (l *lowRank) size(k int64, raw, base []byte, c *cas.Columns) int {
	if c != nil {
		if out, ok := codec.EncodeLowRank(nil, raw, base, c.Raw, c.Cols, l.at(k), l.hint, len(raw)); ok {
			return len(out)
		}
	}
	return len(raw)
}

// add adds chunk k to s, if it is stored against something.
func (l *lowRank) add(j *job, k int64, ofKey bool, s *[]lowrank.Stretch) error {
	raw, err := l.read(k)
	if err != nil {
		return err
	}
	if base := l.base(j, k, len(raw), ofKey); base != nil {
		*s = append(*s, lowrank.Stretch{Raw: raw, Base: base, At: l.at(k)})
	}
	return nil
}

// used is told of a chunk that was stored with the help of the columns; fresh are these, when they are so too
// and were not told yet.
func (l *lowRank) used() (fresh *cas.Columns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return nil
	}
	l.held = true
	return l.columns
}

// fair reports whether to look at another tensor: always at first, and then as long as it was of use for one
// in eight; else now and then.
func (o *odds) fair() bool {
	n, tried := o.asked.Add(1), o.tried.Load()
	return tried < 8 || 8*o.paid.Load() >= tried || n%8 == 0
}

// chunkOf reads chunk k of a region of the file that is being packed.
func (j *job) chunkOf(r *formats.Region, k int64) ([]byte, error) {
	off, n := chunk.GridSpan(r.Len, k)
	p := make([]byte, n)
	return p, readFull(j.r, p, r.Off+off)
}

// storedChunk reads one of the chunks of a packed file; what cannot be read is nothing.
func (j *job) storedChunk(spans []manifest.Span, k int64) ([]byte, error) {
	p, err := j.store.Get(spans[k].Hash, nil)
	if err != nil {
		return nil, nil
	}
	return slices.Clip(p), nil
}
