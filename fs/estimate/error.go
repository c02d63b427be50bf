package estimate

import "math"

// replicate is what one shell took: all of it, and by strata.
type replicate struct {
	raw, stored float64
	by          []sampledStratum
}

// sampledStratum is what a shell had of a stratum: of one file or, of very many files, of some that were
// written one after the other.
type sampledStratum struct {
	stratum     uint16
	raw, stored float32
}

// mostStrata bounds what the strata of all shells take, some 12 MB.
const mostStrata = 1024

func (e *estimator) stratum(file uint32) int {
	return int(int64(file) * min(mostStrata, int64(len(e.files))) / int64(len(e.files)))
}

func (r *replicate) add(stratum int, raw, stored int64) {
	r.raw += float64(raw)
	r.stored += float64(stored)
	if n := len(r.by); n == 0 || int(r.by[n-1].stratum) != stratum {
		r.by = append(r.by, sampledStratum{stratum: uint16(stratum)})
	}
	last := &r.by[len(r.by)-1]
	last.raw += float32(raw)
	last.stored += float32(stored)
}

// quantiles are those of Student's t for an error of 1 in 20 to both sides, by degrees of freedom from 1 on;
// later is that of all others.
var quantiles = []float64{12.7, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26}

const later = 2.2

func quantile(shells int) float64 {
	if shells-1 <= len(quantiles) {
		return quantiles[shells-2]
	}
	return later
}

// doubt is the error of what one shell says, as a share of all bytes.
const doubt = 0.5

// stratum is what all shells had of one.
type stratum struct {
	size, raw, stored float64
	squares           float64 // of what each shell had of raw
}

// shells is how many shells of equal size tell as much as those that had something of the stratum: one that
// had nearly all of it tells of no spread, whatever little the others had.
func (s *stratum) shells() float64 { return effective(s.raw, s.squares) }

func effective(sum, squares float64) float64 {
	if squares == 0 {
		return 0
	}
	return sum * sum / squares
}

// spread is how many shells of equal size have to tell of a stratum.
const spread = 1.5

// shells is how many shells of equal size tell as much as those that were read.
func (e *estimator) shells() float64 {
	var sum, squares float64
	for i := range e.replicates {
		raw := e.replicates[i].raw
		sum, squares = sum+raw, squares+raw*raw
	}
	return effective(sum, squares)
}

// off is the error of an answer, in bytes, 19 times of 20. A file's share is a ratio of sums over shells, so
// its error is the sum of what is left of each shell when that ratio is taken away. What is left is summed
// over all files before it is squared: relatives err together. Of strata that fewer than two shells have,
// nothing is known but how all shells differ.
func (e *estimator) off(size int64) int64 {
	if e.complete || size == 0 {
		return 0
	}
	rest := math.Sqrt(max(0, 1-float64(e.read)/float64(size)))
	var raw, stored float64
	for i := range e.replicates {
		raw += e.replicates[i].raw
		stored += e.replicates[i].stored
	}
	n := e.shells()
	if n < spread {
		return int64(doubt * rest * float64(size))
	}
	strata, seen := e.strata()
	var all, within float64
	for i := range e.replicates {
		r := &e.replicates[i]
		d := r.stored - stored/raw*r.raw
		all += d * d
		d = 0
		for _, s := range r.by {
			if of := &strata[s.stratum]; of.shells() > spread {
				left := float64(s.stored) - of.stored/of.raw*float64(s.raw)
				d += of.size / of.raw * left * math.Sqrt(of.shells()/(of.shells()-1))
			}
		}
		within += d * d
	}
	t := quantile(int(n + 0.5))
	pooled := min(doubt, t*math.Sqrt(all*n/(n-1))/raw) * (float64(size) - seen)
	return int64(rest * (t*math.Sqrt(within) + pooled))
}

// unseenShare is how much of all bytes is equal to, or follows from, what no sample has beside it.
const unseenShare = 0.01

// unseen is by how many bytes an answer may be too high, since samples do not see that. It is the same for all
// of them, so their spread does not tell it.
func (e *estimator) unseen(size int64) int64 {
	if e.complete {
		return 0
	}
	return int64(unseenShare * float64(size))
}

// strata sums up what shells had; seen are the bytes of strata that two had or more.
func (e *estimator) strata() (all []stratum, seen float64) {
	all = make([]stratum, mostStrata)
	for i := range e.replicates {
		for _, s := range e.replicates[i].by {
			of := &all[s.stratum]
			of.raw += float64(s.raw)
			of.squares += float64(s.raw) * float64(s.raw)
			of.stored += float64(s.stored)
		}
	}
	for i, f := range e.files {
		if of := &all[e.stratum(uint32(i))]; !f.out {
			of.size += float64(f.size)
			if of.shells() > spread || f.plain {
				seen += float64(f.size)
			}
		}
	}
	return all, seen
}
