package share

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/store"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
)

// Models says what is known of models.
type Models interface {
	// Published is what is said to other machines of the models at or below a path, by their paths.
	Published(ctx context.Context, at string) (map[string]record.Told, error)
}

// describe says in entries what models they are of. Without that they are published all the same.
func (p *push) describe(ctx context.Context, entries []record.Entry) {
	said := map[string]map[string]record.Told{}
	for i := range entries {
		e := &entries[i]
		if e.File == nil || e.File.Manifest.IsZero() {
			continue
		}
		at := shared.Step(e.Path)
		if said[at] == nil {
			all, err := p.o.Models.Published(ctx, at)
			if err != nil && ctx.Err() == nil {
				p.o.Report(slog.LevelWarn, "published without what is known of its models", "path", at, "reason", err)
			}
			if said[at] = all; all == nil {
				said[at] = map[string]record.Told{}
			}
		}
		if t := said[at][e.Path]; t.Manifest == e.File.Manifest {
			e.File.Model = t.Model
		}
	}
}

// architecture brings that of an entry's model.
func (p *pull) architecture(ctx context.Context, b *store.Batch, e *record.Entry) error {
	if e.File == nil || e.File.Model == nil || len(e.File.Model.Graph) == 0 {
		return nil
	}
	if err := p.bring.Graph(ctx, b, e); err != nil {
		return err
	}
	return b.Commit()
}

// What is kept with a name is bounded: attributes of a file have little room, which programs want, too.
const (
	mostAbove = 16      // ancestors
	mostTold  = 2 << 10 // bytes
)

// tell keeps with a name what its entry tells of it besides its bytes. What there is no room for is left out:
// the name is none the worse without.
func (p *pull) tell(ctx context.Context, n *names.Node, e *record.Entry) error {
	t := &record.Told{Metrics: e.Metrics}
	if e.File != nil && e.File.Model != nil && !e.File.Manifest.IsZero() {
		t.Manifest, t.Model = e.File.Manifest, e.File.Model
		t.Above = p.ancestors(ctx, t.Model)
	}
	for t.Model != nil || len(t.Metrics) > 0 {
		b, err := t.Encode()
		if err == nil && len(b) > mostTold {
			err = unix.ENOSPC
		}
		if err == nil {
			err = n.SetXattr(record.ToldAttr, b, 0)
		}
		switch {
		case err == nil:
			return nil
		case len(t.Above) > 0:
			t.Above = t.Above[:len(t.Above)/2]
		case len(t.Metrics) > 0 && t.Model != nil:
			t.Metrics = nil
		case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
			return err
		default:
			return nil
		}
	}
	return nil
}

// ancestors are those of a model's parent, the nearest first, unless that is here.
func (p *pull) ancestors(ctx context.Context, m *record.Model) (above []record.Ancestor) {
	if k, err := p.known(m.Parent.Path); m.How == "" || err != nil || !k.Bare() {
		return nil
	}
	for from := m.Parent; len(above) < mostAbove; {
		of := p.modelOf(ctx, from)
		if of == nil || of.How == "" {
			break
		}
		above, from = append(above, record.Ancestor{Parent: of.Parent, How: of.How}), of.Parent
	}
	return above
}

// modelOf is what some head says of the model of a path and a manifest; nil: none says anything.
func (p *pull) modelOf(ctx context.Context, of record.Parent) *record.Model {
	if m, asked := p.models[of]; asked || of.Manifest.IsZero() {
		return m
	}
	all, err := p.heads.Below(ctx, of.Path)
	if err != nil {
		return nil
	}
	var found *record.Model
	for _, one := range all {
		i := slices.IndexFunc(one.Entries, func(e record.Entry) bool {
			return e.Path == of.Path && e.File != nil && e.File.Manifest == of.Manifest && e.File.Model != nil
		})
		if i >= 0 {
			found = one.Entries[i].File.Model
		}
	}
	if p.models == nil {
		p.models = map[record.Parent]*record.Model{}
	}
	p.models[of] = found
	return found
}
