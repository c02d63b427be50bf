package models

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ckptfs/fs/control"
	"ckptfs/fs/derived"
	"ckptfs/fs/inspect"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
)

// maxOrigins bounds the models, the latest ones, in which it is looked for what a new one is computed from.
const maxOrigins = 4096

// reproducedFrom are the models that a new one's tensors are stored as a function of, the most important one
// first. That no model is among what it follows from is as if it followed from nothing.
func (s *reconciler) reproducedFrom(p *stepPlace) (all []uint64) {
	if p.manifest.IsZero() || p.remote {
		return nil
	}
	latest := func(yield func(*derived.File) bool) {
		live := slices.SortedFunc(maps.Values(s.book.Live()), func(a, b *ledger.Entry) int {
			return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Seq, a.Seq))
		})
		for _, e := range live[:min(len(live), maxOrigins)] {
			if !yield(&derived.File{Path: e.Path, Manifest: e.Manifest}) {
				return
			}
		}
	}
	// What cannot be read has no parent that is known.
	r, err := s.o.Inspect.Reproduced(context.Background(),
		&derived.File{Path: p.path, Manifest: p.manifest}, latest)
	if r == nil || err != nil {
		return nil
	}
	for i := range r.From {
		for _, e := range s.book.At(r.From[i].Path) { // a folder's first file stands for it
			if e.RetiredAt == 0 {
				if !slices.Contains(all, e.Seq) {
					all = append(all, e.Seq)
				}
				break
			}
		}
	}
	return all
}

// maxReproduced bounds the files of which Lineage tells whether they are reproduced.
const maxReproduced = 16

// reproduced tells of the files at or below a path which follow from others, and what is declared otherwise.
// others are those that do not, with what does of them.
func reproduced(ctx context.Context, ins *inspect.Inspector, p string, out *control.Lineage) (
	others []*control.Reproduction, err error) {
	all, others, err := ins.ReproducedBelow(ctx, p, maxReproduced)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		for i := range out.Models {
			if l := &out.Models[i]; l.Path == r.Path {
				r.Contradicts = contradicted(l, r)
			}
		}
		out.Reproduced = append(out.Reproduced, *r)
	}
	return others, nil
}

// notReproduced says that files, which are no models, follow from nothing that was found.
func notReproduced(others []*control.Reproduction) string {
	most := slices.MaxFunc(others, func(a, b *control.Reproduction) int {
		return cmp.Compare(a.Share, b.Share)
	})
	what, of := "nothing was found that it is computed of", "its tensors"
	if len(others) > 1 {
		what, of = "nothing was found that the files here are computed of", "the tensors of "+most.Path
	}
	if len(most.From) == 0 {
		return what
	}
	var from []string
	for _, b := range most.From {
		from = append(from, b.Path)
	}
	return fmt.Sprintf("%s: at most %.3g %% of the bytes of %s follow, from %s; it takes 90 %%, with at most 15 %% "+
		"of these stored all the same", what, 100*most.Share, of, strings.Join(from, ", "))
}

// contradicted is the parent that a model declares though it follows from others, none of which it comes
// from.
func contradicted(l *control.ModelLineage, r *control.Reproduction) string {
	how, _ := lineage.ParseHow(l.How)
	if how != lineage.Declared && how != lineage.Transfer || len(l.Chain) < 2 {
		return ""
	}
	for i := range r.From {
		from := r.From[i].Path
		same := func(p string) bool {
			return p == from || strings.HasPrefix(p, from+"/") || path.Dir(p) == path.Dir(from)
		}
		for k := range l.Chain[1:] {
			if same(l.Chain[1+k].Path) {
				return ""
			}
		}
		for k := range l.Merged {
			if same(l.Merged[k].Path) {
				return ""
			}
		}
	}
	return l.Chain[1].Path
}
