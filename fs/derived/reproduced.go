package derived

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// Enough reports whether of so many bytes enough follow from others, with little stored of them all the same.
func Enough(all, follow, stored int64) bool {
	return all > 0 && float64(follow) >= control.LeastFollows*float64(all) &&
		float64(stored) <= control.MostLeft*float64(follow)
}

// Reproduced says from which of files, in the order in which they are preferred, the latest first, f follows,
// whose ways are those of all of its tensors; nil: from none. Tensors that it has in common with those files
// count, where others are computed from them. enough is false where less follows than it takes to say so: then
// it is told of which most does.
func Reproduced(st Store, f *File, ways []*Way, files iter.Seq[*File]) (r *control.Reproduction, enough bool) {
	s := name(st, f, ways, files, true)
	for _, group := range []func(string) string{func(p string) string { return p }, path.Dir} {
		is := s.reproduced(ways, group)
		if is == nil {
			continue
		}
		if Enough(is.TensorBytes, is.Bytes, is.StoredBytes) {
			return is, true
		}
		if r == nil || is.Bytes > r.Bytes {
			r = is
		}
	}
	return r, false
}

// parents are files, or what group calls so, that a file may follow from.
type parents struct {
	s     *search
	group func(string) string
	files map[string][]*File // that have bases
	names map[*File]string   // of these
	from  []string
}

// maxTogether is of how many files something may be told to follow together.
const maxTogether = 3

// maxParents is how many files are tried as the only one that a file follows from.
const maxParents = 16

// reproduced is Reproduced from what group calls files: those of which most follows.
func (s *search) reproduced(ways []*Way, group func(string) string) (best *control.Reproduction) {
	p := &parents{s: s, group: group, files: map[string][]*File{}, names: map[*File]string{}}
	for _, w := range s.want {
		for i := range w.in {
			if x := w.in[i].file; p.names[x] == "" && x != s.of { // of itself nothing follows
				p.names[x] = group(x.Path)
				p.files[p.names[x]] = append(p.files[p.names[x]], x)
			}
		}
	}
	sets, alone := map[string]int64{}, map[string]int64{} // bytes that follow from several, and from one
	for _, w := range each(ways) {
		if !w.Follows() {
			continue
		}
		if from := w.from(group); len(from) > 0 && !slices.Contains(from, s.of.Path) {
			sets[strings.Join(from, "\x00")] += w.so
		}
		for name := range p.files {
			p.from = []string{name}
			if at, _ := p.sources(w); at != nil {
				alone[name] += w.so
			}
		}
	}
	tries := mostBytes(alone)
	tries = append(mostBytes(sets)[:min(1, len(sets))], tries[:min(maxParents, len(tries))]...)
	var direct int64
	var from []string
	for _, set := range tries {
		p.from = strings.Split(set, "\x00")
		r, own := p.reproduction(ways)
		if best == nil || cmp.Or(cmp.Compare(r.Bytes, best.Bytes), cmp.Compare(own, direct),
			cmp.Compare(len(from), len(p.from)), p.nearer(p.from[0], from[0])) > 0 {
			best, direct, from = r, own, p.from
		}
	}
	// Of a model that is there twice some chunks may be the one's, and some the other's.
	for more := true; best != nil && more && len(from) < maxTogether &&
		!Enough(best.TensorBytes, best.Bytes, best.StoredBytes); {
		with := from
		more = false
		for _, name := range tries {
			if strings.Contains(name, "\x00") || slices.Contains(with, name) {
				continue
			}
			p.from = append(slices.Clone(with), name)
			r, _ := p.reproduction(ways)
			if nearer := more && p.nearer(name, from[len(from)-1]) > 0; r.Bytes > best.Bytes ||
				nearer && r.Bytes == best.Bytes {
				best, from, more = r, p.from, true
			}
		}
	}
	return best
}

// mostBytes are the keys of m, those of most first.
func mostBytes(m map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
}

// nearer compares two files of which as much follows: the older one is it, else the one whose path has more in
// common with the file's.
func (p *parents) nearer(a, b string) int {
	age := func(name string) (oldest int) {
		for _, x := range p.files[name] {
			oldest = max(oldest, p.s.age[x])
		}
		return oldest
	}
	common := func(name string) (n int) {
		own := p.s.of.Path
		for n < len(name) && n < len(own) && name[n] == own[n] {
			n++
		}
		return n
	}
	return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(common(a), common(b)))
}

// sources are where the bases of w are in the parents: each file that has a chunk is credited with it. Of one
// that none has, but which is a function of what they have, that counts, and what is stored of the function;
// nil: not all are there.
func (p *parents) sources(w *Way) (at []*source, stored float64) {
	in := func(h cas.Hash) *source {
		want := p.s.want[h]
		if want == nil {
			return nil
		}
		for i := range want.in {
			if name := p.names[want.in[i].file]; name != "" && slices.Contains(p.from, name) {
				return &want.in[i]
			}
		}
		return nil
	}
	for _, h := range w.all() {
		x := in(h)
		if want := p.s.want[h]; x == nil && want != nil && w.Op != opCombined {
			for _, h := range want.further {
				if x = in(h); x == nil {
					return nil, 0
				}
			}
			if x != nil && want.raw > 0 {
				stored = max(stored, float64(want.stored)/float64(want.raw))
			}
		}
		if x == nil {
			return nil, 0
		}
		at = append(at, x)
	}
	return at, stored
}

