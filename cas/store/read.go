package store

import (
	"errors"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// Locate sets locs[i] to where hashes[i] lies, in the index or on its way there; Segment 0: not held. It
// waits for chunks that are just being written.
func (s *Store) Locate(hashes []cas.Hash, locs []cas.Location) error {
	pend, err := s.appender.onTheirWay(hashes)
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
	s.appender.overlay(pend, locs)
	return nil
}

// locateHere is Locate for a caller that holds passes.reshaping. It leaves a damaged index as it is, and
// waits for no record: the Put that stores it may have to make the index again, for which it waits for that
// lock. coming[i]: the index does not have hashes[i], which is just being stored; nil: none of them.
func (s *Store) locateHere(hashes []cas.Hash, locs []cas.Location) (coming []bool, err error) {
	pend, err := s.appender.onTheirWay(hashes)
	if err != nil {
		return nil, err
	}
	if _, err := s.indexer.locateOnce(hashes, locs); err != nil {
		return nil, err
	}
	return s.appender.overlay(pend, locs), nil
}

// locateNow is Locate for one record, without waiting for a claimed record: a Put looks for the base of a
// delta with it, and two of them that wait for each other would wait for ever. locked: the caller holds one
// of the store's locks, so that a damaged index stays.
func (s *Store) locateNow(locked bool, h cas.Hash) (cas.Location, error) {
	if loc, err := s.appender.writtenAt(h); err != nil || loc.Segment != 0 {
		return loc, err
	}
	return one(h, func(hashes []cas.Hash, locs []cas.Location) error {
		if locked {
			_, err := s.indexer.locateOnce(hashes, locs)
			return err
		}
		return s.locate(hashes, locs)
	})
}

// one is where a record lies, by a function that locates several.
func one(h cas.Hash, locate func([]cas.Hash, []cas.Location) error) (cas.Location, error) {
	hashes, locs := [1]cas.Hash{h}, [1]cas.Location{}
	err := locate(hashes[:], locs[:])
	return locs[0], err
}

// suspects notes that the record of h cannot be read, or is gone: the next Put stores it afresh.
func (s *Store) suspects(h cas.Hash) { s.opt.Known.Suspects(h) }

// Reads is how many records were read from segments since the store was opened, for readers, for packing, and
// as bases of others, and the bytes of their payloads. A record that is read twice counts twice.
func (s *Store) Reads() (records, bytes int64) {
	return s.reader.reads.records.Load(), s.reader.reads.bytes.Load()
}

// Get appends the raw bytes of chunk h to dst. Errors are *cas.ChunkError and wrap cas.ErrNotFound,
// cas.ErrCorrupt, cas.ErrNewer (stored in a way that this version does not know) or the error of the disk;
// dst is returned as it was.
func (s *Store) Get(h cas.Hash, dst []byte) ([]byte, error) {
	var loc [1]cas.Location
	var known bool
	if loc[0], known = s.reader.located.Get(h); !known {
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

// ReadInto fills dst, which must be loc.Raw bytes long, with the raw bytes of chunk h, which Locate found at
// loc. Errors are as for Get; dst's bytes are arbitrary then. A chunk that was moved since is found again.
func (s *Store) ReadInto(loc cas.Location, h cas.Hash, dst []byte) error {
	err := s.reader.read(loc, h, dst)
	for err != nil {
		var now [1]cas.Location
		if s.Locate([]cas.Hash{h}, now[:]) != nil || now[0].Segment == 0 || now[0].Raw != loc.Raw ||
			now[0].Segment == loc.Segment && now[0].Off == loc.Off {
			break
		}
		loc = now[0]
		err = s.reader.read(loc, h, dst)
	}
	if err == nil {
		if !s.opt.ReadOnly { // no local copy is dropped
			s.opt.Known.Proves(h)
		}
		return nil
	}
	if damaged(err) {
		s.suspects(h)
	}
	return &cas.ChunkError{Hash: h, Loc: loc, Err: err}
}

// lose notes that segment n could not be opened, read or made durable as a whole when the index was brought
// up to date: of its records only those were believed that the index had. They stay in the index, since a
// disk may think better of it, but a Put holds them for damaged. No sweep looks at the segment.
func (s *Store) lose(n uint32, unsettled bool, err error) {
	s.lost.Add(n, unsettled)
	s.unreadable(n, err)
}

// unreadable counts a segment that the disk does not read, or not all of.
func (s *Store) unreadable(n uint32, err error) {
	if !s.lost.Tell(n) {
		return
	}
	s.appender.mu.Lock()
	s.appender.stats.Unreadable++
	s.appender.mu.Unlock()
	if s.opt.Unreadable != nil {
		s.opt.Unreadable(n, err)
	}
}

// damaged reports whether err says that what was stored is not there any more.
func damaged(err error) bool { return errors.Is(err, cas.ErrCorrupt) || disk.Unreadable(err) }
