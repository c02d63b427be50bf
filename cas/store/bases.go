package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// errNoBase: a delta's base is gone.
var errNoBase = fmt.Errorf("the base of another chunk is not in the store: %w", cas.ErrCorrupt)

// locateNow is Locate for one record, without waiting for anybody: whoever stores a delta looks for its base with it, and
// two who wait for each other would wait for ever. locked: the caller holds one of the store's locks, so that a damaged
// index stays.
func (s *Store) locateNow(locked bool, h cas.Hash) (cas.Location, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return cas.Location{}, ErrClosed
	}
	if r := s.pending[h]; r != nil && r.state == written {
		defer s.mu.Unlock()
		return r.entry.Location, nil
	}
	s.mu.Unlock()
	return one(h, func(hashes []cas.Hash, locs []cas.Location) error {
		if locked {
			_, err := s.locateOnce(hashes, locs)
			return err
		}
		return s.locate(hashes, locs)
	})
}

// one is where a record lies, by who locates several.
func one(h cas.Hash, locate func([]cas.Hash, []cas.Location) error) (cas.Location, error) {
	hashes, locs := [1]cas.Hash{h}, [1]cas.Location{}
	err := locate(hashes[:], locs[:])
	return locs[0], err
}

// with calls f with the segment that loc lies in.
func (s *Store) with(loc cas.Location, f func(*segment.Reader) error) error {
	file, err := s.files.get(loc.Segment)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", cas.ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	defer s.files.put(file)
	return f(file.Reader)
}

// chase calls f with loc, and again with where h lies now as long as it fails and the record is moved meanwhile.
func (s *Store) chase(locked bool, h cas.Hash, loc cas.Location, f func(cas.Location) error) error {
	for {
		err := f(loc)
		if err == nil {
			return nil
		}
		now, lerr := s.locateNow(locked, h)
		if lerr != nil || now.Segment == 0 || now.Segment == loc.Segment && now.Off == loc.Off {
			return err
		}
		loc = now
	}
}

// decode fills dst with the content of the record rec, whose payload is at hand; a delta's number must be below the given
// one. The content is not held against the hash.
func (s *Store) decode(locked bool, rec *segment.Record, payload, dst []byte, below uint8) error {
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
	if len(dst) > segment.MaxBased {
		return fmt.Errorf("delta of %d bytes: %w", len(dst), cas.ErrTooLarge)
	}
	base := buffers.Get().(*[]byte)
	defer freeBuffer(base)
	*base = (*base)[:0]
	first := 0
	for i, h := range b.Hashes() {
		if err := s.base(locked, h, b.Number, base); err != nil {
			return err
		}
		if i == 0 {
			first = len(*base)
		}
	}
	if rec.Codec == codec.LowRank {
		_, err = codec.DecodeLowRank(dst[:0:len(dst)], payload[b.Size():], (*base)[:first:first], (*base)[first:], len(dst))
	} else {
		_, err = codec.DecodeAgainst(dst[:0:len(dst)], rec.Codec, payload[b.Size():], *base, len(dst))
	}
	return err
}

// base appends to buf the content of h, the base of a record of a number; it is not held against the hash. A base that is not
// there is corruption: cas.ErrCorrupt and errNoBase.
func (s *Store) base(locked bool, h cas.Hash, number uint8, buf *[]byte) error {
	loc, err := s.locateNow(locked, h)
	if err == nil && loc.Segment == 0 && !locked && s.doubted() {
		loc, err = s.locateNow(locked, h)
	}
	if err != nil {
		return err
	}
	if loc.Segment == 0 {
		s.suspects(h) // as another's delta its number may be too high
		return &cas.ChunkError{Hash: h, Err: errNoBase}
	}
	n := len(*buf)
	err = s.chase(locked, h, loc, func(at cas.Location) error {
		loc = at
		if at.Raw > segment.MaxBased {
			return fmt.Errorf("base of %d bytes: %w: %w", at.Raw, cas.ErrTooLarge, cas.ErrCorrupt)
		}
		*buf = slices.Grow((*buf)[:n], int(at.Raw))[:n+int(at.Raw)]
		return s.content(access{locked: locked}, at, h, (*buf)[n:], number)
	})
	if err == nil {
		return nil
	}
	if errors.Is(err, cas.ErrCorrupt) {
		s.suspects(h)
	}
	return &cas.ChunkError{Hash: h, Loc: loc, Err: fmt.Errorf("another chunk's base: %w", err)}
}

