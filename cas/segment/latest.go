package segment

import (
	"slices"

	"ckptfs/cas"
)

// latestSegments is how many segments Latest looks at.
const latestSegments = 64

// Latest lists records of a kind that were put last, at most n, the last first, also such as nothing needs
// any more. It looks at the ends of the newest segments alone; what cannot be read is passed over.
func (t *Tails) Latest(kind cas.Kind, n int) (hashes []cas.Hash) {
	tails, _ := t.All()
	add := func(recs []Record) {
		for _, rec := range slices.Backward(recs) {
			if rec.Kind == kind && len(hashes) < n {
				hashes = append(hashes, rec.Hash)
			}
		}
	}
	for _, w := range slices.Backward(tails) {
		add(w.Records())
	}
	numbers, err := t.Sealed()
	if err != nil {
		return hashes
	}
	for i, number := range slices.Backward(numbers) {
		if len(hashes) == n || len(numbers)-i > latestSegments {
			break
		}
		r, err := Open(t.fs, t.dir, ID{Store: t.store, Number: number})
		if err != nil {
			continue
		}
		if _, recs, err := r.Contents(); err == nil {
			add(recs)
		}
		r.Close()
	}
	return hashes
}
