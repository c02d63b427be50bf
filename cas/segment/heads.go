package segment

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/scratch"
)

// Heads reads the headers of some records of a segment. Where they are small it reads all that lies between
// them with one call, which takes less than a call for each.
type Heads struct {
	r    *Reader
	from int64
	p    *[]byte // what lies there; nil: each is read alone
}

// mostBetween is how much, for each record, is read of the others.
const mostBetween = 2 << 10

// Heads begins to read the headers of recs, which are in ascending order.
func (r *Reader) Heads(recs []Record) Heads {
	h := Heads{r: r}
	if len(recs) == 0 {
		return h
	}
	h.from = recs[0].Off
	n := recs[len(recs)-1].Off + RecordHeaderSize - h.from
	if n < 0 || n > mostBetween*int64(len(recs)) {
		return h
	}
	p := scratch.Get()
	*p = slices.Grow((*p)[:0], int(n))[:n]
	if r.read(*p, h.from) != nil { // which one cannot be read is told when each is
		scratch.Put(p)
		return h
	}
	h.p = p
	return h
}

// Read is Reader.ReadHeader.
func (h Heads) Read(loc cas.Location, hash cas.Hash, rec *Record) error {
	at := loc.Off - h.from
	if h.p == nil || at < 0 || at+RecordHeaderSize > int64(len(*h.p)) {
		return h.r.ReadHeader(loc, hash, rec)
	}
	return h.r.match((*h.p)[at:at+RecordHeaderSize], loc, hash, rec)
}

// End lets go of what was read.
func (h Heads) End() {
	if h.p != nil {
		scratch.Put(h.p)
	}
}