// suspects notes that the record of h cannot be read, or is gone: the next Put stores it afresh, without a base.
func (s *Store) suspects(h cas.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.suspect) < maxSuspects {
		s.suspect[h] = struct{}{}
	}
}

// access says how a record is read.
type access struct {
	locked bool        // the caller holds one of the store's locks
	hashed bool        // the caller holds the content against its hash: a payload that was read ahead needs no checksum, unless it is a base's
	slot   *decodeSlot // for decoding; nil: it waits for none
}

// content fills dst, loc.Raw bytes long, with the content of the record of h at loc, not held against h.
func (s *Store) content(by access, loc cas.Location, h cas.Hash, dst []byte, below uint8) error {
	if len(dst) != int(loc.Raw) {
		return fmt.Errorf("buffer of %d bytes for a chunk of %d", len(dst), loc.Raw)
	}
	if loc.Raw > cas.MaxChunk || loc.Stored > cas.MaxChunk {
		return cas.ErrTooLarge
	}
	return s.with(loc, func(f *segment.Reader) error { return s.contentIn(by, f, loc, h, dst, below) })
}

// contentIn is content with the segment open.
func (s *Store) contentIn(by access, f *segment.Reader, loc cas.Location, h cas.Hash, dst []byte, below uint8) error {
	s.reads.records.Add(1)
	s.reads.bytes.Add(int64(loc.Stored))
	var rec segment.Record
	size := segment.RecordHeaderSize + int(loc.Stored)
	if p, t := s.ahead.borrow(loc.Segment, loc.Off, size); t != nil {
		record := f.Record
		if by.hashed {
			record = f.Unsummed
		}
		payload, err := record(p, loc, h, &rec)
		if err == nil {
			by.slot.take(&rec)
			err = s.decode(by.locked, &rec, payload, dst, below)
		}
		s.ahead.release(t)
		if err == nil {
			return nil
		} // else the disk is asked: what was read may be from before the record was written
	}
	if loc.Stored == loc.Raw {
		// Stored raw, in all likelihood: read the payload to where it is wanted.
		if err := f.ReadHeader(loc, h, &rec); err != nil {
			return err
		}
		if rec.Codec == codec.Raw {
			return f.ReadPayload(loc, &rec, dst)
		}
	}
	p := buffers.Get().(*[]byte)
	defer freeBuffer(p)
	*p = slices.Grow((*p)[:0], size)
	payload, err := f.ReadRecord(loc, h, &rec, (*p)[:size])
	if err != nil {
		return err
	}
	by.slot.take(&rec)
	return s.decode(by.locked, &rec, payload, dst, below)
}

// anyNumber is above the numbers of all records.
const anyNumber = segment.RoundedNumber + 1

// Link is a record and where it lies.
type Link struct {
	Hash cas.Hash
	Loc  cas.Location
}

// Bases lists the records that are needed to decode the one of h, which Locate found at loc, besides itself: none unless
// it is a delta. It looks at headers alone. A base that is not there is cas.ErrCorrupt.
func (s *Store) Bases(h cas.Hash, loc cas.Location) (links []Link, err error) {
	err = s.lead(h, loc, anyNumber, func(_, base cas.Hash, _ uint8) (cas.Location, error) {
		at, err := s.locateNow(false, base)
		if err == nil && at.Segment == 0 {
			err = &cas.ChunkError{Hash: base, Err: errNoBase}
		}
		links = append(links, Link{base, at})
		return at, err
	})
	return links, err
}

