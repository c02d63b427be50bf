package main

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/lowrank"
)

// refOverhead is what a chunk that has a base stores besides: the base's hash, and its number.
const refOverhead = cas.HashSize + 1

// minFactored is the size of a tensor from which it may be of low rank, and maxStretches how many chunks
// tell.
const (
	minFactored  = 64 << 10
	maxStretches = 32
)

// piece is a chunk and what it was encoded to. Its tensor has factors where that may be of low rank.
type piece struct {
	raw, base []byte
	at        int64
	hint      codec.Hint
	factors   *factors
	id        byte
	stored    []byte
}

// factors are what chunks of a tensor of low rank share.
type factors struct {
	hint      codec.Hint
	rows      int
	cols      int
	stretches []lowrank.Stretch
	columns   []byte
	used      bool
}

// find is what packing does before it encodes a tensor's chunks.
func (f *factors) find(buf []byte) []byte {
	f.columns = nil
	if codec.MayBeLowRank(f.stretches, f.rows, f.cols, f.hint) {
		f.columns, _ = codec.FactorColumns(f.stretches, f.cols, f.hint)
	}
	return buf
}

// factorsOf are to be found of a tensor, or nil.
func factorsOf(t tensor) *factors {
	if t.base == nil || t.cols == 0 || len(t.raw) < minFactored {
		return nil
	}
	f := &factors{hint: t.hint, rows: len(t.raw) / t.hint.Elem / t.cols, cols: t.cols}
	chunks := (len(t.raw) + cas.ChunkSize - 1) / cas.ChunkSize
	for i := range min(chunks, maxStretches) {
		off := i * chunks / min(chunks, maxStretches) * cas.ChunkSize
		end := min(off+cas.ChunkSize, len(t.raw))
		f.stretches = append(f.stretches, lowrank.Stretch{Raw: t.raw[off:end], Base: t.base[off:end],
			At: int64(off / t.hint.Elem)})
	}
	return f
}

// result is one set, encoded.
type result struct {
	raw           int64
	size, limit   float64 // shares of raw
	deltas        float64 // share of the chunks that were stored as deltas
	encode, dec   float64 // GB/s of raw, of one core's processor time
	encodeAll, da float64 // on all, of the clock's
}

func measure(ts []tensor, rounds int) (result, error) {
	var pieces []piece
	var all []*factors
	var r result
	for _, t := range ts {
		f := factorsOf(t)
		if f != nil {
			all = append(all, f)
		}
		r.raw += int64(len(t.raw))
		for off := 0; off < len(t.raw); off += cas.ChunkSize {
			end := min(off+cas.ChunkSize, len(t.raw))
			p := piece{raw: t.raw[off:end], at: int64(off / t.hint.Elem), hint: t.hint, factors: f,
				stored: make([]byte, 0, 2*(end-off)+refOverhead)}
			// the store's buffers are used again and again: their pages are there
			clear(p.stored[:cap(p.stored)])
			if t.base != nil {
				p.base = t.base[off:end]
			}
			pieces = append(pieces, p)
		}
	}
	all = looked(all)
	r.limit = limit(ts)
	cores := runtime.GOMAXPROCS(0)
	gb := float64(r.raw) / 1e9
	for range rounds {
		r.encode = max(r.encode, gb/(each(all, 1, find)+each(pieces, 1, (*piece).encode)))
		r.encodeAll = max(r.encodeAll, gb/(each(all, cores, find)+each(pieces, cores, (*piece).encode)))
	}
	var stored, deltas int64
	for i := range pieces {
		stored += int64(len(pieces[i].stored))
		if codec.NeedsBase(pieces[i].id) {
			stored += refOverhead
			deltas++
		}
		if pieces[i].id == codec.LowRank {
			stored += cas.HashSize
			pieces[i].factors.used = true
		}
	}
	for _, f := range all {
		if f.used {
			_, columns := codec.Encode(nil, f.columns, codec.ColumnsHint(f.hint))
			stored += int64(len(columns))
		}
	}
	r.size, r.deltas = float64(stored)/float64(r.raw), float64(deltas)/float64(len(pieces))
	var wrong atomic.Int64
	check := func(p *piece, buf []byte) []byte {
		got, err := p.decode(buf)
		if err != nil || !bytes.Equal(got, p.raw) {
			wrong.Add(1)
		}
		return got[:0]
	}
	each(pieces, cores, check)
	if n := wrong.Load(); n > 0 {
		return r, fmt.Errorf("%d chunks do not decode to what they were", n)
	}
	decode := func(p *piece, buf []byte) []byte {
		got, _ := p.decode(buf)
		return got[:0]
	}
	for range rounds {
		r.dec = max(r.dec, gb/each(pieces, 1, decode))
		r.da = max(r.da, gb/each(pieces, cores, decode))
	}
	return r, nil
}

