package pack

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/chunk"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/anchors"
	"ckptfs/index/manifest"
)

const (
	minSeeking   = 256 << 10 // bytes of a file
	near         = 0.7       // the share of what is taken alone below which nothing nearer is looked for
	firstAsked   = 16        // tensors of a file of which one must be found, or no other is looked for
	spread       = 8         // chunks of a tensor of which one is looked at first
	fewKeys      = 128       // anchors that are asked for first
	manyKeys     = 1 << 10   // and then, at least
	mostKeys     = 1 << 14   // and at most: of what may be joined of many
	perKey       = 4096      // elements
	quantisedKey = 512       // anchors of what is quantised
	twoHits      = 2         // that make a candidate
	maxHits      = 256
	maxFiles     = 8  // that the candidates for a tensor are of
	maxNearest   = 8  // candidates that are compared with a tensor
	maxCompared  = 64 // chunks that are read for that, for a file
	maxBesides   = 512
	maxSure      = 4  // tensors of a file that are compared with a version which its path tells
	maxWrong     = 4  // tensors of a file that are compared with others in vain
	maxKnown     = 64 // tensors of a file that the store has, and that are asked for nevertheless
)

// seeker looks for the relatives of tensors that nothing else explains, by their anchors, wherever they are
// in the store. What the first few that are asked for lack the others do not have.
type seeker struct {
	*job
	of     Anchors
	own    cas.Hash // of the file's manifest, where it is packed already
	file   *reader
	asked  int
	known  int // whose beginnings were in the store already
	wrong  int // that had something in common with others, but were not made of them
	found  int
	sure   int // that are near a version which their paths tell
	inVain int // that were turned
	left   int // chunks that may be read for comparing
	won    cas.Hash
	files  map[cas.Hash]*earlier
}

// seeker is nil where there is nothing to look in.
func (j *job) seeker(file *reader, size int64, own cas.Hash) *seeker {
	if j.anchors == nil || size < minSeeking {
		return nil
	}
	return &seeker{job: j, of: j.anchors, own: own, file: file, left: maxCompared,
		files: map[cas.Hash]*earlier{}}
}

// regions looks for the relatives of regions that have none.
func (s *seeker) regions(all []*region) error {
	if s == nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(r *region) bool { return !s.may(r.tensor, &r.Region) })
	// The largest first, and some from all over the file.
	bySize := slices.Clone(all)
	slices.SortStableFunc(bySize, func(a, b *region) int { return cmp.Compare(b.Len, a.Len) })
	ahead := map[*region]bool{}
	var order []*region
	put := func(r *region) {
		if !ahead[r] {
			ahead[r] = true
			order = append(order, r)
		}
	}
	for _, r := range bySize[:min(len(bySize), firstAsked/2)] {
		put(r)
	}
	for k := range min(len(all), firstAsked/2) {
		put(all[(2*k+1)*len(all)/firstAsked])
	}
	for _, r := range all {
		put(r)
	}
	for _, r := range order {
		if s.vain() {
			return nil
		}
		recipe, prev, err := s.region(r.tensor, &r.Region)
		if err != nil {
			return err
		}
		if recipe != nil {
			r.relatives().recipe = recipe
		}
		if prev != nil {
			s.comeAfter(r.relatives(), prev, true)
			r.low = lowRankOf(r.tensor, &r.Region, r.rel, func(k int64) ([]byte, error) {
				return s.chunkOf(&r.Region, k)
			})
		}
	}
	return nil
}

// vain reports whether enough was looked for, and nothing found.
func (s *seeker) vain() bool {
	return s.found == 0 && (s.asked >= firstAsked || s.known >= maxKnown || s.wrong >= maxWrong)
}

// holds reports whether the store holds a chunk.
func (s *seeker) holds(h cas.Hash) bool {
	var at [1]cas.Location
	return s.store.Locate([]cas.Hash{h}, at[:]) == nil && at[0].Segment != 0
}

// holdsAll reports whether the store holds r, which begins with head, as far as its first chunk, its last one
// and the one in the middle tell. What is joined of several mostly begins with a chunk of the first.
func (s *seeker) holdsAll(r *formats.Region, head []byte) (bool, error) {
	if !s.holds(cas.Sum(head)) {
		return false, nil
	}
	chunks := chunk.GridLen(r.Len)
	for _, k := range []int64{chunks - 1, chunks / 2} {
		if k == 0 {
			continue
		}
		off, n := chunk.GridSpan(r.Len, k)
		p, err := s.file.read(r, off, n)
		if err != nil || !s.holds(cas.Sum(p)) {
			return false, err
		}
	}
	return true, nil
}

