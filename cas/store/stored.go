package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// With calls f with the segment that has the record of h, which Locate found at loc, and with where it lies;
// again as long as f fails and the record is moved meanwhile.
func (s *Store) With(h cas.Hash, loc cas.Location, f func(*segment.Reader, cas.Location) error) error {
	return s.reader.chase(false, h, loc, func(at cas.Location) error {
		return s.reader.with(at, func(r *segment.Reader) error { return f(r, at) })
	})
}

// Hold has no Compaction store hashes otherwise, until b is released: they are being copied as they are.
func (b *Batch) Hold(hashes []cas.Hash) {
	b.s.pins.mu.Lock()
	defer b.s.pins.mu.Unlock()
	for _, h := range hashes {
		b.s.pins.steady[keyOf(h)]++
	}
	b.steady = append(b.steady, hashes...)
}

// PutStored is Put of a record as another store has it: rec says what it is, payload how it is stored there,
// and raw is its content, which the caller has decoded and held against hash and XXH3. It is stored as it is,
// unless its bases are not such as it can have here.
func (b *Batch) PutStored(rec segment.Record, payload, raw []byte) (fresh bool, err error) {
	var base segment.Base
	if codec.NeedsBase(rec.Codec) {
		if base, err = segment.ParseBase(rec.Codec, payload); err != nil {
			return false, err
		}
	}
	r, err := b.claim(rec.Kind, rec.Hash, base.Number == 0)
	if r == nil || err != nil {
		return false, err
	}
	fresh, full, err := b.putStored(r, rec, base, payload, raw)
	if full && err == nil {
		b.s.filled()
	}
	return fresh, err
}

// putStored is PutStored for r, which is claimed and is settled then. full: a segment was found full.
func (b *Batch) putStored(r *record, rec segment.Record, base segment.Base, payload, raw []byte) (
	fresh, full bool, err error) {
	if held, err := b.s.heldSettled(r); held || err != nil {
		return false, false, err
	}
	a := &against{Base: base}
	if base.Number > 0 && (r.alone || len(raw) > segment.MaxBased || !b.s.lean(r.hash, a)) {
		r.alone = true
		_, full, err = b.store(r, raw, codec.Hint{}, cas.Related{XXH3: rec.XXH3})
		return err == nil, full, err
	}
	b.s.appender.leansOn(r, a.on)
	buf := append(make([]byte, segment.RecordHeaderSize, segment.Size(len(payload))), payload...)
	full, err = b.s.appender.append(r, &rec, buf)
	return err == nil, full, err
}
