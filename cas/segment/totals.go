package segment

import "ckptfs/cas"

// Totals counts records by kind.
type Totals struct{ Chunks, Lists, Manifests, Others Tally }

// Tally is a number of records and their bytes.
type Tally struct{ Records, Raw, Stored int64 }

// Count counts a record.
func (t *Totals) Count(r *Record) { t.of(r.Kind).Add(Tally{1, int64(r.Raw), int64(r.Stored)}) }

// Discount undoes Count.
func (t *Totals) Discount(r *Record) { t.of(r.Kind).Add(Tally{-1, -int64(r.Raw), -int64(r.Stored)}) }

func (t *Totals) of(k cas.Kind) *Tally {
	switch k {
	case cas.Chunk:
		return &t.Chunks
	case cas.List:
		return &t.Lists
	case cas.Manifest:
		return &t.Manifests
	}
	return &t.Others
}

// Add adds u to t.
func (t *Tally) Add(u Tally) {
	t.Records += u.Records
	t.Raw += u.Raw
	t.Stored += u.Stored
}

// Add adds u to t.
func (t *Totals) Add(u Totals) {
	t.Chunks.Add(u.Chunks)
	t.Lists.Add(u.Lists)
	t.Manifests.Add(u.Manifests)
	t.Others.Add(u.Others)
}