// lead follows the record of h at loc, whose number must be below the given one, to its bases, to theirs, and so on. step is told the
// hash of the one and of the other, and the number of the one, and says where the other lies.
func (s *Store) lead(h cas.Hash, loc cas.Location, below uint8, step func(of, base cas.Hash, number uint8) (cas.Location, error)) error {
	b, at, err := s.baseOf(h, loc)
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
		if err := s.lead(base, loc, b.Number, step); err != nil {
			return err
		}
	}
	return nil
}

// place is where a record lies, which always says the same: numbers of segments are given out once.
type place struct {
	segment uint32
	off     int64
}

// knownBases bounds Store.known, some 3 MiB.
const knownBases = 1 << 15

// baseOf finds out what the record of h at loc says of its base; at is where it was found. Number 0: it is no delta.
func (s *Store) baseOf(h cas.Hash, loc cas.Location) (b segment.Base, at cas.Location, err error) {
	at = loc
	if !loc.Delta {
		return b, at, nil
	}
	err = s.chase(false, h, loc, func(now cas.Location) error {
		b, at = segment.Base{}, now
		if !now.Delta {
			return nil
		}
		b, err = s.baseAt(now, h)
		return err
	})
	return b, at, err
}

// baseAt is baseOf for a delta's record at this very place.
func (s *Store) baseAt(loc cas.Location, h cas.Hash) (b segment.Base, err error) {
	p := place{loc.Segment, loc.Off}
	b, ok := s.known.Get(p)
	if ok {
		return b, nil
	}
	err = s.with(loc, func(f *segment.Reader) (err error) {
		if p, t := s.ahead.borrow(loc.Segment, loc.Off, segment.BaseHead(loc)); t != nil {
			b, err = f.Base(p, loc, h)
			s.ahead.release(t)
			if err == nil {
				return nil
			}
		}
		b, err = f.ReadBase(loc, h)
		return err
	})
	if err == nil {
		s.known.Add(p, b)
	}
	return b, err
}

// link pins base as long as the record of h is pinned, and returns the base's record if it is pending. false: h is not
// pinned, a sweep is just taking the base, the base was found damaged, or it needs h, which an index that lost h does not know.
func (s *Store) link(h, base cas.Hash) (on *record, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, kb := keyOf(h), keyOf(base)
	on = s.pending[base]
	_, doomed := s.doomed[kb]
	_, suspect := s.suspect[base]
	if suspect = suspect && (on == nil || on.state == claimed); doomed || suspect || s.pins[k] == 0 || s.leads(kb, k) || on != nil && on.rising && on.state == claimed {
		return nil, false
	}
	if !slices.Contains(s.needs[k], kb) {
		s.needs[k] = append(s.needs[k], kb)
		s.pins[kb]++
	}
	if s.touched != nil {
		s.touched[kb] = struct{}{}
	}
	if s.linked != nil {
		s.linked[kb] = struct{}{}
	}
	return on, true
}

// leads reports whether the pins of k reach those of to, which are perhaps its own. s.mu is held.
func (s *Store) leads(k, to key) bool {
	return k == to || slices.ContainsFunc(s.needs[k], func(b key) bool { return s.leads(b, to) })
}

// unpin takes one pin off k, and with the last one those that it has on its bases. s.mu is held.
func (s *Store) unpin(k key) {
	if s.pins[k]--; s.pins[k] > 0 {
		return
	}
	delete(s.pins, k)
	bases := s.needs[k]
	delete(s.needs, k)
	for _, b := range bases {
		s.unpin(b)
	}
}

// secure pins all that the record of h at loc needs, and sees that it is there, and was not found damaged. h is pinned. number is that of the record;
// on are the records of its bases that are pending.
func (s *Store) secure(h cas.Hash, loc cas.Location) (number uint8, on []*record, err error) {
	err = s.lead(h, loc, anyNumber, func(of, base cas.Hash, i uint8) (cas.Location, error) {
		rec, ok := s.link(of, base)
		if !ok {
			return cas.Location{}, errNoBase
		}
		if rec != nil {
			on = append(on, rec)
		}
		number = max(number, i) // those of its bases are lower
		at, err := s.locateNow(false, base)
		if err == nil && at.Segment == 0 {
			err = errNoBase
		}
		return at, err
	})
	return number, on, err
}

