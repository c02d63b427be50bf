package share

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
)

// Reasons why Drop leaves a file as it is.
const (
	keepUnpublished = "not published: `ckptfs push` publishes it"
	keepChanged     = "changed since it was published: `ckptfs push` publishes it"
	keepPlain       = "it is stored as it is, and not packed: the remote has it, and so has the disk"
	keepMoved       = "it was moved meanwhile"
	keepReplaced    = "the remote has another version of it by now: `ckptfs fetch` brings its name"
	keepRemoved     = "others removed it while this store was away: remove it, or touch and push it for all to have it"
)

// Drop frees what the files at or below a path take here, if the remote has them: the next prune takes their
// bytes, and they are read from the remote from then on. That they are published, and that each object is
// there, is asked before.
func (s *Share) Drop(ctx context.Context, at string, report func(control.Progress)) (
	*control.Dropped, error) {
	at, err := shared.Path("drop", at)
	if err != nil {
		return nil, err
	}
	defer Heard(ctx, s)
	if _, err := fetchHeads(ctx, s); err != nil { // what was published may not be any more
		return nil, err
	}
	n, err := s.o.Names.Resolve(at)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	d := &dropping{Share: s, report: report, out: control.Dropped{Skipped: []control.Skip{}}}
	if n.File() != nil {
		return &d.out, d.file(ctx, at, n)
	}
	err = s.o.Names.WalkBelow(ctx, at, n, func(p string, n *names.Node) error { return d.file(ctx, p, n) })
	slices.SortFunc(d.out.Skipped, func(a, b control.Skip) int { return strings.Compare(a.Path, b.Path) })
	return &d.out, err
}

// dropping is one Drop.
type dropping struct {
	*Share
	report func(control.Progress)
	out    control.Dropped

	unheld error  // why the remote may not have a file
	step   string // of which held are what heads say
	held   map[string][]*record.Entry
}

// file drops one file.
func (d *dropping) file(ctx context.Context, p string, n *names.Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	why, err := d.one(ctx, p, n)
	if shared.Gone(err) == nil {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("drop %s: %w", p, err)
	}
	if why != "" {
		d.out.Skipped = append(d.out.Skipped, control.Skip{Path: p, Reason: why})
	}
	if d.report != nil {
		d.report(control.Progress{DoneFiles: d.out.Files, DoneBytes: d.out.Bytes, Current: p})
	}
	return nil
}

// one drops a file, or says why not.
func (d *dropping) one(ctx context.Context, p string, n *names.Node) (why string, err error) {
	k, err := d.known(p)
	if err != nil {
		return "", err
	}
	st, err := d.stepAt(p)
	if err != nil {
		return "", err
	}
	a, is, err := settled(n)
	switch stub := is.Record.Remote && is.Record.Hollow; {
	case err == nil && (stub || a.Size <= record.MaxInline && k != nil):
		return "", nil
	case errors.Is(err, errOpen), errors.Is(err, errUnpacked), errors.Is(err, errLost):
		return err.Error(), nil
	case err != nil:
		return "", err
	case k == nil:
		return keepUnpublished, nil
	case lookOf(&a, &is, st) != k.Look:
		return keepChanged, nil
	case !is.Packed():
		return keepPlain, nil
	}
	f, err := d.entryOf(ctx, p, is.Record.Manifest)
	if err != nil {
		return "", err
	}
	switch {
	case f == nil && len(d.held[p]) == 0:
		return keepRemoved, nil
	case f == nil:
		return keepReplaced, nil
	}
	if err := d.o.Held(ctx, f); err != nil {
		d.unheld = err
		return "the remote may not have all of it: " + err.Error(), nil
	}
	if err := d.o.State.SetFiles([]*record.File{f}); err != nil {
		return "", err
	}
	return d.stub(p, n, f)
}

// stub makes a file a stub that has its name yet, and no other.
func (d *dropping) stub(p string, n *names.Node, f *record.File) (why string, err error) {
	d.leaving.Lock()
	defer d.leaving.Unlock()
	now, err := d.o.Names.Resolve(p)
	if shared.Gone(err) == nil && err != nil {
		return keepMoved, nil
	}
	if err != nil {
		return "", err
	}
	defer now.Unpin()
	if now.Ino() != n.Ino() {
		return keepMoved, nil
	}
	if why, err = content.Drop(n.File(), f.Manifest); why == "" && err == nil {
		d.out.Files++
		d.out.Bytes += f.Size
	}
	return why, err
}

// entryOf is what heads say of the file at a path, if it has that manifest; else nil.
func (d *dropping) entryOf(ctx context.Context, p string, manifest [32]byte) (*record.File, error) {
	if step := shared.Step(p); step != d.step || d.held == nil {
		held, err := d.heldBelow(ctx, step)
		if err != nil {
			return nil, err
		}
		d.step, d.held = step, held
	}
	for _, e := range rnames.Merge(d.held[path.Clean(p)]).Tips {
		if e.File != nil && e.File.Manifest == manifest && !e.File.Manifest.IsZero() {
			return e.File, nil
		}
	}
	return nil, nil
}
