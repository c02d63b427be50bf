package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
)

// PutAgainst is PutRelated of a new version of the record prev: delta reports whether it is stored as such.
func (b *Batch) PutAgainst(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint, prev cas.Hash) (
	fresh, delta bool, err error) {
	fresh, id, err := b.PutRelated(kind, h, raw, hint, cas.Related{Prev: prev})
	return fresh, fresh && codec.NeedsBase(id), err
}

// Has reports which chunks are held.
func (s *Store) Has(hashes []cas.Hash) ([]bool, error) {
	locs := make([]cas.Location, len(hashes))
	if err := s.Locate(hashes, locs); err != nil {
		return nil, err
	}
	has := make([]bool, len(hashes))
	for i := range locs {
		has[i] = locs[i].Segment != 0
	}
	return has, nil
}