// against is what a delta is encoded against.
type against struct {
	segment.Base // of the delta
	raw          *[]byte
	on           []*record
}

// Against is the record that a new version of prev is stored against, as things are; ok is false when it is stored alone.
func (s *Store) Against(prev cas.Hash) (base cas.Hash, ok bool) {
	b, ok := s.nextOf(prev)
	if !ok {
		return cas.Hash{}, false
	}
	return b.Hash, true
}

// Key is the record of number 0 that prev leads back to: prev itself, if it is stored alone. false: there is none, for whatever reason.
func (s *Store) Key(prev cas.Hash) (key cas.Hash, ok bool) {
	for key, below := prev, uint8(segment.MaxNumber+1); ; {
		loc, err := s.locateNow(false, key)
		if err != nil || loc.Segment == 0 {
			return cas.Hash{}, false
		}
		b, _, err := s.baseOf(key, loc)
		if err != nil || b.Number >= below {
			return cas.Hash{}, false
		}
		if b.Number == 0 {
			return key, true
		}
		key, below = b.Hash, b.Number
	}
}

// nextOf is the number of a new version of prev, and its base: which of those before it that is. false: there is none, for whatever reason.
func (s *Store) nextOf(prev cas.Hash) (next segment.Base, ok bool) {
	loc, err := s.locateNow(false, prev)
	if err != nil || loc.Segment == 0 {
		return next, false
	}
	b, _, err := s.baseOf(prev, loc)
	if err != nil || b.Number >= segment.MaxNumber {
		return next, false
	}
	next = segment.Base{Hash: prev, Number: b.Number + 1}
	most := segment.BaseNumber(next.Number)
	for b.Number > most {
		below := b.Number
		next.Hash = b.Hash
		if loc, err = s.locateNow(false, next.Hash); err != nil || loc.Segment == 0 {
			return next, false
		}
		if b, _, err = s.baseOf(next.Hash, loc); err != nil || b.Number >= below {
			return next, false
		}
	}
	return next, true
}

// choose finds the base for the record of h, which is claimed, from the version before it, and reads it, unless it is at hand. All that it
// needs is pinned. nil: there is none, for whatever reason. buffers takes raw back.
func (s *Store) choose(h cas.Hash, rel cas.Related) *against {
	if rel.Prev.IsZero() || rel.Prev == h {
		return nil
	}
	b, ok := s.nextOf(rel.Prev)
	if !ok {
		return nil
	}
	return s.take(h, b, rel.Base)
}

// take pins the bases of b for the record of h, which is pinned, and all that these need, and reads them; had is perhaps the content of
// the first. nil: they are not to be had.
func (s *Store) take(h cas.Hash, b segment.Base, had []byte) *against {
	a := &against{Base: b, raw: buffers.Get().(*[]byte)}
	*a.raw = (*a.raw)[:0]
	for _, base := range b.Hashes() {
		if !s.takeOne(h, base, a, had) {
			freeBuffer(a.raw)
			return nil
		}
		had = nil
	}
	return a
}

// takeOne is take for one of the bases.
func (s *Store) takeOne(h, base cas.Hash, a *against, had []byte) bool {
	// Nothing of it was pinned: from here on it is.
	on, ok := s.link(h, base)
	if !ok {
		return false
	}
	if on != nil {
		a.on = append(a.on, on)
	}
	loc, err := s.locateNow(false, base)
	if err != nil || loc.Segment == 0 || loc.Raw > segment.MaxBased {
		return false
	}
	number, more, err := s.secure(base, loc)
	if err != nil || number >= a.Number {
		return false
	}
	a.on = append(a.on, more...)
	if len(had) == int(loc.Raw) && len(had) > 0 && cas.Check(had, base) == nil {
		*a.raw = append(*a.raw, had...)
		return true
	}
	n := len(*a.raw)
	if s.base(false, base, a.Number, a.raw) != nil || cas.Check((*a.raw)[n:], base) != nil {
		*a.raw = (*a.raw)[:n]
		return false
	}
	return true
}
