package bring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// maxWaiting bounds the payloads that wait for bases, in bytes. A test replaces it.
var maxWaiting = 64 << 20

// key is as much of a hash as a plan says of a base.
type key [16]byte

func keyOf(h cas.Hash) key { return key(h[:16]) }

// order puts the records of one file so that bases come first. Invariants, under mu:
//
//	put      has what was put; nothing waits for it
//	waiting  has payloads by a base that is not there, bytes of them
//	coming   has what is wanted of the fetch under way and of the next, by what is known of it
//	later    are the numbers of what the next fetch gets
type order struct {
	*transfer
	all []want // of the fetches of one call of bring; under mu while one is under way

	mu      sync.Mutex
	waiting map[key][]waiter
	bytes   int
	coming  map[key]bool
	blind   int // how many are wanted of which nothing is known
	later   []int
	why     map[int]error // why a record that waited is fetched again
}

// waiter is a record that waits for a base.
type waiter struct {
	i       int // of all
	rec     segment.Record
	payload []byte
}

// bring puts records, and those of the plan's bases that are of some kinds and not there.
func (t *transfer) bring(ctx context.Context, all []want, kinds func(cas.Kind) bool) error {
	if len(all) == 0 {
		return nil
	}
	o := &order{transfer: t, waiting: map[key][]waiter{}, coming: map[key]bool{}, why: map[int]error{}}
	bases, err := o.bases(kinds)
	if err != nil {
		return err
	}
	o.all = append(bases, all...)
	for i := range o.all {
		o.later = append(o.later, i)
		if w := &o.all[i]; w.known() {
			o.coming[w.key] = true
		} else {
			o.blind++
		}
	}
	return o.rounds(ctx)
}

// rounds fetches until all is put.
func (o *order) rounds(ctx context.Context) error {
	for len(o.later) > 0 {
		todo, had, wanted := o.later, len(o.put), len(o.all)
		o.later = nil
		if err := o.fetch(ctx, todo); err != nil {
			return err
		}
		if len(o.later) > 0 && len(o.put) == had && len(o.all) == wanted {
			return o.stuck(o.later[0])
		}
	}
	for _, ws := range o.waiting {
		return o.stuck(ws[0].i)
	}
	return nil
}

// fetch gets those of all that todo numbers.
func (o *order) fetch(ctx context.Context, todo []int) error {
	records := make([]fetch.Record, len(todo))
	for n, i := range todo {
		records[n] = o.all[i].Record
	}
	return o.Reader.Each(ctx, records, func(n int, rec *segment.Record, payload []byte) error {
		i := todo[n]
		w := o.want(i)
		if err := w.check(rec); err != nil {
			return err
		}
		if err := o.take(i, rec, payload); err != nil {
			return &cas.ChunkError{Hash: rec.Hash, Err: err}
		}
		return nil
	})
}

func (o *order) want(i int) want {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[i]
}

// stuck is the error of a record that nothing helps.
func (o *order) stuck(i int) error {
	w := &o.all[i]
	err := o.why[i]
	if err == nil {
		err = fmt.Errorf("what it is stored against does not come: %w", cas.ErrCorrupt)
	}
	return &fetch.Error{Key: w.Object.Class.Key(w.Object.ID), Off: w.Off, Err: err}
}

// bases are those of the plan that are of some kinds and neither there nor put.
func (o *order) bases(kinds func(cas.Kind) bool) (all []want, err error) {
	var hashes []cas.Hash
	for i := range o.plan.Bases {
		if x := &o.plan.Bases[i]; kinds(x.Kind) && !o.put[x.Hash] {
			all = append(all, o.base(x))
			var h cas.Hash // the index tells no more of it apart
			copy(h[:], x.Hash[:])
			hashes = append(hashes, h)
		}
	}
	locs := make([]cas.Location, len(hashes))
	if err := o.Store.Locate(hashes, locs); err != nil {
		return nil, err
	}
	n := -1
	return slices.DeleteFunc(all, func(want) bool { n++; return locs[n].Segment != 0 }), nil
}

func (o *order) base(x *record.Base) want {
	w := o.at(x.Record, x.Kind, cas.Hash{})
	w.key = x.Hash
	return w
}