// may reports whether t, all of r, is looked for.
func (s *seeker) may(t *formats.Tensor, r *formats.Region) bool {
	if s == nil || t == nil || t.NumElements() < anchor.MinElements || !fills(t, r) || !t.Contiguous() {
		return false
	}
	_, ok := anchor.NumbersOf(string(t.DType))
	return ok && (recipes.MayBeTarget(t) || recipes.MayBeSource(t))
}

// region is what t, all of r, may be stored with the help of. The error is of reading the file.
func (s *seeker) region(t *formats.Tensor, r *formats.Region) (recipe recipeOfChunks, prev []manifest.Span,
	err error) {
	if !s.may(t, r) || s.vain() {
		return nil, nil, nil
	}
	head, err := s.file.read(r, 0, int(min(r.Len, cas.ChunkSize)))
	if err != nil {
		return nil, nil, err
	}
	if s.own.IsZero() {
		known, err := s.holdsAll(r, head)
		if err != nil {
			return nil, nil, err
		}
		if known {
			s.known++
			return nil, nil, nil
		}
	}
	s.asked++
	hits, err := s.hits(t, r)
	if err != nil {
		return nil, nil, err
	}
	if prev = s.nearest(t, r, head, hits); prev != nil {
		s.found++
		return nil, prev, nil
	}
	if s.noRecipes {
		return nil, nil, nil
	}
	var plan *recipes.Plan
	if len(hits) > 0 {
		if plan, err = s.finder().Among(s.file.target(t, r), s.sources(t, hits)); err != nil {
			return nil, nil, err
		}
	}
	if plan == nil {
		if plan, err = s.turned(t, r); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case plan != nil:
		s.found++
		return plan, nil, nil
	case len(hits) > 0:
		s.wrong++
	}
	return nil, nil, nil
}

// finder is what looks at sources.
func (s *seeker) finder() *recipes.Finder {
	if s.recipes == nil {
		s.recipes = recipes.New(s.store)
	}
	return s.recipes
}

// hits are the tensors that have something in common with t.
func (s *seeker) hits(t *formats.Tensor, r *formats.Region) ([]anchors.Hit, error) {
	n, _ := anchor.NumbersOf(string(t.DType))
	windows, groups := int(min(mostKeys, max(manyKeys, t.NumElements()/perKey))), 0
	kind := anchor.Windows
	if n.Quantised() {
		windows, groups, kind = 0, quantisedKey, anchor.Groups
	}
	cols := recipes.Columns(t)
	chunks := (r.Len + cas.ChunkSize - 1) / cas.ChunkSize
	step := int64(spread)
	if chunks < 2*step || n.Quantised() {
		step = 1
	}
	look := func(step int64) ([]anchor.Key, error) {
		k := anchor.NewTarget(n, t.NumElements(), cols, windows, groups)
		for i := int64(0); i < chunks; i += step {
			off := i * cas.ChunkSize
			p, err := s.file.read(r, off, int(min(cas.ChunkSize, r.Len-off)))
			if err != nil {
				return nil, err
			}
			k.Add(p, off)
		}
		return k.Keys(kind), nil
	}
	keys, err := look(step)
	if err != nil || len(s.of.Find(keys[:min(len(keys), fewKeys)], 1, 1)) == 0 {
		return nil, err
	}
	if step > 1 {
		if keys, err = look(1); err != nil {
			return nil, err
		}
	}
	return s.fromFew(s.there(s.of.Find(keys, twoHits, maxHits), n.Quantised())), nil
}

// there are those of hits that are still what they were.
func (s *seeker) there(hits []anchors.Hit, quantised bool) []anchors.Hit {
	return slices.DeleteFunc(hits, func(h anchors.Hit) bool {
		e := s.manifest(h.Manifest, quantised)
		return e == nil || int(h.Tensor) >= len(e.m.Tensors) || e.m.Tensors[h.Tensor].Region < 0
	})
}

// fromFew are those of hits that are of the files that have most of them.
func (s *seeker) fromFew(hits []anchors.Hit) []anchors.Hit {
	keys := map[cas.Hash]int{}
	var files []cas.Hash
	for _, h := range hits {
		if keys[h.Manifest] == 0 {
			files = append(files, h.Manifest)
		}
		keys[h.Manifest] += h.Keys
	}
	slices.SortStableFunc(files, func(a, b cas.Hash) int { return cmp.Compare(keys[b], keys[a]) })
	files = files[:min(len(files), maxFiles)]
	return slices.DeleteFunc(hits, func(h anchors.Hit) bool { return !slices.Contains(files, h.Manifest) })
}

