package models

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
)

// settled brings the ledger up to date and calls f with it.
func (v *Volume) settled(ctx context.Context, f func(m *models) error) error {
	m := v.models
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.settle(ctx, v); err != nil {
		return err
	}
	if len(m.book.Changed()) > 0 {
		m.rouse()
	}
	if m.catalogue.Load() != nil {
		m.upToDate(v)
	}
	return f(m)
}

// settledAfterSave is settled; should what is asked about not be there, it waits for a save that is just ending.
func (v *Volume) settledAfterSave(ctx context.Context, f func(m *models) error) error {
	err := v.settled(ctx, f)
	if err == nil || v.readOnly {
		return err
	}
	v.awaitReleases(ctx)
	return v.settled(ctx, f)
}

// at lists the live models at or below a path by number, or, when there are none, the retired ones.
func (m *models) at(p string) []*ledger.Entry {
	var live, dead []*ledger.Entry
	for _, e := range m.book.At(p) {
		if e.RetiredAt == 0 {
			live = append(live, e)
		} else {
			dead = append(dead, e)
		}
	}
	if len(live) > 0 {
		return live
	}
	return dead
}

func describe(e *ledger.Entry) control.Model {
	m := control.Model{Seq: e.Seq, Path: e.Path, Time: time.Unix(0, e.Time), Size: e.Size, Tensors: e.Tensors, Parent: e.Parent, How: e.How.String(),
		MergedFrom: e.MergedFrom}
	if e.RetiredAt != 0 {
		m.Retired, m.RetiredAt = true, time.Unix(0, e.RetiredAt)
	}
	return m
}

// source is the path that a view stands for, or the path.
func (v *Volume) source(p string) string {
	n, err := v.resolve(p)
	if err != nil {
		return p
	}
	defer n.unref(1)
	if n.view != nil {
		return n.view.src.Path()
	}
	return p
}

// Lineage tells where the models at or below a path come from.
func (v *Volume) Lineage(ctx context.Context, p string) (*control.Lineage, error) {
	out := &control.Lineage{Path: p, Models: []control.ModelLineage{}}
	src := v.source(p)
	err := v.settledAfterSave(ctx, func(m *models) error {
		entries := m.at(src)
		if len(entries) == 0 {
			return v.noModel("lineage", p, src)
		}
		out.Models = out.Models[:0]
		for _, e := range entries {
			l := control.ModelLineage{Model: describe(e), Chain: []control.Ancestor{}}
			for a, share := range m.book.Forest.Chain(e.Seq) {
				if ae := m.book.Get(a.Seq); ae != nil {
					l.Chain = append(l.Chain, control.Ancestor{Model: describe(ae), OwnedTensors: share.Tensors, OwnedBytes: share.Bytes})
				}
			}
			for _, seq := range e.MergedFrom {
				if me := m.book.Get(seq); me != nil {
					l.Merged = append(l.Merged, describe(me))
				}
			}
			out.Models = append(out.Models, l)
		}
		for _, at := range []string{src, path.Dir(src)} {
			out.Problem = cmp.Or(out.Problem, m.problems[at])
		}
		if waits := v.notPacked(src); waits != "" {
			out.Problem = cmp.Or(out.Problem, waits+" is not packed yet: `ckptfs sync` packs it, and it counts as it is from then on")
		}
		return nil
	})
	return out, err
}

// notPacked is a checkpoint at or below a path that was written and waits to be packed; "" when there is none.
func (v *Volume) notPacked(p string) (found string) {
	v.packer.mu.Lock()
	pending := v.packer.pending()
	v.packer.mu.Unlock()
	for n := range pending {
		at := n.Path()
		if (at == p || strings.HasPrefix(at, p+"/") || p == "") && strings.HasPrefix(at, steps.Dir+"/") && steps.IsCheckpoint(at) && (found == "" || at < found) {
			found = at
		}
		n.unref(1)
	}
	return found
}

