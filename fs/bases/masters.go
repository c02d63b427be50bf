package bases

import (
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/pack"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

const (
	maxNear    = 32 // packed files that are looked at in a folder for masters
	maxMasters = 8  // files that are alike and may have masters
	maxSources = 16 // files that are alike, and may be what a file was made of
)

func isHalf(t *formats.Tensor) bool {
	return codec.MayBeRounded(codec.Hint{DType: string(t.DType)})
}

// mastersOf are files in which the tensors may be of which those of the file at p are the rounding: in its
// folder, or in the step that it belongs to, or alike. Those of its own are known to the packer.
func (f *Finder) mastersOf(p string, l *formats.Layout) (ms []*manifest.Manifest) {
	if !slices.ContainsFunc(l.Tensors, func(t formats.Tensor) bool { return isHalf(&t) }) {
		return nil
	}
	alike := func(signs []uint64) []cas.Hash { return f.alikeTo(&f.masters, signs) }
	ms, _ = f.nearOrAlike(p, l, maxMasters, alike, func(_ cas.Hash, tensors []formats.Tensor) bool {
		return isMaster(tensors)
	})
	return ms
}

// isMaster reports whether a file has tensors of which others may be the rounding.
func isMaster(tensors []formats.Tensor) bool {
	return slices.ContainsFunc(tensors, func(t formats.Tensor) bool { return t.DType == formats.F32 })
}

// sourcesOf are files in which the tensors may be that those of the file at p were made of: numbers that were
// quantised or converted, or codes of which these are what they stand for. not, if not nil, says of one that
// the same numbers in another type are not stored with its help.
func (f *Finder) sourcesOf(p string, l *formats.Layout, not func(cas.Hash) bool) (ms []*manifest.Manifest) {
	anyNumbers := slices.ContainsFunc(l.Tensors, func(t formats.Tensor) bool {
		return recipes.Quantised(&t) || l.Format == converted && recipes.MayBeTarget(&t)
	})
	own := mostly(l.Tensors) // of which others have no numbers, but those of another type
	if f.o.NoRecipes || !anyNumbers && own == "" {
		return nil
	}
	codes := own != "" && !isQuantised(l.Tensors)
	alike := func(signs []uint64) []cas.Hash {
		sources := f.alikeTo(&f.sources, signs)
		if !codes {
			return sources
		}
		return inTurns(sources, f.alikeTo(&f.codes, signs)) // many of the ones do not hide the others
	}
	ms, near := f.nearOrAlike(p, l, maxSources, alike, func(h cas.Hash, tensors []formats.Tensor) bool {
		if isQuantised(tensors) {
			return codes
		}
		is := mostly(tensors)
		return is != "" && (anyNumbers || is != own && (not == nil || !not(h)))
	})
	// Those that come last are asked first: the near ones, then what was packed last.
	slices.Reverse(ms[near:])
	return slices.Concat(ms[near:], ms[:near])
}

// inTurns are those of a and b, one of each in turn.
func inTurns(a, b []cas.Hash) (all []cas.Hash) {
	for i := range max(len(a), len(b)) {
		for _, hashes := range [2][]cas.Hash{a, b} {
			if i < len(hashes) {
				all = append(all, hashes[i])
			}
		}
	}
	return all
}

// mostly is the type of float that most numbers of tensors have that others may be computed from; "": there
// are none.
func mostly(tensors []formats.Tensor) (most formats.DType) {
	sums := map[formats.DType]int64{}
	for i := range tensors {
		if t := &tensors[i]; recipes.MayBeSource(t) && t.NumBytes() >= recipes.MinLen {
			sums[t.DType] += t.NumElements()
		}
	}
	for _, t := range []formats.DType{formats.F32, formats.BF16, formats.F16} {
		if sums[t] > sums[most] {
			most = t
		}
	}
	return most
}

// converted is the format to which models are converted.
const converted = "gguf"

// isSource reports whether others may be made of the numbers of a file of such tensors.
func isSource(tensors []formats.Tensor) bool {
	return slices.ContainsFunc(tensors, func(t formats.Tensor) bool { return recipes.MayBeSource(&t) }) &&
		!isQuantised(tensors)
}

// isQuantised reports whether a file of such tensors has codes.
func isQuantised(tensors []formats.Tensor) bool {
	return slices.ContainsFunc(tensors, func(t formats.Tensor) bool { return recipes.Quantised(&t) })
}

// nearOrAlike are files of a kind: near ones, that are in the folder of the file at p, or in the step that it
// belongs to; behind them at most so many that are alike.
func (f *Finder) nearOrAlike(p string, l *formats.Layout, most int, alike func([]uint64) []cas.Hash,
	kind func(cas.Hash, []formats.Tensor) bool) (ms []*manifest.Manifest, near int) {
	var seen []cas.Hash
	add := func(h cas.Hash) {
		if slices.Contains(seen, h) {
			return
		}
		seen = append(seen, h)
		m, err := f.o.Store.Manifest(h)
		if err == nil && kind(h, m.Tensors) {
			ms = append(ms, m)
		}
	}
	dir := path.Dir(p)
	for _, rel := range f.near(dir, maxNear) {
		if h, ok := f.at(rel); ok && rel != p {
			add(h)
		}
	}
	if step := stepOf(p); step != "" && strings.Count(p, "/") > 3 {
		for _, rel := range f.near(step, maxNear) {
			if h, ok := f.at(rel); ok {
				add(h)
			}
		}
	}
	near = len(ms)
	for _, h := range alike(pack.Signs(l.Tensors)) {
		if add(h); len(ms) == near+most {
			break
		}
	}
	return ms, near
}

// stepOf is the step that a path leads to or into, "" when it leads to none.
func stepOf(p string) string {
	names := strings.Split(p, "/")
	if len(names) < 3 || names[0] != runs.Dir {
		return ""
	}
	return path.Join(names[:3]...)
}

// parents lists manifests of what the step of the file at p, which may be the step itself, says it came from:
// of the same name first, then of what else is in that step.
func (f *Finder) parents(p string) (hashes []cas.Hash) {
	if stepOf(p) == "" || f.o.Parents == nil {
		return nil
	}
	below := strings.Split(p, "/")[3:]
	for _, to := range f.o.Parents(p) {
		rels := []string{to, path.Join(append([]string{to}, below...)...)}
		if step := stepOf(to); step != "" {
			rels = append(rels, f.below(step, maxStep)...)
		}
		for _, rel := range rels {
			if h, ok := f.at(rel); ok && !slices.Contains(hashes, h) {
				hashes = append(hashes, h)
			}
		}
	}
	return hashes
}
