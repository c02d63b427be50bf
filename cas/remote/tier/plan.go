package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
	"ckptfs/index/manifest"
)

// key is as much of a hash as tells records of the local store apart, and as a plan says of a base.
type key [16]byte

func keyOf(h cas.Hash) key { return key(h[:16]) }

// hash is one that begins with the key: the local store looks no further.
func (k key) hash() (h cas.Hash) {
	copy(h[:], k[:])
	return h
}

// plan is where the records of a file lie, by their hashes. It does not change but for its stream.
// Its records have numbers, in this order:
//
//	0            the manifest
//	1            the lists, as many as there are
//	1 + lists    the chunks
//	…            the bases
type plan struct {
	*record.Plan
	at    record.Ref // where it lies itself
	keys  []key      // by number; zero: not known
	order []uint32   // the numbers, by ascending key

	stream stream
}

// wanted is a record of a plan.
type wanted struct {
	p *plan
	n int
}

func (w wanted) key() key { return w.p.keys[w.n] }

// record is where it lies.
func (w wanted) record() fetch.Record {
	at := w.p.place(w.n)
	return fetch.Record{Object: w.p.Objects[at.Object], Off: at.Off, Stored: at.Stored}
}

func (p *plan) firstChunk() int { return 1 + len(p.Lists) }
func (p *plan) firstBase() int  { return p.firstChunk() + len(p.Chunks) }

func (p *plan) place(n int) record.Place {
	switch {
	case n == 0:
		return p.Record.Place
	case n < p.firstChunk():
		return p.Lists[n-1].Place
	case n < p.firstBase():
		return p.Chunks[n-p.firstChunk()]
	}
	return p.Bases[n-p.firstBase()].Place
}

// against are the numbers of what a record is stored against, as the plan says.
func (p *plan) against(n int) (bases []int) {
	i := n - p.firstChunk()
	if i < 0 || i >= len(p.Against) {
		return nil
	}
	for _, x := range p.Against[i] {
		bases = append(bases, p.firstChunk()+int(x)-1)
	}
	return bases
}

// newPlan is a plan of which the hashes of some lists and chunks are known.
func newPlan(p *record.Plan, at record.Ref, lists []cas.Hash, chunks []manifest.Span) *plan {
	x := &plan{Plan: p, at: at}
	x.keys = make([]key, x.firstBase()+len(p.Bases))
	x.keys[0] = keyOf(p.Manifest)
	for i, h := range lists {
		x.keys[1+i] = keyOf(h)
	}
	for i, s := range chunks {
		x.keys[x.firstChunk()+i] = keyOf(s.Hash)
	}
	for i := range p.Bases {
		x.keys[x.firstBase()+i] = p.Bases[i].Hash
	}
	for n, k := range x.keys {
		if k != (key{}) {
			x.order = append(x.order, uint32(n))
		}
	}
	slices.SortFunc(x.order, func(a, b uint32) int { return bytes.Compare(x.keys[a][:], x.keys[b][:]) })
	x.stream.init(x)
	return x
}

// find is the number of a record.
func (p *plan) find(k key) (n int, ok bool) {
	i, ok := slices.BinarySearchFunc(p.order, k, func(n uint32, k key) int {
		return bytes.Compare(p.keys[n][:], k[:])
	})
	if !ok {
		return 0, false
	}
	return int(p.order[i]), true
}

// weight is the memory that it takes, in bytes.
func (p *plan) weight() int64 {
	n := int64(len(p.keys))*(16+4+16) + int64(len(p.Against))*24 + 4096
	for _, a := range p.Against {
		n += 4 * int64(len(a))
	}
	return n
}

// beforePlan is how many bytes that lie before a plan are read along: the manifest and lists of its file,
// most likely.
const beforePlan = 256 << 10

// load reads the plan of a file, and what tells the hashes of its chunks.
func (t *Tier) load(ctx context.Context, f *record.File) (*plan, error) {
	if err := t.readAround(ctx, f.Plan); err != nil {
		return nil, err
	}
	p, err := t.reader.Plan(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	first := newPlan(p, f.Plan, nil, nil)
	local, err := t.holds([]cas.Hash{p.Manifest})
	if err != nil {
		return nil, err
	}
	if !local { // who lacks the manifest lacks the lists, mostly
		err := t.fetch(ctx, t.flights.claim(t.o.Cache, first.between(0, first.firstChunk())))
		if unreachable(err) {
			return nil, err
		}
	}
	raw, err := t.getOf(ctx, first, p.Manifest, nil, segment.AnyNumber, true)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Decode(raw)
	if err != nil {
		return nil, &cas.ChunkError{Hash: p.Manifest, Err: err}
	}
	lists := m.Lists()
	if m.Size != p.Size || len(lists) != len(p.Lists) {
		return nil, lies(p, "a manifest of %d bytes and %d lists, the plan has %d and %d", m.Size, len(lists),
			p.Size, len(p.Lists))
	}
	second := newPlan(p, f.Plan, lists, nil)
	chunks, err := m.Chunks(func(h cas.Hash, dst []byte) ([]byte, error) {
		return t.getOf(ctx, second, h, dst, segment.AnyNumber, true)
	})
	if err != nil {
		return nil, err
	}
	if len(chunks) != len(p.Chunks) {
		return nil, lies(p, "%d chunks, the plan has %d", len(chunks), len(p.Chunks))
	}
	x := newPlan(p, f.Plan, lists, chunks)
	x.stream.bases = t.away(x.between(x.firstBase(), len(x.keys)))
	return x, nil
}

// away is how many stored bytes of some records have to be fetched.
func (t *Tier) away(all []wanted) (n int64) {
	for _, w := range t.absent(all) {
		if r := w.record(); !t.o.Cache.Has(r.Object.ID, r.Off, r.Len()) {
			n += int64(r.Stored)
		}
	}
	return n
}

func lies(p *record.Plan, format string, args ...any) error {
	return fmt.Errorf("manifest %s: %s: %w", p.Manifest.Short(), fmt.Sprintf(format, args...), cas.ErrCorrupt)
}

// between are the records of some numbers.
func (p *plan) between(from, to int) (all []wanted) {
	for n := from; n < to; n++ {
		all = append(all, wanted{p, n})
	}
	return all
}

// readAround has a plan, and what lies before it, come to the cache. What is wrong with it is found when the
// plan is read.
func (t *Tier) readAround(ctx context.Context, r record.Ref) error {
	end := r.Off + segment.Size(int(r.Stored))
	if t.o.Cache.Has(r.Object, r.Off, end-r.Off) {
		return nil
	}
	from := max(segment.FileHeaderSize, r.Off-beforePlan)
	body, _, err := t.cached.Get(ctx, record.ClassMeta.Key(r.Object), from, end-from, "")
	if err != nil {
		if unreachable(err) {
			return err
		}
		return nil
	}
	defer body.Close()
	if _, err = io.Copy(io.Discard, body); !unreachable(err) {
		err = nil
	}
	return err
}

// errUnplanned: no plan has a record.
var errUnplanned = errors.New("no plan has it")