// looked are the tensors that packing would look at: all as long as one in eight is of low rank, then every
// eighth.
func looked(all []*factors) (some []*factors) {
	paid := 0
	for i, f := range all {
		if n := len(some); n >= 8 && 8*paid < n && i%8 != 0 {
			continue
		}
		f.find(nil)
		if some = append(some, f); f.columns != nil {
			paid++
		}
	}
	return some
}

func find(f **factors, buf []byte) []byte { return (*f).find(buf) }

// each calls do with every piece from so many goroutines and returns the seconds that took: by the clock, or,
// of one goroutine, of processor time, which says more where others are at work.
func each[T any](pieces []T, workers int, do func(p *T, buf []byte) []byte) float64 {
	clock := wall
	if workers == 1 {
		clock = processor
	}
	start := clock()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var buf []byte
			for i := next.Add(1) - 1; i < int64(len(pieces)); i = next.Add(1) - 1 {
				buf = do(&pieces[i], buf)
			}
		})
	}
	wg.Wait()
	return (clock() - start).Seconds()
}

var began = time.Now()

func wall() time.Duration { return time.Since(began) }

// processor is the processor time that the process has taken.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// encode does what packing does: against the base when the sample says that it pays.
func (p *piece) encode(buf []byte) []byte {
	if p.base != nil {
		if alone, delta := codec.Estimate(p.raw, p.base, p.hint); delta < 0.9*alone || alone == 1 {
			most := int(alone*float64(len(p.raw))) - refOverhead
			if f := p.factors; f != nil && f.columns != nil {
				least := min(most, int(delta*float64(len(p.raw)))) - cas.HashSize
				if out, ok := codec.EncodeLowRank(p.stored[:0], p.raw, p.base, f.columns, f.cols, p.at,
					p.hint, least); ok {
					p.id, p.stored = codec.LowRank, out
					return buf
				}
			}
			if id, out, ok := codec.EncodeAgainst(p.stored[:0], p.raw, p.base, p.hint, most); ok {
				p.id, p.stored = id, out
				return buf
			}
		}
	}
	p.id, p.stored = codec.Encode(p.stored[:0], p.raw, p.hint)
	return buf
}

func (p *piece) decode(buf []byte) ([]byte, error) {
	if p.id == codec.LowRank {
		return codec.DecodeLowRank(buf, p.stored, p.base, p.factors.columns, len(p.raw))
	}
	if codec.NeedsBase(p.id) {
		return codec.DecodeAgainst(buf, p.id, p.stored, p.base, len(p.raw))
	}
	return codec.Decode(buf, p.id, p.stored, len(p.raw))
}

// limit is the order-0 entropy of the byte planes, as a share of raw: of the values, rotated by a bit so that
// the sign is at the bottom, or of their differences from the base as ordered integers, zigzag-coded.
func limit(ts []tensor) float64 {
	var counts [8][256]float64
	var bytes, bitsSum float64
	for _, t := range ts {
		w := t.hint.Elem
		for i := 0; i+w <= len(t.raw); i += w {
			x := load(t.raw[i:], w)
			n := 8 * w
			if t.base == nil {
				x = x<<1 | x>>(n-1)
			} else {
				d := order(x, n) - order(load(t.base[i:], w), n)
				d <<= 64 - n
				x = (d<<1 ^ uint64(int64(d)>>63)) >> (64 - n)
			}
			for k := range w {
				counts[k][byte(x>>(8*k))]++
			}
			bytes += float64(w)
		}
	}
	for k := range counts {
		var total float64
		for _, c := range counts[k] {
			total += c
		}
		for _, c := range counts[k] {
			if c > 0 {
				bitsSum -= c * math.Log2(c/total)
			}
		}
	}
	return bitsSum / 8 / bytes
}

func load(p []byte, w int) (x uint64) {
	for k := range w {
		x |= uint64(p[k]) << (8 * k)
	}
	return x
}

// order maps a float's bits to an integer of the same order.
func order(x uint64, n int) uint64 {
	if x>>(n-1) != 0 {
		return ^x & (1<<n - 1)
	}
	return x | 1<<(n-1)
}