// reproduction is what follows from the parents. own are the bytes that do so from what they have themselves.
func (p *parents) reproduction(ways []*Way) (r *control.Reproduction, own int64) {
	held := map[cas.Hash]bool{}
	for _, name := range p.from {
		for _, x := range p.files[name] {
			for i := range x.Doc.Objects {
				held[x.Doc.Objects[i].Digest] = true
			}
		}
	}
	f := p.s.of
	r = &control.Reproduction{Path: f.Path}
	kinds := tally{ops: map[string]int64{}, combined: map[string]int64{},
		formats: map[string]map[string]int64{}, terms: map[string][]control.BaseTensor{}}
	digests, seen := f.Doc.Digests(), map[int]bool{}
	for i := range f.Doc.Tensors {
		t := &f.Doc.Tensors[i]
		if t.Region < 0 || seen[t.Region] {
			continue
		}
		seen[t.Region] = true
		n := f.Doc.Regions[t.Region].Len
		r.TensorBytes += n
		w := ways[i]
		var at []*source
		var stored float64
		if w.Follows() {
			at, stored = p.sources(w)
		}
		switch {
		case at != nil:
			r.Bytes, r.StoredBytes = r.Bytes+w.so, r.StoredBytes+w.taken
			if stored == 0 {
				own += w.so
			}
			r.StoredBytes += int64(stored * halves * float64(t.NumElements()))
			as := *w
			as.at = at
			kinds.add(&as, p.group)
		case held[digests[i]] && !digests[i].IsZero():
			r.Bytes, own = r.Bytes+n, own+n
			kinds.ops[opTaken] += n
		}
	}
	r.FreeBits = 8 * r.StoredBytes
	if r.TensorBytes > 0 {
		r.Share = float64(r.Bytes) / float64(r.TensorBytes)
	}
	for _, name := range p.from {
		r.From = append(r.From, control.BaseTensor{Path: name})
	}
	kinds.tell(r)
	return r, own
}

// halves are the bytes of an element of what lies between a file and what it follows from.
const halves = 2

// each are the ways, each once, of those that are.
func each(ways []*Way) (all []*Way) {
	seen := map[*Way]bool{}
	for _, w := range ways {
		if w != nil && !seen[w] {
			seen[w] = true
			all = append(all, w)
		}
	}
	return all
}

// from are the groups of files that the bases are of, sorted; nil: one is not known.
func (w *Way) from(group func(string) string) (all []string) {
	if w == nil {
		return nil
	}
	for _, at := range w.at {
		if at == nil {
			return nil
		}
		all = append(all, group(at.file.Path))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// tally counts bytes by how they follow.
type tally struct {
	ops      map[string]int64
	formats  map[string]map[string]int64 // by op
	combined map[string]int64            // by how
	terms    map[string][]control.BaseTensor
}

func (k *tally) add(w *Way, group func(string) string) {
	k.ops[w.Op] += w.so
	if k.formats[w.Op] == nil {
		k.formats[w.Op] = map[string]int64{}
	}
	k.formats[w.Op][w.Format] += w.so
	if w.Op == opCombined {
		terms, text := w.named(), ""
		for i := range terms {
			terms[i].Path, terms[i].Tensor = group(terms[i].Path), ""
		}
		text = control.Combined(w.Form, terms)
		if w.Form == "mean" && terms[0].Coefficient > 0 {
			each := 1 / terms[0].Coefficient
			for i := range terms {
				terms[i].Coefficient = each
			}
		} else if w.Form == "lerp" && len(terms) == 2 {
			terms[0].Coefficient = 1 - terms[1].Coefficient
		} else if w.Form == "task" && len(terms) == 3 {
			terms[0].Coefficient, terms[2].Coefficient = 1, -terms[1].Coefficient
		}
		k.combined[text] += w.so
		k.terms[text] = terms
	}
}

// most are the keys of m, those of most first; those of less than a hundredth of all are left out.
func most(m map[string]int64) []string {
	var all int64
	for _, n := range m {
		all += n
	}
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	return slices.DeleteFunc(keys, func(s string) bool { return m[s] < all/100 })
}

// op is how most of it follows. What is computed says more than what is the same, however much that is: an
// embedding that a quantised model has as it was does not make it the same weights.
func (k *tally) op() string {
	ops := most(k.ops)
	for _, op := range ops {
		if op != opTaken && op != opWidened {
			return op
		}
	}
	return ops[0]
}

// tell sets what r is.
func (k *tally) tell(r *control.Reproduction) {
	names := make([]string, len(r.From))
	for i := range r.From {
		names[i] = r.From[i].Path
	}
	of := strings.Join(names, ", ")
	switch op := k.op(); op {
	case opQuantised:
		formats := most(k.formats[op])
		if len(formats) > 1 { // those of its codes
			formats = slices.DeleteFunc(formats, func(s string) bool { return s == scales })
		}
		r.Kind, r.What = "quantised", strings.Join(formats, ", ")+" of "+of
	case opCombined:
		r.Kind, r.What = "merged", "merge of "+strings.Join(names, " and ")
		ways := most(k.combined)
		if 10*k.combined[ways[0]] >= 9*k.ops[op] {
			r.What = "merge " + ways[0]
		}
		r.From = k.terms[ways[0]]
		slices.SortStableFunc(r.From, func(a, b control.BaseTensor) int {
			return cmp.Compare(math.Abs(b.Coefficient), math.Abs(a.Coefficient))
		})
	case opDequantised:
		r.Kind, r.What = "dequantised", "dequantised from "+strings.Join(most(k.formats[op]), ", ")+" of "+of
	case opRounded:
		r.Kind, r.What = "rounded", strings.Join(most(k.formats[op]), ", ")+" of "+of
	default:
		r.Kind, r.What = "same weights", "same weights as "+of
	}
}
