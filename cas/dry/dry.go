// Package dry is a store that keeps nothing: it takes chunks as package store does, stores them in the ways
// in which that would (packages delta and codec), and counts what they would take.
//
// What a chunk is stored against has to be read again. A chunk that lies in its file in one piece is read
// from that file, and is gone if the file has changed since. Everything else, such as lists, manifests and
// chunks of several pieces, goes to a temporary file without a name.
//
//	hash ──▶ number of the record ──▶ record: raw bytes, number in its chain, bases, where the content lies
//	         (spilled.Table)          (spilled.Slab, 64 bytes)
//
// Both tables lie in files that the kernel may write out, so memory does not grow with the number of chunks.
// What is decided by chance in a store with many writers, such as which of two equal chunks comes first, is
// decided here by the order of the Puts. Nothing is decoded to be compared.
package dry

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
)

// perRecord is what a record takes besides its room in a segment: an entry of the footer, and one of the
// index, in bytes.
const perRecord = 56 + 33

// Open opens the file of a number, from which chunks came. What it returns may be closed at any time: it is
// opened again then.
type Open func(file uint32) (io.ReaderAt, error)

// Store is what chunks would be held by. It is safe for concurrent use.
type Store struct {
	open Open
	temp *os.File

	mu      sync.Mutex
	index   *spilled.Table
	records *spilled.Slab[record]
	made    uint32
	end     int64 // of what lies in temp
	err     error

	programs map[cas.Hash]*cas.Recipe // of averages, at most maxPrograms
}

// record is what is known of one. It has no pointers.
type record struct {
	hash         cas.Hash
	off          int64  // of the content, in its file or in temp
	file         uint32 // that it came from
	raw          uint32 // bytes
	base, second uint32 // of a delta: the numbers of its bases, from 1 on; of a recipe of two of them
	stored       uint32 // bytes of the payload
	number       uint8  // segment.Base.Number
	kind         cas.Kind
	temp         bool // the content lies in temp
	settled      bool // it was encoded
}

// New makes a store without records. Its tables and its temporary file lie in dir.
func New(dir *disk.Folder, open Open) (*Store, error) {
	temp, err := os.CreateTemp(dir.Here(), "ckptfs-dry-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(temp.Name()); err != nil {
		temp.Close()
		return nil, err
	}
	return &Store{open: open, temp: temp, index: spilled.New(dir), records: spilled.NewSlab[record](dir)}, nil
}

// Close gives back what the store took.
func (s *Store) Close() error { return s.temp.Close() }

// Err says why the store lost what it had: the disk does not give its tables back.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, s.index.Err())
}

// locked does what reads or changes records.
func (s *Store) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := spilled.Guard(func() error { do(); return nil }); err != nil {
		s.err = err
	}
}

func keyOf(h cas.Hash) (key uint64, who uint32) {
	return binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint32(h[8:12])
}

// findLocked is the record of h and its number; 0: there is none.
func (s *Store) findLocked(h cas.Hash) (n uint32, r *record) {
	if n = s.index.At(keyOf(h)); n == 0 {
		return 0, nil
	}
	if r = s.records.At(int(n - 1)); r.hash != h {
		return 0, nil
	}
	return n, r
}

// find is a copy of the record of h.
func (s *Store) find(h cas.Hash) (found record, ok bool) {
	s.locked(func() {
		if _, r := s.findLocked(h); r != nil {
			found, ok = *r, true
		}
	})
	return found, ok
}

// codecOf is the codec of a record by its number, or one like it: it needs a base as that one does.
func codecOf(number uint8) uint8 {
	switch {
	case number == segment.RoundedNumber:
		return codec.Rounded
	case number == segment.RecipeNumber:
		return codec.Recipe
	case number > 0:
		return codec.Delta
	}
	return codec.Raw
}

// Locate sets locs[i] to what is known of hashes[i]; Segment 0: nothing. Of a codec it tells as much as
// codecOf does.
func (s *Store) Locate(hashes []cas.Hash, locs []cas.Location) error {
	s.locked(func() {
		for i, h := range hashes {
			locs[i] = cas.Location{}
			if _, r := s.findLocked(h); r != nil && r.settled {
				locs[i] = cas.Location{Segment: 1, Stored: r.stored, Raw: r.raw, Kind: r.kind,
					Codec: codecOf(r.number), Delta: r.number > 0}
			}
		}
	})
	return nil
}

// Get appends the content of h to dst. One that is not there any more is cas.ErrNotFound.
func (s *Store) Get(h cas.Hash, dst []byte) ([]byte, error) {
	r, ok := s.find(h)
	if !ok {
		return dst, &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
	}
	n := len(dst)
	dst = slices.Grow(dst, int(r.raw))[:n+int(r.raw)]
	if s.read(&r, dst[n:]) != nil || cas.Check(dst[n:], h) != nil {
		return dst[:n], &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
	}
	return dst, nil
}

