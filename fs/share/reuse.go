package share

import (
	"context"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/reuse"
	"ckptfs/fs/share/shared"
)

// minLook is the size, in bytes, from which on it is worth looking whether the remote has a file.
const minLook = 1 << 20

// before knows the steps of the runs that it was asked for, and what heads say of them.
type before struct {
	*push
	own   record.Writer
	steps map[string][]string                   // names, by run, as people count
	held  map[string]map[string][]*record.Entry // by step, by path
}

// look says what is looked for before entries are published: what they are, and what they were made from.
// held is what the remote has of their paths. A file of which this store published a version before is known
// as far as it is the same, so nobody is asked.
func (p *push) look(ctx context.Context, entries []record.Entry, held map[string][]*record.Entry) (
	func(context.Context) (map[cas.Hash]*objects.Whole, error), error) {
	b := &before{push: p, own: record.Writer(p.out.Writer), steps: map[string][]string{},
		held: map[string]map[string][]*record.Entry{}}
	var files []reuse.File
	for i := range entries {
		e := &entries[i]
		if e.File == nil || e.File.Manifest.IsZero() || e.File.Size < minLook {
			continue
		}
		versions, own := b.tips(held[e.Path])
		if !own {
			more, ours, err := b.stepBefore(ctx, e.Path)
			if err != nil {
				return nil, err
			}
			versions, own = append(versions, more...), ours
		}
		files = append(files, reuse.File{Manifest: e.File.Manifest, Before: versions, Asks: !own})
		if m := e.File.Model; m != nil && !own && !m.Parent.Manifest.IsZero() {
			files = append(files, reuse.File{Manifest: m.Parent.Manifest, Base: true, Asks: true})
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	return func(ctx context.Context) (map[cas.Hash]*objects.Whole, error) {
		return p.find.Find(ctx, files)
	}, nil
}

// tips are the files of others that have a name, or would have it. own: one is of this store.
func (b *before) tips(held []*record.Entry) (files []*record.File, own bool) {
	for _, e := range rnames.Merge(held).Tips {
		switch {
		case e.File == nil || e.File.Manifest.IsZero():
		case e.Origin == b.own:
			own = true
		default:
			files = append(files, e.File)
		}
	}
	return files, own
}

// stepBefore is what a file was in the step before.
func (b *before) stepBefore(ctx context.Context, p string) (files []*record.File, own bool, err error) {
	at := shared.Step(p)
	run, step := shared.Run(p), path.Base(at)
	if at == run {
		return nil, false, nil
	}
	names, ok := b.steps[run]
	if !ok {
		all, err := b.o.Steps.Of(path.Base(run))
		if err != nil {
			return nil, false, err
		}
		for _, st := range all[path.Base(run)] {
			names = append(names, st.Name)
		}
		b.steps[run] = names
	}
	i := slices.Index(names, step)
	if i < 1 {
		return nil, false, nil
	}
	last := path.Join(run, names[i-1])
	if b.held[last] == nil {
		held, err := b.heldBelow(ctx, last)
		if err != nil {
			return nil, false, err
		}
		b.held[last] = held
	}
	files, own = b.tips(b.held[last][last+strings.TrimPrefix(p, at)])
	return files, own, nil
}