// noModel is the error for a path at which no model is known.
func (v *Volume) noModel(op, p, src string) error {
	err := ledger.ErrUnknown
	if waits := v.notPacked(src); waits != "" {
		err = fmt.Errorf("no model yet: %s is not packed, `ckptfs sync` packs it", waits)
	}
	return &fs.PathError{Op: op, Path: p, Err: fmt.Errorf("%w: %w", err, unix.ENODATA)}
}

// oneModel finds the model that a path names: a file, or a step with one.
func (m *models) oneModel(v *Volume, op, p string) (*ledger.Entry, error) {
	entries := m.at(p)
	switch {
	case len(entries) == 0:
		return nil, v.noModel(op, p, p)
	case len(entries) == 1:
		return entries[0], nil
	case entries[0].RetiredAt != 0 && !slices.ContainsFunc(entries, func(e *ledger.Entry) bool { return e.Path != entries[0].Path }):
		return entries[len(entries)-1], nil // one file, written over and over
	}
	return nil, &fs.PathError{Op: op, Path: p, Err: fmt.Errorf("%d models are there, among them %s and %s: name the file: %w", len(entries), entries[0].Path, entries[1].Path, unix.EINVAL)}
}

// Ancestor finds the most recent model that both come from.
func (v *Volume) Ancestor(ctx context.Context, a, b string) (*control.CommonAncestor, error) {
	out := &control.CommonAncestor{}
	a, b = v.source(a), v.source(b)
	err := v.settledAfterSave(ctx, func(m *models) error {
		x, err := m.oneModel(v, "ancestor", a)
		if err != nil {
			return err
		}
		y, err := m.oneModel(v, "ancestor", b)
		if err != nil {
			return err
		}
		out.A, out.B = describe(x), describe(y)
		if c, ok := m.book.Forest.MRCA(x.Seq, y.Seq); ok {
			if e := m.book.Get(c.Seq); e != nil {
				d := describe(e)
				out.Ancestor = &d
			}
		}
		if seq, ok := m.book.Forest.MRCO(x.Seq, y.Seq); ok {
			if e := m.book.Get(seq); e != nil {
				d := describe(e)
				out.Owner = &d
			}
		}
		return nil
	})
	return out, err
}

// Owner tells which model first stored a tensor of a file.
func (v *Volume) Owner(ctx context.Context, p, tensor string) (*control.Ownership, error) {
	out := &control.Ownership{Path: p, Tensor: tensor}
	src, own := v.inspect.Holder(ctx, v.source(p), tensor)
	err := v.settledAfterSave(ctx, func(m *models) error {
		e, err := m.oneModel(v, "owner", src)
		if err != nil {
			return err
		}
		if e.RetiredAt != 0 {
			return &fs.PathError{Op: "owner", Path: p, Err: fmt.Errorf("it is retired: whose its tensors were is forgotten: %w", unix.ENODATA)}
		}
		doc, err := v.asm.Manifest(e.Manifest)
		if err != nil {
			return &fs.PathError{Op: "owner", Path: p, Err: err}
		}
		for i := range doc.Tensors {
			if doc.Tensors[i].Name == own && i < len(e.Owners) {
				if oe := m.book.Get(e.Owners[i]); oe != nil {
					out.Owner = describe(oe)
					return nil
				}
			}
		}
		return &fs.PathError{Op: "owner", Path: p, Err: fmt.Errorf("no tensor %q in it: %w", tensor, unix.ENOENT)}
	})
	return out, err
}

// Retire records that a step, or a file, which was removed is retired. It is done when the path holds no models any more; doing it again
// changes nothing.
func (v *Volume) Retire(ctx context.Context, p string) (*control.Retired, error) {
	out := &control.Retired{Path: p, Models: []control.Model{}}
	if v.readOnly {
		return nil, &fs.PathError{Op: "retire", Path: p, Err: unix.EROFS}
	}
	err := v.settled(ctx, func(m *models) error {
		entries := m.at(p)
		if len(entries) > 0 && entries[0].RetiredAt == 0 {
			return &fs.PathError{Op: "retire", Path: p, Err: fmt.Errorf("%s is still there: %w", entries[0].Path, unix.EBUSY)}
		}
		for _, e := range entries {
			out.Models = append(out.Models, describe(e))
		}
		return m.record(v)
	})
	return out, err
}
