// Package local is what a push takes from the store of this machine: which records a file needs, and their
// bytes as they are stored. Manifests and lists that the store has as differences are encoded again, to stand
// alone: readers elsewhere get them beside the plan, by one request, and nothing that they would need first.
//
// What was listed is pinned until the Source is closed: no sweep takes it, and no compaction stores it
// otherwise. A chunk that proves damaged is stored afresh all the same; its payload is an error then.
package local

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/index/manifest"
)

// Source lists records and reads them. It is made for one push, whose files may share records.
type Source struct {
	store *store.Store
	batch *store.Batch
	mu    sync.Mutex
	hints map[cas.Hash]codec.Hint // of what is encoded again; under mu
}

var _ objects.Source = (*Source)(nil)

// Begin makes a Source, which is to be closed.
func Begin(s *store.Store) *Source {
	return &Source{store: s, batch: s.Begin(), hints: map[cas.Hash]codec.Hint{}}
}

// Close lets go of what was listed.
func (x *Source) Close() { x.batch.Release() }

// Record is the header of a record that needs no other.
func (x *Source) Record(h cas.Hash) (segment.Record, error) {
	found, err := x.headers([]cas.Hash{h})
	if err != nil {
		return segment.Record{}, err
	}
	if len(found[0].base.Hashes()) > 0 {
		return segment.Record{}, &cas.ChunkError{Hash: h, Err: errors.New("it is stored against another record")}
	}
	return found[0].Record, nil
}

// Payload fills p, r.Stored bytes long, with the payload of r, held against its checksum. The error wraps
// objects.ErrChanged when it is stored otherwise since r was listed, and cas.ErrCorrupt when it is damaged.
func (x *Source) Payload(r *segment.Record, p []byte) error {
	if hint, again := x.hint(r.Hash); again {
		return x.encoded(r, p, hint)
	}
	locs := make([]cas.Location, 1)
	if err := x.store.Locate([]cas.Hash{r.Hash}, locs); err != nil {
		return err
	}
	err := x.store.With(r.Hash, locs[0], func(f *segment.Reader, at cas.Location) error {
		var now segment.Record
		if err := f.ReadHeader(at, r.Hash, &now); err != nil {
			return err
		}
		if now.Codec != r.Codec || now.Stored != r.Stored || now.CRC != r.CRC {
			return objects.ErrChanged
		}
		return f.ReadPayload(at, &now, p)
	})
	if err != nil {
		return &cas.ChunkError{Hash: r.Hash, Loc: locs[0], Err: err}
	}
	return nil
}

// Closure lists what decoding the file of a manifest reads.
func (x *Source) Closure(h cas.Hash) (*objects.Closure, error) {
	c := &closure{Source: x, at: map[cas.Hash]int32{}, found: map[cas.Hash]header{}}
	if err := c.file(h); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", h.Short(), err)
	}
	return &c.Closure, nil
}

// header is what a record says.
type header struct {
	segment.Record
	base segment.Base
}

// headers pins hashes and reads the headers of their records.
func (x *Source) headers(hashes []cas.Hash) ([]header, error) {
	if err := x.pin(hashes); err != nil {
		return nil, err
	}
	locs := make([]cas.Location, len(hashes))
	if err := x.store.Locate(hashes, locs); err != nil {
		return nil, err
	}
	order := make([]int, len(hashes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(locs[a].Segment, locs[b].Segment), cmp.Compare(locs[a].Off, locs[b].Off))
	})
	found := make([]header, len(hashes))
	for _, i := range order {
		err := x.store.With(hashes[i], locs[i], func(f *segment.Reader, at cas.Location) error {
			return found[i].read(f, at, hashes[i])
		})
		if err != nil {
			return nil, &cas.ChunkError{Hash: hashes[i], Loc: locs[i], Err: err}
		}
	}
	return found, nil
}

// read reads the header of the record of h at loc, and what it says of its base.
func (x *header) read(f *segment.Reader, loc cas.Location, h cas.Hash) (err error) {
	x.base = segment.Base{}
	if err = f.ReadHeader(loc, h, &x.Record); err == nil && codec.NeedsBase(x.Codec) {
		x.base, err = f.ReadBase(loc, h)
	}
	return err
}

