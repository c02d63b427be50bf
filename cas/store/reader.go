package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/expected"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
	"ckptfs/cas/trust"
)

// errNoBase: a delta's base is gone.
var errNoBase = fmt.Errorf("the base of another chunk is not in the store: %w", cas.ErrCorrupt)

// reader turns places of records into their contents. It has no lock of its own: its parts have.
type reader struct {
	in      finder
	files   *segment.Files
	known   *lru.Cache[place, segment.Base] // what deltas say of their bases
	ahead   expected.Stretches
	kept    expected.Contents // of bases of recipes
	slots   codec.Slots
	located expected.Places
	trust   trust.Trust
	reads   struct{ records, bytes atomic.Int64 }
}

// finder says where records lie; a Store is one.
type finder interface {
	// locateNow is where h lies; Segment 0: nowhere. It waits for no record that is claimed. locked: the
	// caller holds one of the store's locks.
	locateNow(locked bool, h cas.Hash) (cas.Location, error)
	// doubted is told that a record is not where it should be, and reports whether there is a new index.
	doubted() bool
	// suspects is told that the record of h cannot be read, or is gone.
	suspects(h cas.Hash)
}

func (r *reader) init(in finder, d folder, opt *Options) {
	r.in = in
	r.files = segment.NewFiles(opt.OpenFiles, d.open)
	r.known, _ = lru.New[place, segment.Base](knownBases) // the size is positive
	r.ahead.Init(opt.ExpectBytes)
	r.kept.Init(opt.ExpectBytes / 2)
	r.slots = codec.NewSlots()
	r.trust.Init(!opt.Untrusted, opt.Verified)
}

// access says how a record is read.
type access struct {
	locked bool // the caller holds one of the store's locks
	// hashed: the caller compares the content with its hash or its XXH3, so a payload that was read ahead
	// needs no checksum, unless it is a base's.
	hashed bool
	keep   bool            // the bases of a recipe may be those that were decoded last
	rec    *segment.Record // is set to the record's header, if not nil
	slot   *codec.Slot     // for decoding; nil: it waits for none
}

// read fills dst, loc.Raw bytes long, with the content of the record of h at loc, held against its hash or
// its XXH3 (package trust).
func (r *reader) read(loc cas.Location, h cas.Hash, dst []byte) error {
	var rec segment.Record
	return r.readAs(access{rec: &rec, keep: true}, loc, h, dst, r.trust.Check)
}

// readAs is read by a comparison of its own. by has a rec.
func (r *reader) readAs(by access, loc cas.Location, h cas.Hash, dst []byte,
	check func(*segment.Record, []byte, cas.Hash) error) error {
	// What fits needs no other checksum. What does not is read with all of them, which tell where it went
	// wrong.
	t := r.slots.Slot()
	by.hashed, by.slot = true, &t
	err := r.content(by, loc, h, dst, segment.AnyNumber)
	if err == nil {
		err = check(by.rec, dst, h)
	}
	t.Give()
	if err == nil {
		return nil
	}
	if err := r.content(access{}, loc, h, dst, segment.AnyNumber); err != nil {
		return err
	}
	return cas.Check(dst, h)
}

// byHash compares the hash, whatever the trust.
func byHash(_ *segment.Record, content []byte, h cas.Hash) error { return cas.Check(content, h) }

// intact reports whether the record at loc can be read, and is what h names.
func (r *reader) intact(loc cas.Location, h cas.Hash) bool {
	p := scratch.Get()
	defer scratch.Put(p)
	if loc.Raw > cas.MaxChunk {
		return false
	}
	*p = slices.Grow((*p)[:0], int(loc.Raw))
	return r.readAs(access{rec: new(segment.Record)}, loc, h, (*p)[:loc.Raw], byHash) == nil
}

// content fills dst, loc.Raw bytes long, with the content of the record of h at loc, not held against h.
func (r *reader) content(by access, loc cas.Location, h cas.Hash, dst []byte, below uint8) error {
	if len(dst) != int(loc.Raw) {
		return fmt.Errorf("buffer of %d bytes for a chunk of %d", len(dst), loc.Raw)
	}
	if loc.Raw > cas.MaxChunk || loc.Stored > cas.MaxChunk {
		return cas.ErrTooLarge
	}
	return r.with(loc, func(f *segment.Reader) error { return r.contentIn(by, f, loc, h, dst, below) })
}

