package segment

import (
	"encoding/binary"
	"slices"

	"ckptfs/cas"
)

// Places are where the records of one segment lie, in 8 bytes each: offset/8, and the first four bytes of the
// hash.
type Places []uint64

func placeOf(off int64, h *cas.Hash) uint64 {
	return uint64(off/8)<<32 | uint64(binary.BigEndian.Uint32(h[:]))
}

// Add adds a record, behind all others.
func (p *Places) Add(r *Record) { *p = append(*p, placeOf(r.Off, &r.Hash)) }

// Has reports whether a record is there, as far as that much of its hash tells.
func (p Places) Has(off int64, h *cas.Hash) bool {
	_, ok := slices.BinarySearch(p, placeOf(off, h))
	return ok
}