// pin keeps hashes, which are durable, as they are. What is just being stored again is waited for.
func (x *Source) pin(hashes []cas.Hash) error {
	x.batch.Hold(hashes)
	held := make([]bool, len(hashes))
	for range 3 {
		if err := x.batch.PutHeld(cas.Chunk, hashes, held); err != nil {
			return err
		}
		if hashes = lacking(hashes, held); len(hashes) == 0 {
			return nil
		}
		held = held[:len(hashes)]
		if err := x.store.Locate(hashes, make([]cas.Location, len(hashes))); err != nil {
			return err
		}
		if err := x.store.Flush(); err != nil {
			return err
		}
	}
	return &cas.ChunkError{Hash: hashes[0], Err: fmt.Errorf("it is not there, or damaged: %w", cas.ErrNotFound)}
}

// lacking are those of hashes that are not held.
func lacking(hashes []cas.Hash, held []bool) (not []cas.Hash) {
	for i, h := range hashes {
		if !held[i] {
			not = append(not, h)
		}
	}
	return not
}

// closure is one being made.
type closure struct {
	*Source
	objects.Closure
	at    map[cas.Hash]int32 // of Records
	found map[cas.Hash]header
}

// file lists all, in the order in which a reader needs it.
func (c *closure) file(h cas.Hash) error {
	n, err := c.add([]cas.Hash{h})
	if err != nil {
		return err
	}
	c.Manifest = n[0]
	p, err := c.store.Get(h, nil)
	if err != nil {
		return err
	}
	m, err := manifest.Decode(p)
	if err != nil {
		return err
	}
	c.Size = m.Size
	if c.Lists, err = c.add(m.Lists()); err != nil {
		return err
	}
	chunks, err := m.Chunks(c.store.Get)
	if err != nil {
		return err
	}
	hashes := make([]cas.Hash, len(chunks))
	for i, s := range chunks {
		hashes[i] = s.Hash
	}
	c.Chunks, err = c.add(hashes)
	return err
}

// add lists hashes with all that they need, and says which records they are.
func (c *closure) add(hashes []cas.Hash) (at []int32, err error) {
	for more := hashes; len(more) > 0; {
		if more, err = c.find(more); err != nil {
			return nil, err
		}
	}
	at = make([]int32, len(hashes))
	for i, h := range hashes {
		if at[i], err = c.list(h, segment.AnyNumber); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// find reads the headers of hashes, and returns the bases that are not known yet.
func (c *closure) find(hashes []cas.Hash) (bases []cas.Hash, err error) {
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(h cas.Hash) bool {
		_, ok := c.found[h]
		return ok
	})
	found, err := c.headers(hashes)
	if err != nil {
		return nil, err
	}
	for i, h := range hashes {
		if r := &found[i]; r.Kind != cas.Chunk && len(r.base.Hashes()) > 0 {
			if r.Record, err = c.alone(r.Record, codec.Hint{}); err != nil {
				return nil, err
			}
			r.base = segment.Base{}
		}
		c.found[h] = found[i]
	}
	seen := map[cas.Hash]bool{}
	for i := range found {
		for _, h := range found[i].base.Hashes() {
			if _, ok := c.found[h]; !ok && !seen[h] {
				seen[h] = true
				bases = append(bases, h)
			}
		}
	}
	return bases, nil
}

// list puts the record of h behind its bases, unless it is there. Its number is below the given one.
func (c *closure) list(h cas.Hash, below uint8) (int32, error) {
	x := c.found[h]
	if x.base.Number >= below {
		return 0, &cas.ChunkError{Hash: h, Err: fmt.Errorf("delta of number %d, want less than %d: %w",
			x.base.Number, below, cas.ErrCorrupt)}
	}
	if i, ok := c.at[h]; ok {
		return i, nil
	}
	r := objects.Record{Record: x.Record, Number: x.base.Number}
	for _, b := range x.base.Hashes() {
		n, err := c.list(b, x.base.Number)
		if err != nil {
			return 0, err
		}
		r.Bases = append(r.Bases, n)
	}
	c.Records = append(c.Records, r)
	n := int32(len(c.Records) - 1)
	c.at[h] = n
	return n, nil
}
