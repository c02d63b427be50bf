package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/kept"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/index/runs"
)

// apart is what a prune does of recipes: those of chunks that no file names are stored without these, where
// that gives room back (package kept). It writes at most stepBytes before the sweep drops what it made
// useless, and not more than is free.
type apart struct {
	passes *Passes
	*kept.Kept
	all   *compactedFiles
	files []apartFile // that have such recipes
	comp  *store.Compaction
	short bool // there is no room for a part that pays
}

type apartFile struct {
	manifest cas.Hash
	path     string
}

// stepBytes is how much is stored apart before a sweep, at least where so much is free.
const stepBytes = 1 << 30

// apart finds what is to be done; nil: nothing, or it cannot be told.
func (p *Passes) apart(ctx context.Context) (*apart, error) {
	a := &apart{passes: p, all: newCompacted(p.Spill)}
	var err error
	a.Kept, err = kept.Find(ctx, p.Store, p.Spill,
		func() (func(cas.Hash) bool, error) { return a.named(ctx) })
	if err == nil && !a.Empty() {
		err = a.find()
	}
	if err != nil && ctx.Err() == nil {
		// The sweep itself says what is wrong.
		p.Report(slog.LevelWarn, "what is kept only for files that are computed of it was not looked for",
			"reason", err)
		return nil, nil
	}
	if err != nil || len(a.files) == 0 {
		return nil, err
	}
	return a, nil
}

// named reads all manifests, and returns what tells whether one names a chunk.
func (a *apart) named(ctx context.Context) (func(cas.Hash) bool, error) {
	p, set := a.passes, spilled.NewSet(a.passes.Spill)
	var mu sync.Mutex
	err := p.Names.EachFile(ctx, p.with(func(path string, n *names.Node, _ *unix.Stat_t) error {
		needs, err := manifestsOf(n)
		mu.Lock()
		defer mu.Unlock()
		for _, h := range needs {
			if err == nil {
				err = a.all.add(path, compacted{manifest: h})
			}
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	note := func(c cas.Hash) { set.Add(short(c)) }
	var unread error
	err = a.all.manifests(func(h cas.Hash) { unread = errors.Join(unread, a.chunks(h, note)) })
	for h := range p.lostManifests() {
		_ = a.chunks(h, note)
	}
	has := func(h cas.Hash) bool { return set.MayHave(short(h)) || set.Err() != nil }
	return has, errors.Join(err, unread)
}

// chunks calls f with the chunks that a manifest names.
func (a *apart) chunks(h cas.Hash, f func(cas.Hash)) error {
	m, err := a.passes.Assemble.Manifest(h)
	if err != nil {
		return err
	}
	for _, o := range m.Objects {
		spans, err := o.Spans(a.passes.Store.Get)
		if err != nil {
			return err
		}
		for _, s := range spans {
			f(s.Hash)
		}
	}
	return nil
}

// find notes which files have recipes that keep something.
func (a *apart) find() error {
	return a.all.each(func(f *compacted, path string) error {
		if a.has(f.manifest, a.Stays) {
			a.files = append(a.files, apartFile{f.manifest, path})
		}
		return nil
	})
}

// has reports whether a manifest names a chunk that is some kind of recipe. One that went meanwhile does not.
func (a *apart) has(manifest cas.Hash, is func(cas.Hash) bool) (has bool) {
	_ = a.chunks(manifest, func(h cas.Hash) { has = has || is(h) })
	return has
}

// end ends it.
func (a *apart) end() {
	if a != nil && a.comp != nil {
		a.comp.End()
	}
}

// step stores a part apart, and reports whether a sweep has something to drop. Where the disk has no room, or
// is being compacted, nothing is done.
func (a *apart) step(ctx context.Context) (some bool, err error) {
	if a == nil {
		return false, nil
	}
	spare, err := a.passes.Reserve.Spare()
	if err != nil {
		return false, err
	}
	some, a.short, err = a.Choose(min(spare, max(stepBytes, spare/4)))
	if err != nil || !some {
		return false, err
	}
	if a.comp == nil {
		a.comp, err = a.passes.Store.Compact(ctx, false)
		if errors.Is(err, store.ErrCompacting) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	defer a.passes.Throttle.Press()()
	before := a.comp.Stats().Records
	for _, f := range a.files {
		err := a.file(ctx, f)
		if errors.Is(err, unix.ENOSPC) {
			a.short = true
			err = a.Again() // with what the sweep gives back, as long as each try stores something
			if err == nil {
				break
			}
		}
		if err != nil {
			return false, err
		}
	}
	if a.comp.Stats().Records == before {
		return false, nil
	}
	return true, a.comp.Retire(ctx)
}

// file stores the chosen recipes of a file without their bases.
func (a *apart) file(ctx context.Context, f apartFile) error {
	m, err := a.passes.Assemble.Manifest(f.manifest)
	if err != nil || !a.has(f.manifest, a.Chosen) {
		return nil // it was removed meanwhile, or has none of this part
	}
	b := a.passes.Store.Begin()
	defer b.Release()
	err = a.passes.Pack.Recode(ctx, m, pack.Recoding{
		Series: runs.Series(f.path), Trials: pack.NewTrials(),
		Related: func() pack.Related { return pack.Related{} },
		Claim:   a.Chosen,
		Chunk: func(h cas.Hash, hint codec.Hint, _ cas.Related) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			return a.comp.Recode(b, h, hint, cas.Related{}, isRecipe)
		},
	})
	if errors.Is(err, unix.ENOSPC) {
		return errors.Join(err, a.passes.Store.Flush())
	}
	if err != nil {
		return err
	}
	return b.Commit()
}

func isRecipe(was *segment.Base) bool { return was.Number == segment.RecipeNumber }

// tell says what stays, and what was done, or of a dry run would be.
func (a *apart) tell(out *control.Pruned) error {
	if a == nil {
		return nil
	}
	sums, err := a.Sums()
	if err != nil {
		return err
	}
	out.BaseBytes, out.BaseAloneBytes, out.BaseNoRoom = sums.Held, sums.Alone, a.short
	if out.DryRun {
		out.ApartBytes = sums.Pays
		out.FreedBytes += sums.Gives
	} else if a.comp != nil {
		st := a.comp.Stats()
		out.ApartBytes = st.After
		out.CopiedBytes += st.After + st.Copied
		out.FreedBytes += st.Freed
		a.files = slices.DeleteFunc(a.files, func(f apartFile) bool { return !a.has(f.manifest, a.Stays) })
	}
	out.BaseFiles = len(a.files)
	return nil
}
