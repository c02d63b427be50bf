package derived

import (
	"cmp"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// A file is reproduced from others if at least leastFollows of its tensors' bytes follow from them, with no
// more than mostLeft of these stored all the same.
const (
	leastFollows = 0.9
	mostLeft     = 0.15
)

// Enough reports whether of so many bytes enough follow from others, with little stored of them all the same.
func Enough(all, follow, stored int64) bool {
	return all > 0 && float64(follow) >= leastFollows*float64(all) &&
		float64(stored) <= mostLeft*float64(follow)
}

// Reproduced says from which files f follows, whose ways, of all of its tensors, were given to Name; nil: from
// none. Tensors that it has in common with those files count, where others are computed from them.
func Reproduced(st Store, f *File, ways []*Way) *control.Reproduction {
	for _, group := range []func(string) string{func(p string) string { return p }, path.Dir} {
		if r := reproduced(st, f, ways, group); r != nil {
			return r
		}
	}
	return nil
}

// reproduced is Reproduced from what group calls files.
func reproduced(st Store, f *File, ways []*Way, group func(string) string) *control.Reproduction {
	sets := map[string]int64{} // bytes that follow from a set of files
	files := map[string]map[*File]bool{}
	for _, w := range each(ways) {
		if from := w.from(group); from != nil && w.Follows() {
			sets[strings.Join(from, "\x00")] += w.so
			for _, at := range w.at {
				name := group(at.file.Path)
				if files[name] == nil {
					files[name] = map[*File]bool{}
				}
				files[name][at.file] = true
			}
		}
	}
	best := ""
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		if best == "" || sets[set] > sets[best] {
			best = set
		}
	}
	if best == "" {
		return nil
	}
	from := strings.Split(best, "\x00")
	held := map[cas.Hash]bool{}
	for _, name := range from {
		for x := range files[name] {
			for i := range x.Doc.Objects {
				held[x.Doc.Objects[i].Digest] = true
			}
		}
	}
	r := &control.Reproduction{Path: f.Path}
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
		switch {
		case w.Follows() && among(w.from(group), from):
			r.Bytes, r.StoredBytes = r.Bytes+w.so, r.StoredBytes+w.taken
			kinds.add(w, group)
		case held[digests[i]] && !digests[i].IsZero():
			r.Bytes += n
			kinds.ops[opTaken] += n
		}
	}
	if !Enough(r.TensorBytes, r.Bytes, r.StoredBytes) {
		return nil
	}
	r.Share, r.FreeBits = float64(r.Bytes)/float64(r.TensorBytes), 8*r.StoredBytes
	for _, name := range from {
		r.From = append(r.From, control.BaseTensor{Path: name})
	}
	kinds.tell(r)
	return r
}

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

// among reports whether some are all among others.
func among(some, others []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(others, s) })
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