// take puts record i, or has it wait for a base. An error that wraps cas.ErrCorrupt is of its bytes.
func (o *order) take(i int, rec *segment.Record, payload []byte) error {
	var base segment.Base
	if codec.NeedsBase(rec.Codec) {
		var err error
		if base, err = segment.ParseBase(rec.Codec, payload); err != nil {
			return err
		}
	}
	var lacked cas.Hash
	for {
		missing, err := o.store(rec, &base, payload)
		if err != nil {
			return err
		}
		switch missing {
		case cas.Hash{}:
			o.came(i, rec)
			o.wake(rec.Hash)
			return nil
		case lacked:
			return fmt.Errorf("%s was put, and cannot be read in the local store", missing.Short())
		}
		lacked = missing
		if waits, err := o.wait(i, rec, payload, missing); waits || err != nil {
			return err
		}
	}
}

// came notes where record i, which was put, lies.
func (o *order) came(i int, rec *segment.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in := o.all[i].Object
	o.placed[in] = append(o.placed[in], objects.Placed{Hash: rec.Hash, Off: rec.Off, Raw: rec.Raw,
		Stored: rec.Stored, CRC: rec.CRC, Kind: rec.Kind, Based: codec.NeedsBase(rec.Codec)})
}

// wait has record i wait for a base. false: that was put meanwhile.
func (o *order) wait(i int, rec *segment.Record, payload []byte, base cas.Hash) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := keyOf(base)
	if o.put[k] {
		return false, nil
	}
	if !o.coming[k] && !o.planned(k) && o.blind == 0 {
		return false, fmt.Errorf("the plan lacks %s, against which it is stored: %w", base.Short(), cas.ErrCorrupt)
	}
	if o.bytes+len(payload) > maxWaiting {
		o.later = append(o.later, i)
		return true, nil
	}
	o.bytes += len(payload)
	o.waiting[k] = append(o.waiting[k], waiter{i, *rec, slices.Clone(payload)})
	return true, nil
}

// planned has a base be fetched next that seemed to be there, if the plan has it.
func (o *order) planned(k key) bool {
	n := slices.IndexFunc(o.plan.Bases, func(x record.Base) bool { return x.Hash == k })
	if n >= 0 {
		o.coming[k] = true
		o.later = append(o.later, len(o.all))
		o.all = append(o.all, o.base(&o.plan.Bases[n]))
	}
	return n >= 0
}

// wake notes that h was put, and puts what waited for it. What is wrong with that is not said of h: it is
// fetched again.
func (o *order) wake(h cas.Hash) {
	o.mu.Lock()
	k := keyOf(h)
	if !o.put[k] && !o.coming[k] {
		o.blind--
	}
	o.put[k] = true
	ready := o.waiting[k]
	delete(o.waiting, k)
	for _, w := range ready {
		o.bytes -= len(w.payload)
	}
	o.mu.Unlock()
	for _, w := range ready {
		if err := o.take(w.i, &w.rec, w.payload); err != nil {
			o.mu.Lock()
			o.why[w.i] = &cas.ChunkError{Hash: w.rec.Hash, Err: err}
			o.later = append(o.later, w.i)
			o.mu.Unlock()
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// store decodes a record and puts it. missing is a base that is not there, or not as it was.
func (o *order) store(rec *segment.Record, base *segment.Base, payload []byte) (missing cas.Hash, err error) {
	raw, bases := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	defer buffers.Put(raw)
	defer buffers.Put(bases)
	var first int
	*bases, first, err = delta.Gather((*bases)[:0], base, func(buf []byte, h cas.Hash) ([]byte, error) {
		out, err := o.Store.Get(h, buf)
		if errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) {
			missing = h
		}
		return out, err
	})
	if !missing.IsZero() {
		return missing, nil
	}
	if err != nil {
		return missing, err
	}
	if *raw, err = decode((*raw)[:0], rec, payload, *bases, first); err != nil {
		return missing, err
	}
	if _, err := o.batch.PutStored(*rec, payload, *raw); err != nil {
		return missing, err
	}
	if o.Progress != nil {
		o.Progress(1, int64(len(payload)))
	}
	return missing, nil
}

// decode appends the content of a record to dst, which is what its hash and its XXH3 name. bases are as in
// fetch.Content.
func decode(dst []byte, rec *segment.Record, payload, bases []byte, first int) ([]byte, error) {
	raw, err := fetch.Content(dst, rec, payload, bases, first)
	if err == nil {
		err = cas.Check(raw, rec.Hash)
	}
	if err == nil {
		err = cas.CheckXXH3(raw, rec.XXH3)
	}
	return raw, err
}
