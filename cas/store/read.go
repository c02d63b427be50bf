package store

import (
	"errors"
	"slices"

	"ckptfs/cas"
)

// Locate sets locs[i] to where hashes[i] lies, in the index or on its way there; Segment 0: not held. It waits for
// chunks that are just being written.
func (s *Store) Locate(hashes []cas.Hash, locs []cas.Location) error {
	pend, err := s.onTheirWay(hashes)
	if err != nil {
		return err
	}
	for _, r := range pend {
		if r != nil {
			<-r.done
		}
	}
	if err := s.locate(hashes, locs); err != nil {
		return err
	}
	s.overlay(pend, locs)
	return nil
}

// locateHere is Locate for who holds reshaping. It leaves a damaged index as it is, and waits for nobody: whoever stores a
// chunk may have to make the index anew, for which he waits for that lock. coming[i]: the index does not have hashes[i],
// which is just being stored; nil: none of them.
func (s *Store) locateHere(hashes []cas.Hash, locs []cas.Location) (coming []bool, err error) {
	pend, err := s.onTheirWay(hashes)
	if err != nil {
		return nil, err
	}
	if _, err := s.locateOnce(hashes, locs); err != nil {
		return nil, err
	}
	return s.overlay(pend, locs), nil
}

// onTheirWay lists the records of hashes that are pending; nil: none. It is asked before the index: a record goes into
// that before it ceases to be pending.
func (s *Store) onTheirWay(hashes []cas.Hash) (pend []*record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if len(s.pending) == 0 {
		return nil, nil
	}
	for i, h := range hashes {
		if r := s.pending[h]; r != nil {
			if pend == nil {
				pend = make([]*record, len(hashes))
			}
			pend[i] = r
		}
	}
	return pend, nil
}

// overlay sets locs, which the index told, to where the records of pend were written since it may have been asked. coming
// says which are still claimed and in neither place; nil: none.
func (s *Store) overlay(pend []*record, locs []cas.Location) (coming []bool) {
	if pend == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range pend {
		switch {
		case r == nil || r.state == failed:
		case r.entry.Segment != 0: // an indexed record without an entry was found held
			locs[i] = r.entry.Location
		case r.state == claimed && locs[i].Segment == 0:
			if coming == nil {
				coming = make([]bool, len(pend))
			}
			coming[i] = true
		}
	}
	return coming
}

// Reads is how many records were read from segments since the store was opened, for readers, for packing, and as bases of others, and the
// bytes of their payloads. A record that is read twice counts twice.
func (s *Store) Reads() (records, bytes int64) { return s.reads.records.Load(), s.reads.bytes.Load() }

// Get appends the raw bytes of chunk h to dst. Errors are *cas.ChunkError and wrap cas.ErrNotFound, cas.ErrCorrupt,
// cas.ErrNewer (stored in a way that this version does not know) or the error of the disk; dst is returned as it was.
func (s *Store) Get(h cas.Hash, dst []byte) ([]byte, error) {
	var loc [1]cas.Location
	var known bool
	if loc[0], known = s.located.get(h); !known {
		if err := s.Locate([]cas.Hash{h}, loc[:]); err != nil {
			return dst, &cas.ChunkError{Hash: h, Err: err}
		}
	}
	if loc[0].Segment == 0 && s.doubted() {
		if err := s.Locate([]cas.Hash{h}, loc[:]); err != nil {
			return dst, &cas.ChunkError{Hash: h, Err: err}
		}
	}
	if loc[0].Segment == 0 {
		return dst, &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
	}
	if loc[0].Raw > cas.MaxChunk {
		return dst, &cas.ChunkError{Hash: h, Loc: loc[0], Err: cas.ErrTooLarge}
	}
	n, raw := len(dst), int(loc[0].Raw)
	out := slices.Grow(dst, raw)[:n+raw]
	if err := s.ReadInto(loc[0], h, out[n:]); err != nil {
		return dst, err
	}
	return out, nil
}

// ReadInto fills dst, which must be loc.Raw bytes long, with the raw bytes of chunk h, which Locate found at loc. Errors
// are as for Get; dst's bytes are arbitrary then. A chunk that was moved since is found again.
func (s *Store) ReadInto(loc cas.Location, h cas.Hash, dst []byte) error {
	err := s.read(loc, h, dst)
	for err != nil {
		var now [1]cas.Location
		if s.Locate([]cas.Hash{h}, now[:]) != nil || now[0].Segment == 0 || now[0].Raw != loc.Raw ||
			now[0].Segment == loc.Segment && now[0].Off == loc.Off {
			break
		}
		loc = now[0]
		err = s.read(loc, h, dst)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, cas.ErrCorrupt) {
		s.suspects(h)
	}
	return &cas.ChunkError{Hash: h, Loc: loc, Err: err}
}

// read fills dst, loc.Raw bytes long, with the content of the record of h at loc.
func (s *Store) read(loc cas.Location, h cas.Hash, dst []byte) error {
	// What fits its hash needs no other checksum. What does not is read with all of them, which tell where it went wrong.
	t := decodeSlot{of: s.slots}
	err := s.content(access{hashed: true, slot: &t}, loc, h, dst, anyNumber)
	if err == nil {
		err = cas.Check(dst, h)
	}
	t.give()
	if err == nil {
		return nil
	}
	if err := s.content(access{}, loc, h, dst, anyNumber); err != nil {
		return err
	}
	return cas.Check(dst, h)
}