func (s *Store) read(r *record, p []byte) error {
	if r.temp {
		_, err := s.temp.ReadAt(p, r.off)
		return err
	}
	for {
		f, err := s.open(r.file)
		if err != nil {
			return err
		}
		n, err := f.ReadAt(p, r.off)
		if n == len(p) {
			return nil
		}
		if !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
}

// located is what the record of h says of its base, and how long it is. Of a recipe it says the first two.
func (s *Store) located(h cas.Hash) (b segment.Base, loc cas.Location, ok bool) {
	s.locked(func() {
		_, r := s.findLocked(h)
		if ok = r != nil && r.settled && (r.number == 0 || r.base > 0); !ok {
			return
		}
		if loc.Raw = r.raw; r.number == 0 {
			return
		}
		b = segment.Base{Hash: s.records.At(int(r.base - 1)).hash, Number: r.number}
		if r.number == segment.RecipeNumber && r.second > 0 {
			b.Others = []cas.Hash{s.records.At(int(r.second - 1)).hash}
		}
	})
	return b, loc, ok
}

// Against is the record that what rel relates to others is stored against; false: it is stored alone.
func (s *Store) Against(rel cas.Related) (base cas.Hash, ok bool) {
	b, _, ok := delta.Next(rel, s.located)
	return b.Hash, ok
}

// Key is the record of number 0 that prev leads back to.
func (s *Store) Key(prev cas.Hash) (key cas.Hash, ok bool) { return delta.Key(prev, s.located) }

// claim adds the record of h, for the caller to settle, and returns its number; 0: there is one, of a file.
// Content that is not to be read from that file is written to temp.
func (s *Store) claim(kind cas.Kind, h cas.Hash, raw []byte, file uint32, rel *cas.Related) (
	n, of uint32, err error) {
	at := rel.Off
	s.locked(func() {
		if _, r := s.findLocked(h); r != nil && r.kind.Serves(kind) {
			of = r.file
			return
		}
		if !rel.InFile {
			at = s.end
			s.end += int64(len(raw))
		}
		r := s.records.New()
		s.made++
		n = s.made
		*r = record{hash: h, off: at, file: file, raw: uint32(len(raw)), kind: kind, temp: !rel.InFile}
		key, who := keyOf(h)
		s.index.Set(key, who, n)
	})
	if n == 0 || rel.InFile {
		return n, of, s.Err()
	}
	_, err = s.temp.WriteAt(raw, at)
	return n, of, errors.Join(err, s.Err())
}

// settle says how the record of a number is stored. It returns the files that its bases came from.
func (s *Store) settle(n uint32, b *segment.Base, stored int) (from []uint32) {
	s.locked(func() {
		r := s.records.At(int(n - 1))
		r.stored, r.number, r.settled = uint32(stored), b.Number, true
		for i, h := range b.Hashes() {
			base, of := s.findLocked(h)
			if of == nil {
				continue
			}
			switch i {
			case 0:
				r.base = base
			case 1:
				r.second = base
			}
			from = append(from, of.file)
		}
	})
	return from
}

// bear reports whether a recipe may have these bases, all of which are there. deep: one of them is a delta.
func (s *Store) bear(bases []cas.Hash) (deep, ok bool) {
	s.locked(func() {
		led := map[uint32]bool{}
		var follow func(n uint32, r *record)
		follow = func(n uint32, r *record) {
			led[n] = true
			for _, base := range []uint32{r.base, r.second} {
				if base > 0 {
					follow(base, s.records.At(int(base-1)))
				}
			}
		}
		for _, h := range bases {
			n, r := s.findLocked(h)
			if n == 0 || !r.settled || r.number >= segment.RecipeNumber {
				return
			}
			deep = deep || r.number > 0
			follow(n, r)
		}
		ok = len(led) <= delta.MostLed
	})
	return deep, ok
}

// contents appends what b names, one behind the other. had is perhaps the first.
func (s *Store) contents(dst []byte, b *segment.Base, had []byte) (all []byte, ok bool) {
	for i, h := range b.Hashes() {
		r, known := s.find(h)
		if !known || r.raw > segment.MaxBased {
			return dst, false
		}
		if i == 0 && len(had) == int(r.raw) && cas.Check(had, h) == nil {
			dst = append(dst, had...)
			continue
		}
		var err error
		if dst, err = s.Get(h, dst); err != nil {
			return dst, false
		}
	}
	return dst, true
}

// kindOf says by its codec how a chunk is stored.
func kindOf(id byte) Kind {
	switch id {
	case codec.Rounded:
		return Rounded
	case codec.LowRank:
		return LowRank
	case codec.Recipe:
		return Recipe
	}
	if codec.NeedsBase(id) {
		return Delta
	}
	return Alone
}
