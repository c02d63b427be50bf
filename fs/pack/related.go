package pack

import (
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

// Related is what is known of the files around one. What lies in their chunks may be gone.
type Related struct {
	// Series is what the file's path has in common with those of its other versions; "": it is not known.
	Series string
	// Before are files that have earlier versions of its tensors, the best first: the file itself as it was,
	// or the shards of the step before. What changed since is stored against them where that pays.
	Before []*manifest.Manifest
	// Presumed: the layout is that of the first of Before, presumed to be the file's since most of the file
	// stood there: if that turns out to be wrong, Layout returns ErrPresumed.
	Presumed bool
	// Alike may have earlier versions of its tensors, or have nothing to do with it: samples tell, and which
	// of several is the nearest.
	Alike []*manifest.Manifest
	// Masters are files in which tensors in single precision may be. What is the rounding of one of them is
	// stored as that, and so is what is the rounding of one in the same file.
	Masters []*manifest.Manifest
	// Sources are files in which tensors may be that those of this one were made of: quantised, or converted.
	Sources []*manifest.Manifest
	// Beside are files of the same step, or folder, with tensors that those of this one may be averages of.
	Beside []*manifest.Manifest
	// Anchors knows tensors by marks of their numbers, for those that nothing else explains; nil: nothing is
	// looked for there, nor are the file's own told (Result.Anchors).
	Anchors Anchors
	// NoRecipes: no tensor is computed from others.
	NoRecipes bool
}

// relatives are the chunks that those of a region may be stored with the help of, in order.
type relatives struct {
	prev []manifest.Span
	// alike: prev is no version before, as far as is known; leads: those of a series are to follow.
	alike, leads bool
	masters      []manifest.Span // two for each chunk of the region, but perhaps the last
	recipe       recipeOfChunks  // nil: there is none
}

// recipeOfChunks says how the chunks of a region are computed; of one it may say nil.
type recipeOfChunks interface{ Chunk(k int64) *cas.Recipe }

// comeAfter has a region come after chunks, or with alike behind those of another that is like it.
func (j *job) comeAfter(l *relatives, prev []manifest.Span, alike bool) {
	l.prev, l.alike, l.leads = prev, alike, alike && leads(j.series)
}

func (l *relatives) of(i int64) (rel cas.Related) {
	if l == nil {
		return rel
	}
	if i < int64(len(l.prev)) {
		rel.Prev, rel.Alike, rel.Leads = l.prev[i].Hash, l.alike, l.leads
	}
	if l.recipe != nil {
		rel.Recipe = l.recipe.Chunk(i)
	}
	for k := range rel.Masters {
		if at := 2*i + int64(k); at < int64(len(l.masters)) {
			rel.Masters[k] = l.masters[at].Hash
		}
	}
	return rel
}

// stepNames are what programs put before the number of a step, in the name of a file or folder.
var stepNames = []string{"checkpoint", "step", "global_step", "epoch", "iter"}

// leads reports whether a file of a series (runs.Series) is that of a step: a name on its path is a number,
// or begins as those of steps do, and has one.
func leads(series string) bool {
	return slices.ContainsFunc(strings.Split(series, "/"), func(name string) bool {
		name = strings.TrimSuffix(name, path.Ext(name))
		begins := func(word string) bool { return strings.HasPrefix(name, word) }
		return name == "0" || strings.Contains(name, "0") && slices.ContainsFunc(stepNames, begins)
	})
}