// manifest is a file that may be one of the tensor's relatives; nil: it is gone, or none.
func (s *seeker) manifest(h cas.Hash, quantised bool) *earlier {
	e, known := s.files[h]
	if !known {
		if m := s.of.Of(h, quantised); m != nil && h != s.own {
			e = newEarlier(s.store, m)
			e.lists = s.lists
		}
		if len(s.files) == maxHits {
			clear(s.files)
		}
		s.files[h] = e
	}
	return e
}

// far reports whether what was found of a region is of little help for it: names were all that told, or it is
// the same part of another rank, whose path looks like that of a step before.
func (s *seeker) far(t *formats.Tensor, r *formats.Region, was origin) (bool, error) {
	switch {
	case !s.may(t, r) || was.of == nil || !was.doubted && s.sure >= maxSure:
		return false, nil
	case recipes.Quantised(t):
		return true, nil // versions have little in common
	case s.left == 0:
		return false, nil
	}
	head, err := s.file.read(r, 0, int(min(r.Len, cas.ChunkSize)))
	if err != nil {
		return false, err
	}
	s.left--
	base := was.of.begin(was.r, len(head))
	if base == nil {
		return true, nil
	}
	alone, share := codec.Estimate(head, base, hintOf(t))
	if share > near*alone {
		return true, nil
	}
	if !was.doubted {
		s.sure++
	}
	return false, nil
}

// nearest is the version of t, which begins with head, among hits that differs least from it, if that pays.
func (s *seeker) nearest(t *formats.Tensor, r *formats.Region, head []byte, hits []anchors.Hit) (
	prev []manifest.Span) {
	best, compared := 0.0, 0
	for _, h := range hits {
		e := s.files[h.Manifest]
		if e == nil {
			continue
		}
		was := &e.m.Tensors[h.Tensor]
		old := &e.m.Regions[was.Region]
		if was.DType != t.DType || !slices.Equal(was.Shape, t.Shape) || old.Len != r.Len ||
			!fills(was, old) || compared == maxNearest || s.left == 0 && h.Manifest != s.won {
			continue
		}
		chunks := e.grid(old)
		if len(chunks) == 0 || chunks[0].Hash == cas.Sum(head) {
			continue
		}
		s.left = max(0, s.left-1)
		compared++
		base := e.begin(old, len(head))
		if base == nil {
			continue
		}
		alone, share := codec.Estimate(head, base, hintOf(t))
		if share < worth*alone && (prev == nil || share < best) {
			best, prev, s.won = share, chunks, h.Manifest
		}
	}
	return prev
}

// sources are the tensors of hits, and of what is flat all that lie beside them.
func (s *seeker) sources(t *formats.Tensor, hits []anchors.Hit) []recipes.Source {
	return s.tensors(hits, recipes.Columns(t) == 0)
}

// tensors are those of hits, and all that lie beside them if so asked. Of those that have as much in common
// the older ones come first: what is made of another is no base.
func (s *seeker) tensors(hits []anchors.Hit, beside bool) (all []recipes.Source) {
	type tensor struct {
		of cas.Hash
		i  uint32
	}
	seen := map[tensor]bool{}
	add := func(h cas.Hash, i uint32) {
		e := s.files[h]
		if e == nil || seen[tensor{h, i}] || len(all) == maxBesides {
			return
		}
		seen[tensor{h, i}] = true
		was := &e.m.Tensors[i]
		if was.Region < 0 || !fills(was, &e.m.Regions[was.Region]) {
			return
		}
		all = append(all, s.recipes.Source(was, func() []manifest.Span {
			return e.grid(&e.m.Regions[was.Region])
		}))
	}
	for first := 0; first < len(hits); {
		end := first
		for end < len(hits) && hits[end].Keys == hits[first].Keys {
			end++
		}
		for _, h := range slices.Backward(hits[first:end]) {
			add(h.Manifest, h.Tensor)
		}
		first = end
	}
	if !beside {
		return all
	}
	for _, h := range hits {
		if e := s.files[h.Manifest]; e != nil {
			for i := range e.m.Tensors {
				add(h.Manifest, uint32(i))
			}
		}
	}
	return all
}
