package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
)

// with brings the ledger up to date and calls f with it.
func (m *Models) with(ctx context.Context, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.settleLocked(ctx); err != nil {
		return err
	}
	if len(m.book.Changed()) > 0 {
		m.Rouse()
	}
	if m.cataloguedLocked() {
		m.upToDateLocked()
	}
	return f()
}

// withAfterSave is with; should what is asked about not be there, it waits for a save that is just ending.
func (m *Models) withAfterSave(ctx context.Context, f func() error) error {
	err := m.with(ctx, f)
	if err == nil || m.o.ReadOnly {
		return err
	}
	m.o.Released(ctx)
	return m.with(ctx, f)
}

// atLocked lists the live models at or below a path by number, or, when there are none, the retired ones.
func (m *Models) atLocked(p string) []*ledger.Entry {
	m.mu.AssertHeld()
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
	m := control.Model{Seq: e.Seq, Path: e.Path, Time: time.Unix(0, e.Time), Size: e.Size, Tensors: e.Tensors,
		Parent: e.Parent, How: e.How.String(),
		MergedFrom: e.MergedFrom}
	if e.RetiredAt != 0 {
		m.Retired, m.RetiredAt = true, time.Unix(0, e.RetiredAt)
	}
	return m
}

// Lineage tells where the models at or below a path come from.
func (m *Models) Lineage(ctx context.Context, p string) (*control.Lineage, error) {
	out := &control.Lineage{Path: p}
	src := m.o.Files.Source(p)
	var none error // why there is no model
	err := m.withAfterSave(ctx, func() error {
		entries := m.atLocked(src)
		if len(entries) == 0 {
			none = m.noModel("lineage", p, src)
			return none
		}
		chain := m.book.Forest.Chain
		if len(entries) > 1 {
			chain = m.book.Forest.Owners
		}
		out.Models = make([]control.ModelLineage, len(entries))
		for i, e := range entries {
			out.Models[i] = m.lineageLocked(e, chain(e.Seq))
		}
		for _, at := range []string{src, path.Dir(src)} {
			out.Problem = cmp.Or(out.Problem, m.problems[at])
		}
		if waits := m.notPacked(src); waits != "" {
			out.Problem = cmp.Or(out.Problem, waits+" is not packed yet: `ckptfs sync` packs it, and it counts as it is from then on")
		}
		return nil
	})
	if err != nil && err != none {
		return nil, err
	}
	// Of models that were removed there is no file that could tell.
	others, rerr := reproduced(ctx, m.o.Inspect, src, out)
	if err == nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	if err != nil && err == none && len(others) > 0 && !strings.HasPrefix(src+"/", steps.Dir+"/") {
		err = &fs.PathError{Op: "lineage", Path: p, Err: control.NoData("%s", notReproduced(others))}
	}
	if len(out.Reproduced) > 0 && err != nil { // files that are no models
		out.Models, err = []control.ModelLineage{}, nil
	}
	return out, err
}

// lineageLocked is a model with its chain, or what of that is to be told.
func (m *Models) lineageLocked(e *ledger.Entry,
	chain iter.Seq2[lineage.Ancestor, lineage.Share]) control.ModelLineage {
	m.mu.AssertHeld()
	l := control.ModelLineage{Model: describe(e)}
	before := 0 // depth
	for a, share := range chain {
		ae := m.book.Get(a.Seq)
		if ae == nil {
			continue
		}
		told := control.Ancestor{Model: describe(ae), OwnedTensors: share.Tensors, OwnedBytes: share.Bytes}
		if len(l.Chain) > 0 {
			told.Skipped = before - a.Depth - 1
		}
		before = a.Depth
		l.Chain = append(l.Chain, told)
	}
	for _, seq := range e.MergedFrom {
		if me := m.book.Get(seq); me != nil {
			l.Merged = append(l.Merged, describe(me))
		}
	}
	return l
}

// notPacked is a checkpoint at or below a path that was written and waits to be packed; "" when there is
// none.
func (m *Models) notPacked(p string) (found string) {
	for _, at := range m.o.Pending() {
		if (at == p || strings.HasPrefix(at, p+"/") || p == "") && strings.HasPrefix(at, steps.Dir+"/") &&
			steps.IsCheckpoint(at) && (found == "" || at < found) {
			found = at
		}
	}
	return found
}