// contentIn is content with the segment open.
func (r *reader) contentIn(by access, f *segment.Reader, loc cas.Location, h cas.Hash, dst []byte,
	below uint8) error {
	r.reads.records.Add(1)
	r.reads.bytes.Add(int64(loc.Stored))
	rec := by.rec
	if rec == nil {
		rec = new(segment.Record)
	}
	size := segment.RecordHeaderSize + int(loc.Stored)
	if p, t := r.ahead.Borrow(loc.Segment, loc.Off, size); t != nil {
		record := f.Record
		if by.hashed {
			record = f.Unsummed
		}
		payload, err := record(p, loc, h, rec)
		if err == nil {
			by.slot.Take(rec.Codec)
			err = r.decode(by, rec, payload, dst, below)
		}
		r.ahead.Release(t)
		if err == nil {
			return nil
		} // else the disk is asked: what was read may be from before the record was written
	}
	if loc.Stored == loc.Raw {
		// Stored raw, in all likelihood: read the payload to where it is wanted.
		if err := f.ReadHeader(loc, h, rec); err != nil {
			return err
		}
		if rec.Codec == codec.Raw {
			return f.ReadPayload(loc, rec, dst)
		}
	}
	p := scratch.Get()
	defer scratch.Put(p)
	*p = slices.Grow((*p)[:0], size)
	payload, err := f.ReadRecord(loc, h, rec, (*p)[:size])
	if err != nil {
		return err
	}
	by.slot.Take(rec.Codec)
	return r.decode(by, rec, payload, dst, below)
}

// with calls f with the segment that loc lies in.
func (r *reader) with(loc cas.Location, f func(*segment.Reader) error) error {
	file, err := r.files.Get(loc.Segment)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", cas.ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	defer r.files.Put(file)
	return f(file.Reader)
}

// chase calls f with loc, and again with where h lies now as long as it fails and the record is moved
// meanwhile.
func (r *reader) chase(locked bool, h cas.Hash, loc cas.Location, f func(cas.Location) error) error {
	for {
		err := f(loc)
		if err == nil {
			return nil
		}
		now, lerr := r.in.locateNow(locked, h)
		if lerr != nil || now.Segment == 0 || now.Segment == loc.Segment && now.Off == loc.Off {
			return err
		}
		loc = now
	}
}

// decode fills dst with the content of the record rec, whose payload is at hand; a delta's number must be
// below the given one. The content is not held against the hash.
func (r *reader) decode(by access, rec *segment.Record, payload, dst []byte, below uint8) error {
	if !codec.NeedsBase(rec.Codec) {
		_, err := codec.Decode(dst[:0:len(dst)], rec.Codec, payload, len(dst))
		return err
	}
	b, err := segment.ParseBase(rec.Codec, payload)
	if err != nil {
		return err
	}
	if b.Number >= below {
		return fmt.Errorf("delta of number %d, want less than %d: %w", b.Number, below, cas.ErrCorrupt)
	}
	if rec.Codec == codec.Recipe && by.keep {
		return r.compute(by, &b, payload, dst)
	}
	buf, first := scratch.Room(len(b.Hashes())*cas.ChunkSize), 0
	defer scratch.Put(buf)
	*buf, first, err = delta.Gather(*buf, &b, func(p []byte, base cas.Hash) ([]byte, error) {
		loc, err := r.findBase(by.locked, base)
		if err == nil {
			err = r.baseIn(access{locked: by.locked}, base, loc, b.Number, &p)
		}
		return p, err
	})
	if err == nil {
		_, err = delta.Content(dst[:0:len(dst)], rec.Codec, &b, payload, *buf, first, len(dst))
	}
	return err
}

// compute is decode of a recipe, whose bases may be those that were decoded last.
func (r *reader) compute(by access, b *segment.Base, payload, dst []byte) error {
	held := r.kept.Held()
	defer held.Release()
	_, err := delta.Computed(dst[:0:len(dst)], b, payload, len(dst),
		func(h cas.Hash) ([]byte, error) { return r.hold(&held, by.locked, h) })
	return err
}

// findBase is where a base lies. One that is not there is corruption: cas.ErrCorrupt and errNoBase.
func (r *reader) findBase(locked bool, h cas.Hash) (cas.Location, error) {
	loc, err := r.in.locateNow(locked, h)
	if err == nil && loc.Segment == 0 && !locked && r.in.doubted() {
		loc, err = r.in.locateNow(locked, h)
	}
	if err == nil && loc.Segment == 0 {
		r.in.suspects(h) // as another's delta its number may be too high
		err = &cas.ChunkError{Hash: h, Err: errNoBase}
	}
	return loc, err
}

// hold is baseIn for one of a recipe, which may have been decoded lately, and is held from then on.
func (r *reader) hold(held *expected.Held, locked bool, h cas.Hash) ([]byte, error) {
	loc, err := r.findBase(locked, h)
	if err != nil {
		return nil, err
	}
	return held.Get(h, int(min(loc.Raw, segment.MaxBased)), func(p []byte) ([]byte, bool, error) {
		var rec segment.Record
		err := r.baseIn(access{locked: locked, rec: &rec}, h, loc, segment.RecipeNumber, &p)
		return p, err == nil && r.trust.Check(&rec, p, h) == nil, err
	})
}

// baseFor is baseIn that takes what hold has.
func (r *reader) baseFor(number uint8, h cas.Hash, loc cas.Location, buf *[]byte) error {
	if number != segment.RecipeNumber {
		return r.baseIn(access{}, h, loc, number, buf)
	}
	held := r.kept.Held()
	p, err := r.hold(&held, false, h)
	*buf = append(*buf, p...)
	held.Release()
	return err
}

