package models

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/derived"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// mostOrigins bounds the files that Origins looks at, of all runs together.
const mostOrigins = 1 << 15

// origins is what Origins found of files, for the next who asks.
type origins struct {
	of    *Models
	known *lru.Cache[originOf, *origin]
}

// originOf is a model's file, as it was when it was looked at.
type originOf struct {
	path     string
	manifest cas.Hash
}

// origin is what a file follows from.
type origin struct {
	r    *control.Reproduction // nil: from nothing
	from []uint64              // the models that r names, as they were then
}

func newOrigins(m *Models) origins {
	c, _ := lru.New[originOf, *origin](mostOrigins) // which fails for no room alone
	return origins{m, c}
}

// Origins tells where all runs come from. For so long it looks for what tensors are computed from.
func (o *origins) Origins(ctx context.Context, within time.Duration) (*control.Origins, error) {
	out := &control.Origins{Models: []control.ModelLineage{}, Reproduced: []control.Reproduction{}}
	m := o.of
	end := m.o.Now().Add(within)
	var files []originOf
	var all []*ledger.Entry // live ones, the latest first
	err := m.with(ctx, func() error {
		all = slices.SortedFunc(maps.Values(m.book.Live()), func(a, b *ledger.Entry) int {
			return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Seq, a.Seq))
		})
		files = o.tellLocked(out, all)
		return nil
	})
	if err != nil {
		return nil, err
	}
	others := func(yield func(*derived.File) bool) {
		for _, e := range all[:min(len(all), maxOrigins)] {
			if ctx.Err() != nil || !yield(&derived.File{Path: e.Path, Manifest: e.Manifest}) {
				return
			}
		}
	}
	out.Files = len(files)
	for _, f := range files {
		found, ok := o.known.Get(f)
		if ok && found.r != nil && !slices.Equal(found.from, o.sources(found.r)) {
			ok = false // one of those was written again, or removed
		}
		if !ok && !m.o.Now().Before(end) {
			out.Left++
			continue
		}
		if !ok {
			if found, err = o.look(ctx, f, others); err != nil {
				return nil, err
			}
		}
		if found.r != nil {
			out.Reproduced = append(out.Reproduced, *found.r)
		}
	}
	return out, nil
}

// look finds out what a file follows from. What cannot be read follows from nothing that is known, and is
// looked at again.
func (o *origins) look(ctx context.Context, f originOf, others iter.Seq[*derived.File]) (*origin, error) {
	found := &origin{}
	rec, err := o.of.o.Files.Record(f.path, 0)
	if err != nil || rec.Remote {
		return found, ctx.Err()
	}
	r, err := o.of.o.Inspect.Reproduced(ctx, &derived.File{Path: f.path, Manifest: f.manifest}, others)
	if err != nil || ctx.Err() != nil {
		return found, ctx.Err()
	}
	if found.r = r; r != nil {
		found.from = o.sources(r)
	}
	o.known.Add(f, found)
	return found, nil
}

// sources are the live models that a file follows from.
func (o *origins) sources(r *control.Reproduction) (all []uint64) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	for i := range r.From {
		for _, e := range o.of.book.At(r.From[i].Path) {
			if e.RetiredAt == 0 {
				all = append(all, e.Seq)
			}
		}
	}
	return all
}

// tellLocked tells which models say where runs come from, of all that are live. It returns the first files of
// each run.
func (o *origins) tellLocked(out *control.Origins, all []*ledger.Entry) (files []originOf) {
	m := o.of
	m.mu.AssertHeld()
	of := map[string][]*ledger.Entry{}
	for _, e := range all {
		if run, _, _ := steps.In(e.Path); run != "" {
			of[run] = append(of[run], e)
		}
	}
	for _, run := range slices.SortedFunc(maps.Keys(of), runs.Compare) {
		entries := of[run]
		slices.SortFunc(entries, func(a, b *ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
		for i, e := range entries {
			parent := m.book.Get(e.Parent)
			elsewhere := parent != nil && !strings.HasPrefix(parent.Path, steps.Dir+"/"+run+"/")
			if i > 0 && i < len(entries)-1 && !elsewhere && len(e.MergedFrom) == 0 {
				continue
			}
			l := control.ModelLineage{Model: describe(e)}
			l.Chain = append(l.Chain, control.Ancestor{Model: l.Model})
			if parent != nil {
				l.Chain = append(l.Chain, control.Ancestor{Model: describe(parent)})
			}
			for _, seq := range e.MergedFrom {
				if me := m.book.Get(seq); me != nil {
					l.Merged = append(l.Merged, describe(me))
				}
			}
			out.Models = append(out.Models, l)
		}
		slices.SortFunc(entries, func(a, b *ledger.Entry) int { return cmp.Compare(a.Path, b.Path) })
		for _, e := range entries[:min(len(entries), maxReproduced, mostOrigins-len(files))] {
			if !e.Manifest.IsZero() {
				files = append(files, originOf{e.Path, e.Manifest})
			}
		}
	}
	return files
}
