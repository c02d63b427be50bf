package reuse

import (
	"cmp"
	"context"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/index"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/index/manifest"
)

// search is one Find.
type search struct {
	*Finder
	todo  []*target
	whole map[cas.Hash]*objects.Whole
}

// target is a file of which the largest objects are not known to the State.
type target struct {
	File
	raw   int // bytes of the manifest
	doc   *manifest.Manifest
	large []manifest.Object // the largest
	wants []cas.Hash        // digests of those that are not known
}

// target is nil for a file that is known, and for one that this store does not have.
func (s *search) target(f File) (*target, error) {
	p, err := s.Get(f.Manifest, nil)
	if err != nil {
		return nil, nil // who publishes it says what is wrong
	}
	doc, err := manifest.Decode(p)
	if err != nil {
		return nil, nil
	}
	t := &target{File: f, raw: len(p), doc: doc, large: largestOf(doc)}
	if err := s.ask(t); err != nil || len(t.wants) == 0 {
		return nil, err
	}
	return t, nil
}

// largestOf are the largest different objects of a file, the largest first; none if they are not worthwhile.
func largestOf(doc *manifest.Manifest) []manifest.Object {
	all := slices.DeleteFunc(slices.Clone(doc.Objects), func(o manifest.Object) bool {
		return o.Len < index.MinObject
	})
	slices.SortStableFunc(all, func(a, b manifest.Object) int {
		return cmp.Or(cmp.Compare(b.Len, a.Len), slices.Compare(a.Digest[:], b.Digest[:]))
	})
	all = slices.CompactFunc(all, func(a, b manifest.Object) bool { return a.Digest == b.Digest })
	all = all[:min(largest, len(all))]
	sum := int64(0)
	for _, o := range all {
		sum += o.Len
	}
	if sum < worthwhile {
		return nil
	}
	return all
}

// ask finds out which of the largest objects are not known, by their first chunks. Where most of them are,
// the others are new.
func (s *search) ask(t *target) error {
	first := make([]cas.Hash, len(t.large))
	for i, o := range t.large {
		spans, err := o.Spans(s.Get)
		if err != nil || len(spans) == 0 {
			return nil // who publishes it says what is wrong
		}
		first[i] = spans[0].Hash
	}
	places := make([]objects.Place, len(first))
	if err := s.State.Find(first, places); err != nil {
		return err
	}
	t.wants = nil
	known, all := int64(0), int64(0)
	for i, o := range t.large {
		if all += o.Len; places[i].Stored > 0 {
			known += o.Len
		} else {
			t.wants = append(t.wants, o.Digest)
		}
	}
	if known > all/2 {
		t.wants = nil
	}
	return nil
}

// before takes the first look.
func (s *search) before(ctx context.Context) error {
	for _, t := range s.todo {
		for _, f := range t.Before {
			if len(t.wants) == 0 {
				break
			}
			plan, err := s.Reader.Plan(ctx, f)
			if fetch.Lost(err) {
				continue
			}
			if err == nil {
				err = s.learn(ctx, t, plan)
			}
			if err != nil {
				return err
			}
		}
	}
	s.todo = slices.DeleteFunc(s.todo, func(t *target) bool { return len(t.wants) == 0 || !t.Asks })
	return nil
}

// asIndexed takes the second look.
func (s *search) asIndexed(ctx context.Context) error {
	if len(s.todo) == 0 {
		return nil
	}
	if err := s.Index.Refresh(ctx); err != nil || s.Index.Empty() {
		return err
	}
	known, err := s.State.Epoch()
	if err != nil {
		return err
	}
	if ok, err := s.Index.Covered(ctx, known); err != nil || !ok {
		return err
	}
	if err := s.byManifest(ctx); err != nil {
		return err
	}
	return s.byObjects(ctx)
}

// byManifest finds files that are there as a whole.
func (s *search) byManifest(ctx context.Context) error {
	digests := make([]record.Digest, len(s.todo))
	for i, t := range s.todo {
		digests[i] = record.DigestOf(t.Manifest)
	}
	found, err := s.Index.Find(ctx, digests)
	if err != nil {
		return err
	}
	var of []*target
	var at []record.Ref
	for i, t := range s.todo {
		if found[i] != (record.Ref{}) {
			of, at = append(of, t), append(at, found[i])
		}
	}
	plans, err := s.Reader.Plans(ctx, at)
	if err != nil {
		return err
	}
	for i, t := range of {
		if p := plans[i]; p == nil || p.Manifest != t.Manifest {
			continue
		}
		if t.Base {
			err = s.learn(ctx, t, plans[i])
		} else {
			err = s.relyOn(ctx, t, &objects.Whole{Plan: plans[i], At: at[i]}, max(1, checked/len(of)))
		}
		if err != nil {
			return err
		}
	}
	s.todo = slices.DeleteFunc(s.todo, func(t *target) bool {
		return s.whole[t.Manifest] != nil || len(t.wants) == 0
	})
	return nil
}

// byObjects finds files that have the largest objects of those that are not there as a whole.
func (s *search) byObjects(ctx context.Context) error {
	var digests []record.Digest
	for _, t := range s.todo {
		for _, d := range t.wants {
			digests = append(digests, record.DigestOf(d))
		}
	}
	found, err := s.Index.Find(ctx, digests)
	if err != nil {
		return err
	}
	for _, t := range s.todo {
		n := len(t.wants)
		if err := s.plansOf(ctx, t, found[:n]); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

// plansOf reads the plans in which what a file wants was found, those first that have most of it.
func (s *search) plansOf(ctx context.Context, t *target, found []record.Ref) error {
	has := map[record.Ref][]cas.Hash{}
	var refs []record.Ref
	for i, at := range found {
		if at == (record.Ref{}) {
			continue
		}
		if has[at] == nil {
			refs = append(refs, at)
		}
		has[at] = append(has[at], t.wants[i])
	}
	slices.SortStableFunc(refs, func(a, b record.Ref) int { return cmp.Compare(len(has[b]), len(has[a])) })
	for n, at := range refs {
		if n == mostPlans {
			break
		}
		if !slices.ContainsFunc(has[at], func(d cas.Hash) bool { return slices.Contains(t.wants, d) }) {
			continue // what an earlier one had
		}
		plans, err := s.Reader.Plans(ctx, []record.Ref{at})
		if err == nil && plans[0] != nil {
			err = s.learn(ctx, t, plans[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