// baseIn appends to buf the content of h, the base of a record of a number, not held against the hash.
func (r *reader) baseIn(by access, h cas.Hash, loc cas.Location, number uint8, buf *[]byte) error {
	n := len(*buf)
	err := r.chase(by.locked, h, loc, func(at cas.Location) error {
		loc = at
		if at.Raw > segment.MaxBased {
			return fmt.Errorf("base of %d bytes: %w: %w", at.Raw, cas.ErrTooLarge, cas.ErrCorrupt)
		}
		*buf = slices.Grow((*buf)[:n], int(at.Raw))[:n+int(at.Raw)]
		return r.content(by, at, h, (*buf)[n:], number)
	})
	if err == nil {
		return nil
	}
	if damaged(err) {
		r.in.suspects(h)
	}
	return &cas.ChunkError{Hash: h, Loc: loc, Err: fmt.Errorf("another chunk's base: %w", err)}
}

// lead follows the record of h at loc, whose number must be below the given one, to its bases, to theirs, and
// so on. step is told the hash of the one and of the other, and the number of the one, and says where the
// other lies.
func (r *reader) lead(h cas.Hash, loc cas.Location, below uint8,
	step func(of, base cas.Hash, number uint8) (cas.Location, error)) error {
	b, at, err := r.baseOf(h, loc)
	if err == nil && b.Number >= below {
		err = fmt.Errorf("delta of number %d, want less than %d: %w", b.Number, below, cas.ErrCorrupt)
	}
	if err != nil {
		return &cas.ChunkError{Hash: h, Loc: at, Err: err}
	}
	for _, base := range b.Hashes() {
		if loc, err = step(h, base, b.Number); err != nil {
			return err
		}
		if err := r.lead(base, loc, b.Number, step); err != nil {
			return err
		}
	}
	return nil
}

// leads is what the record of h at loc leads back to, as far as that is there.
func (r *reader) leads(h cas.Hash, loc cas.Location) map[cas.Hash]cas.Location {
	all := map[cas.Hash]cas.Location{}
	_ = r.lead(h, loc, segment.AnyNumber, func(_, base cas.Hash, _ uint8) (cas.Location, error) {
		at, err := r.in.locateNow(false, base)
		if err == nil && at.Segment == 0 {
			err = errNoBase
		}
		if err == nil {
			all[base] = at
		}
		return at, err
	})
	return all
}

// place is where a record lies, which always says the same: numbers of segments are given out once.
type place struct {
	segment uint32
	off     int64
}

// knownBases bounds reader.known: some 3 MiB, and 45 if all are recipes of the most bases.
const knownBases = 1 << 15

// baseOf finds out what the record of h at loc says of its base; at is where it was found. Number 0: it is no
// delta.
func (r *reader) baseOf(h cas.Hash, loc cas.Location) (b segment.Base, at cas.Location, err error) {
	at = loc
	if !loc.Delta {
		return b, at, nil
	}
	err = r.chase(false, h, loc, func(now cas.Location) error {
		b, at = segment.Base{}, now
		if !now.Delta {
			return nil
		}
		if b, err = r.baseAt(now, h); err == nil && !r.held(&b) {
			r.known.Remove(place{now.Segment, now.Off}) // a name that nothing has may have been read wrong
			err = r.with(now, func(f *segment.Reader) error { b, err = f.SummedBase(now, h); return err })
		}
		return err
	})
	return b, at, err
}

// baseAt is baseOf for a delta's record at this very place.
func (r *reader) baseAt(loc cas.Location, h cas.Hash) (b segment.Base, err error) {
	p := place{loc.Segment, loc.Off}
	if b, ok := r.known.Get(p); ok {
		return b, nil
	}
	err = r.with(loc, func(f *segment.Reader) (err error) {
		if p, t := r.ahead.Borrow(loc.Segment, loc.Off, segment.BaseHead(loc)); t != nil {
			b, err = f.Base(p, loc, h)
			r.ahead.Release(t)
			if err == nil {
				return nil
			}
		}
		b, err = f.ReadBase(loc, h)
		return err
	})
	if err == nil {
		r.known.Add(p, b)
	}
	return b, err
}

// held reports whether all bases of b are somewhere.
func (r *reader) held(b *segment.Base) bool {
	return !slices.ContainsFunc(b.Hashes(), func(h cas.Hash) bool {
		at, err := r.in.locateNow(true, h) // a caller may hold one of the store's locks
		return err == nil && at.Segment == 0
	})
}

// hashAt is the whole hash of the record at loc, of which the index has a part.
func (r *reader) hashAt(loc cas.Location) (cas.Hash, error) {
	var rec segment.Record
	err := r.with(loc, func(f *segment.Reader) error { return f.HeaderAt(loc.Off, &rec) })
	return rec.Hash, err
}