// noModel is the error for a path at which no model is known.
func (m *Models) noModel(op, p, src string) error {
	if n, err := m.o.Files.OpenInode(p, 0); err == nil {
		n.Unpin()
	} else if errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: op, Path: p, Err: unix.ENOENT}
	}
	err := ledger.ErrUnknown
	if waits := m.notPacked(src); waits != "" {
		err = fmt.Errorf("no model yet: %s is not packed, `ckptfs sync` packs it", waits)
	}
	return &fs.PathError{Op: op, Path: p, Err: control.NoData("%v", err)}
}

// oneModelLocked finds the model that a path names: a file, or a step with one.
func (m *Models) oneModelLocked(op, p string) (*ledger.Entry, error) {
	m.mu.AssertHeld()
	entries := m.atLocked(p)
	switch {
	case len(entries) == 0:
		return nil, m.noModel(op, p, p)
	case len(entries) == 1:
		return entries[0], nil
	case entries[0].RetiredAt != 0 &&
		!slices.ContainsFunc(entries, func(e *ledger.Entry) bool { return e.Path != entries[0].Path }):
		return entries[len(entries)-1], nil // one file, written over and over
	}
	return nil, &fs.PathError{Op: op, Path: p,
		Err: control.Invalid("%d models are there, among them %s and %s: name the file", len(entries), entries[0].Path, entries[1].Path)}
}

// Ancestor finds the most recent model that both come from.
func (m *Models) Ancestor(ctx context.Context, a, b string) (*control.CommonAncestor, error) {
	out := &control.CommonAncestor{}
	a, b = m.o.Files.Source(a), m.o.Files.Source(b)
	err := m.withAfterSave(ctx, func() error {
		x, err := m.oneModelLocked("ancestor", a)
		if err != nil {
			return err
		}
		y, err := m.oneModelLocked("ancestor", b)
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
func (m *Models) Owner(ctx context.Context, p, tensor string) (*control.Ownership, error) {
	out := &control.Ownership{Path: p, Tensor: tensor}
	held := m.o.Inspect.Holders(ctx, m.o.Files.Source(p), []string{tensor})[0]
	src, own := held.File, held.Tensor
	err := m.withAfterSave(ctx, func() error {
		e, err := m.oneModelLocked("owner", src)
		if err != nil {
			return err
		}
		if e.RetiredAt != 0 {
			return &fs.PathError{Op: "owner", Path: p, Err: control.NoData("it is retired: whose its tensors were is forgotten")}
		}
		doc, err := m.o.Manifest(e.Manifest)
		if err != nil {
			return &fs.PathError{Op: "owner", Path: p, Err: err}
		}
		if e.Tensors == 0 && len(doc.Tensors) > 0 {
			return &fs.PathError{Op: "owner", Path: p, Err: control.NoData("a remote alone has its bytes, and until `ckptfs pull` brings them it is not known whose its tensors are")}
		}
		for i := range doc.Tensors {
			if doc.Tensors[i].Name == own && i < len(e.Owners) {
				if oe := m.book.Get(e.Owners[i]); oe != nil {
					out.Owner = describe(oe)
					return nil
				}
			}
		}
		return &fs.PathError{Op: "owner", Path: p, Err: control.NotFound("no tensor %q in it", tensor)}
	})
	return out, err
}

// Retire records that a step, or a file, which was removed is retired. It is done when the path holds no
// models any more; doing it again changes nothing.
func (m *Models) Retire(ctx context.Context, p string) (*control.Retired, error) {
	out := &control.Retired{Path: p, Models: []control.Model{}}
	if m.o.ReadOnly {
		return nil, &fs.PathError{Op: "retire", Path: p, Err: unix.EROFS}
	}
	err := m.with(ctx, func() error {
		entries := m.atLocked(p)
		if len(entries) > 0 && entries[0].RetiredAt == 0 {
			return &fs.PathError{Op: "retire", Path: p, Err: fmt.Errorf("%s is still there: %w", entries[0].Path, unix.EBUSY)}
		}
		for _, e := range entries {
			out.Models = append(out.Models, describe(e))
		}
		return m.recordLocked()
	})
	return out, err
}
