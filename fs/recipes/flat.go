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
}

// placed is a tensor in another, which begins at an element that may lie before the first.
type placed struct {
	tensor int
	at     int64
}

// sought are windows that are looked for.
type sought struct {
	set anchor.Set
	of  map[anchor.Key][]windowOf
}

// add adds some windows of p, numbers of bfloat16, which begin at an element of a tensor.
func (s *sought) add(tensor int, first int64, p []byte) {
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
		s.of[k] = append(s.of[k], windowOf{tensor, first + int64(i/2)})
		n++
	}
}

// in looks for the windows in p, numbers of bfloat16 that begin at an element, and counts where their tensors
// begin then.
func (s *sought) in(p []byte, first int64, votes map[placed]int) {
	s.set.In(p, func(i int, k anchor.Key) {
		for _, w := range s.of[k] {
			if len(votes) < maxPlaces {
				votes[placed{w.tensor, first + int64(i) - w.at}]++
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
		of.add(i, 0, f.halves(s, 0, min(all, ends)))
		if all > ends {
			of.add(i, all-ends, f.halves(s, all-ends, ends))
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
	votes := map[placed]int{}
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
		own.add(0, 0, head)
		l = f.within(l, &own, sources, n)
	}
	return f.pad(l, n, func(first, n int64) ([]byte, error) { return t.Read(first*size, int(n*size)) }, size)
}

// within adds to l the source in which the target begins.
func (f *Finder) within(l pieces, own *sought, sources []*source, n int64) pieces {
	left := int64(maxScan)
	for i, s := range sources {
		all, size := s.t.NumElements(), int64(s.typ.Size())
		votes := map[placed]int{}
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
func lay(votes map[placed]int, n int64, is func(p placed) (tensor int, at, length int64)) (l pieces) {
	var all []placed
	for p, v := range votes {
		if v >= minVotes {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a.at, b.at), cmp.Compare(a.tensor, b.tensor))
	})
	for _, p := range all {
		tensor, at, length := is(p)
		from, end := max(0, at), min(n, at+length)
		i, found := slices.BinarySearchFunc(l, from, func(p piece, at int64) int { return cmp.Compare(p.at, at) })
		if found || from >= end || i > 0 && l[i-1].at+l[i-1].n > from || i < len(l) && l[i].at < end ||
			len(l) == maxPieces {
			continue
		}
		l = slices.Insert(l, i, piece{from, end - from, tensor, from - at})
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
