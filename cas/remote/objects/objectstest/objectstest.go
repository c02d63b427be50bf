// Package objectstest is a local store for tests of what copies records of one, and a reader of what they
// put. Records are as package segment has them, but that nothing decodes a delta, or a manifest.
package objectstest

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/segment"
)

// Store is an objects.Source.
type Store struct {
	mu      sync.Mutex
	rand    *rand.ChaCha8
	records map[cas.Hash]*stored
	files   map[cas.Hash]file
	lost    map[cas.Hash]error
}

type stored struct {
	segment.Record
	number  uint8
	bases   []cas.Hash
	payload []byte
}

type file struct {
	size          int64
	lists, chunks []cas.Hash
}

// New is an empty store, whose records come from seed.
func New(seed uint64) *Store {
	key := [32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}
	return &Store{rand: rand.NewChaCha8(key), records: map[cas.Hash]*stored{},
		files: map[cas.Hash]file{}, lost: map[cas.Hash]error{}}
}

// Alone is a new record that is stored alone.
func (s *Store) Alone(kind cas.Kind, size int) cas.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := s.bytes(size)
	h := cas.Sum(raw)
	s.add(h, &stored{Record: segment.Record{Kind: kind, Codec: codec.Raw, Raw: uint32(size)}, payload: raw})
	return h
}

// Delta is a new record that is stored against others: one, a base and columns, or as many as a recipe has.
func (s *Store) Delta(kind cas.Kind, size int, bases ...cas.Hash) cas.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := cas.Sum(s.bytes(32))
	s.against(h, kind, size, bases)
	return h
}

// Recode stores a record in another way.
func (s *Store) Recode(h cas.Hash, size int, bases ...cas.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[h]
	if len(bases) > 0 {
		s.against(h, r.Kind, size, bases)
		return
	}
	s.add(h, &stored{Record: segment.Record{Kind: r.Kind, Codec: codec.Zstd, Raw: r.Raw},
		payload: s.bytes(size)})
}

func (s *Store) against(h cas.Hash, kind cas.Kind, size int, bases []cas.Hash) {
	number, id := uint8(0), codec.Delta
	for _, b := range bases {
		number = max(number, s.records[b].number)
	}
	base := segment.Base{Hash: bases[0], Number: number + 1}
	switch {
	case len(bases) == 2 && number < segment.MaxNumber:
		base.Second, id = bases[1], codec.LowRank
	case len(bases) > 1:
		base.Others, base.Number, id = bases[1:], segment.RecipeNumber, codec.Recipe
	}
	p := make([]byte, base.Size())
	base.Put(p)
	s.add(h, &stored{Record: segment.Record{Kind: kind, Codec: id, Raw: 256 << 10}, number: base.Number,
		bases: bases, payload: append(p, s.bytes(max(1, size-len(p)))...)})
}

func (s *Store) bytes(n int) []byte {
	p := make([]byte, n)
	s.rand.Read(p)
	return p
}

func (s *Store) add(h cas.Hash, r *stored) {
	r.Hash, r.Stored = h, uint32(len(r.payload))
	r.XXH3, r.CRC = cas.XXH3(h[:16]), crc32.Checksum(r.payload, crc32.MakeTable(crc32.Castagnoli))
	s.records[h] = r
}

// File is a new file of lists and chunks, by its manifest, which is stored against others or alone.
func (s *Store) File(lists, chunks []cas.Hash, bases ...cas.Hash) cas.Hash {
	m := s.Alone(cas.Manifest, 300)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(bases) > 0 {
		s.against(m, cas.Manifest, 90, bases)
	}
	s.files[m] = file{int64(len(chunks)) << 18, lists, chunks}
	return m
}

// Simple is a new file of some new chunks of size stored bytes.
func (s *Store) Simple(chunks, size int) cas.Hash {
	all := make([]cas.Hash, chunks)
	for i := range all {
		all[i] = s.Alone(cas.Chunk, size)
	}
	return s.File([]cas.Hash{s.Alone(cas.List, 40+32*chunks)}, all)
}

// Chunks are those of a file.
func (s *Store) Chunks(manifest cas.Hash) []cas.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[manifest].chunks
}

// Number is that of a record.
func (s *Store) Number(h cas.Hash) uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[h].number
}

// Full reports whether nothing can be stored against a record.
func (s *Store) Full(h cas.Hash) bool { return s.Number(h) >= segment.MaxNumber }

// Lose lets a record fail with err when its payload is read; nil: no more.
func (s *Store) Lose(h cas.Hash, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[h] = err
}

// Closure is objects.Source's.
func (s *Store) Closure(manifest cas.Hash) (*objects.Closure, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[manifest]
	if !ok {
		return nil, cas.ErrNotFound
	}
	l := &lister{Store: s, c: &objects.Closure{Size: f.size}, at: map[cas.Hash]int32{}}
	l.c.Manifest = l.add(manifest)
	for _, h := range f.lists {
		l.c.Lists = append(l.c.Lists, l.add(h))
	}
	seen := map[cas.Hash]bool{}
	for _, h := range f.chunks {
		if !seen[h] {
			l.c.Chunks = append(l.c.Chunks, l.add(h))
		}
		seen[h] = true
	}
	return l.c, nil
}

type lister struct {
	*Store
	c  *objects.Closure
	at map[cas.Hash]int32
}

// add lists a record behind its bases.
func (l *lister) add(h cas.Hash) int32 {
	if i, ok := l.at[h]; ok {
		return i
	}
	r := l.records[h]
	var bases []int32
	for _, b := range r.bases {
		bases = append(bases, l.add(b))
	}
	i := int32(len(l.c.Records))
	l.c.Records = append(l.c.Records, objects.Record{Record: r.Record, Number: r.number, Bases: bases})
	l.at[h] = i
	return i
}

// Record is objects.Source's.
func (s *Store) Record(h cas.Hash) (segment.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[h]
	if !ok {
		return segment.Record{}, cas.ErrNotFound
	}
	return r.Record, nil
}

// Payload is objects.Source's.
func (s *Store) Payload(r *segment.Record, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lost[r.Hash]; err != nil {
		return err
	}
	have := s.records[r.Hash]
	if have.CRC != r.CRC || len(p) != len(have.payload) {
		return fmt.Errorf("record %s: %w", r.Hash.Short(), objects.ErrChanged)
	}
	copy(p, have.payload)
	return nil
}

var errPlan = errors.New("the plan is not that of the file")
