package bases

import (
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// maxBeside is how many files beside one are taken that may have what its tensors are averages of.
const maxBeside = 4

// besideOf are packed files beside the one at p, which has a version before, with tensors of as many numbers
// each: in its step, or in its folder under names with the same numbers.
func (f *Finder) besideOf(p string, l *formats.Layout, rel *pack.Related) (ms []*manifest.Manifest) {
	if f.o.NoRecipes || len(rel.Before) == 0 ||
		!slices.ContainsFunc(l.Tensors, func(t formats.Tensor) bool { return recipes.MayBeSource(&t) }) {
		return nil
	}
	sizes := map[int64]bool{}
	for i := range l.Tensors {
		if t := &l.Tensors[i]; recipes.MayBeSource(t) && t.NumBytes() >= recipes.MinLen {
			sizes[t.NumElements()] = true
		}
	}
	dir := path.Dir(p)
	var rels []string
	_, own := runs.Numbers(path.Base(p))
	for _, rel := range f.near(dir, maxNear) {
		if _, n := runs.Numbers(path.Base(rel)); slices.Equal(n, own) {
			rels = append(rels, rel)
		}
	}
	if step := stepOf(p); step != "" && strings.Count(p, "/") > 3 {
		rels = append(rels, f.below(step, maxNear)...)
	}
	var seen []cas.Hash
	for _, rel := range rels {
		h, ok := f.at(rel)
		if !ok || rel == p || slices.Contains(seen, h) {
			continue
		}
		seen = append(seen, h)
		m, err := f.o.Store.Manifest(h)
		if err != nil || !slices.ContainsFunc(m.Tensors, func(t formats.Tensor) bool {
			return recipes.MayBeSource(&t) && sizes[t.NumElements()]
		}) {
			continue
		}
		if ms = append(ms, m); len(ms) == maxBeside {
			break
		}
	}
	return ms
}
