package recipes

import (
	"cmp"
	"slices"

	"ckptfs/cas/anchor"
)

const (
	ends      = 4096      // elements at the beginning and the end of a tensor of which windows are looked for
	perEnd    = 4         // windows of each
	maxScan   = 256 << 20 // bytes of sources that are looked through for a tensor
	maxZeros  = 64 << 20  // of padding
	maxPlaces = 1 << 16   // that are counted
)

// windowOf is a window of the tensor with a number, at an element of it.
type windowOf struct {
	tensor int
	at     int64
	end    bool // of the end of the tensor
}

// placed is a tensor in another, which begins at an element that may lie before the first.
type placed struct {
	tensor int
	at     int64
}

// ballot is how many windows say so: at the beginning of the tensor, and at its end.
type ballot struct{ begin, end int }

func (b ballot) sum() int { return b.begin + b.end }

// sought are windows that are looked for.
type sought struct {
	set anchor.Set
	of  map[anchor.Key][]windowOf
}

// add adds some windows of p, numbers of bfloat16, which begin at an element of a tensor.
func (s *sought) add(tensor int, first int64, p []byte, end bool) {
	n := 0
	for i := 0; i+anchor.Width <= len(p) && n < perEnd; i += anchor.Width {
		k, ok := anchor.WindowKey(p[i:])
		if !ok || len(s.of[k]) >= perEnd {
			continue
		}
		if s.of == nil {
			s.of = map[anchor.Key][]windowOf{}
		}
		s.set.Add(k)
		s.of[k] = append(s.of[k], windowOf{tensor, first + int64(i/2), end})
		n++
	}
}

// in looks for the windows in p, numbers of bfloat16 that begin at an element, and counts where their tensors
// begin then.
func (s *sought) in(p []byte, first int64, votes map[placed]ballot) {
	s.set.In(p, func(i int, k anchor.Key) {
		for _, w := range s.of[k] {
			at := placed{w.tensor, first + int64(i) - w.at}
			b := votes[at]
			if w.end {
				b.end++
			} else {
				b.begin++
			}
			if len(votes) < maxPlaces || b.sum() > 1 {
				votes[at] = b
			}
		}
	})
}

// flat is the layout by sources that lie in the target as a whole, or up to where that begins or ends, or of
// which it is a part. What is quantised is not looked for.
func (f *Finder) flat(t *Target, sources []*source) (layout, error) {
	typ, ok := types[t.Tensor.DType]
	if !ok {
		return nil, nil
	}
	n := t.Tensor.NumElements()
	var of sought
	for i, s := range sources {
		all := s.t.NumElements()
		of.add(i, 0, f.halves(s, 0, min(all, ends)), false)
		if all > ends {
			of.add(i, all-ends, f.halves(s, all-ends, ends), true)
		}
	}
	numbers := asNumbers(t.Tensor)
	size := int64(typ.Size())
	read := func(first, n int64) ([]byte, error) {
		p, err := t.Read(first*size, int(n*size))
		if err != nil {
			return nil, err
		}
		return numbers.AsBF16(make([]byte, len(p)), p), nil
	}
	votes := map[placed]ballot{}
	const over = anchor.Width/2 - 1
	for at := int64(0); at < n && of.set.Len() > 0; at += atOnce / size {
		p, err := read(at, min(n-at, atOnce/size+over))
		if err != nil {
			return nil, err
		}
		of.in(p, at, votes)
	}
	l := lay(votes, n, func(p placed) (int, int64, int64) { return p.tensor, p.at, sources[p.tensor].t.NumElements() })
	if first := (append(l, piece{at: n}))[0].at; first > n/8 {
		// The beginning of the target lies somewhere within a source.
		head, err := read(0, min(n, ends))
		if err != nil {
			return nil, err
		}
		var own sought
		own.add(0, 0, head, false)
		l = f.within(l, &own, sources, n)
	}
	return f.pad(l, n, func(first, n int64) ([]byte, error) { return t.Read(first*size, int(n*size)) }, size)
}

// within adds to l the source in which the target begins.
func (f *Finder) within(l pieces, own *sought, sources []*source, n int64) pieces {
	left := int64(maxScan)
	for i, s := range sources {
		all, size := s.t.NumElements(), int64(s.typ.Size())
		votes := map[placed]ballot{}
		for at := int64(0); at < all && left > 0 && own.set.Len() > 0; at += atOnce / size {
			p := f.halves(s, at, min(all-at, atOnce/size+anchor.Width/2-1))
			if p == nil {
				break
			}
			left -= atOnce
			own.in(p, at, votes)
		}
		// The target begins at an element of the source, which so begins as many before the target.
		for _, p := range lay(votes, all, func(p placed) (int, int64, int64) { return 0, p.at, n }) {
			m := all - p.at
			if len(l) > 0 {
				m = min(m, l[0].at)
			}
			return slices.Insert(l, 0, piece{0, min(m, n), i, p.at})
		}
	}
	return l
}

// lay makes pieces of what is where, of n elements, where enough windows say so: those of most votes first.
// A tensor of which only the beginning is found ends where the next one begins, if it does not end before; one
// of which only the end is found begins where the one before ends: each rank may have a part of every tensor.
func lay(votes map[placed]ballot, n int64, is func(p placed) (tensor int, at, length int64)) (l pieces) {
	var all []placed
	for p, v := range votes {
		if v.sum() >= minVotes {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(votes[b].sum(), votes[a].sum()), cmp.Compare(a.at, b.at),
			cmp.Compare(a.tensor, b.tensor))
	})
	// What is sure of each is where its windows are.
	type sure struct {
		from, to   int64 // of the target
		tensor     int
		at, length int64
		begin, end bool
	}
	var found []sure
	for _, p := range all {
		x := sure{begin: votes[p].begin > 0, end: votes[p].end > 0}
		x.tensor, x.at, x.length = is(p)
		x.from, x.to = x.at, x.at+x.length
		if !x.begin {
			x.from = max(x.from, x.to-ends)
		}
		if !x.end {
			x.to = min(x.to, x.from+ends)
		}
		x.from, x.to = max(0, x.from), min(n, x.to)
		i, same := slices.BinarySearchFunc(found, x.from, func(y sure, at int64) int {
			return cmp.Compare(y.from, at)
		})
		if same || x.from >= x.to || i > 0 && found[i-1].to > x.from || i < len(found) && found[i].from < x.to ||
			len(found) == maxPieces {
			continue
		}
		found = slices.Insert(found, i, x)
	}
	last := int64(0)
	for i, x := range found {
		from, to := max(last, x.at), min(n, x.at+x.length)
		if i+1 < len(found) {
			to = min(to, found[i+1].from)
		}
		if from < to {
			l = append(l, piece{from, to - from, x.tensor, from - x.at})
			last = to
		}
	}
	return l
}

// pad adds the zeros between and behind pieces.
func (f *Finder) pad(l pieces, n int64, read func(first, n int64) ([]byte, error), size int64) (layout, error) {
	var to pieces
	left := int64(maxZeros)
	end := int64(0)
	for _, p := range append(l, piece{at: n}) {
		if gap := p.at - end; gap > 0 && gap*size <= left && len(l) > 0 {
			left -= gap * size
			q, err := read(end, gap)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(q, func(b byte) bool { return b != 0 }) {
				to = append(to, piece{end, gap, zeros, 0})
			}
		}
		if p.n > 0 {
			to = append(to, p)
		}
		end = p.at + p.n
	}
	if len(l) == 0 {
		return nil, nil
	}
	return to, nil
}
