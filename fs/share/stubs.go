package share

import (
	"context"
	"fmt"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
)

// isStub reports whether a node is a file whose bytes the remote alone has; false of one whose record cannot
// be read.
func isStub(n *names.Node) bool {
	is, err := content.IsRemote(n.File())
	return err == nil && is
}

// isLost reports whether a node is a stub of which nobody here knows where its bytes are: STORE/remote.db was
// lost, and no head names it any more. What the remote has in its place can only be better.
func (p *pull) isLost(n *names.Node) (bool, error) {
	is, err := content.IsRemote(n.File())
	if err != nil || !is {
		return false, err
	}
	f := n.File()
	f.Lock()
	manifest := f.StateLocked().Record.Manifest
	f.Unlock()
	at, err := p.o.State.File(manifest)
	return at == nil && err == nil, err
}

// unstub brings the bytes of a name that is a stub, unless stubs are what is wanted.
func (p *pull) unstub(ctx context.Context, n *names.Node, e *record.Entry) error {
	if p.stubs || !isStub(n) {
		return nil
	}
	if err := p.bringOne(ctx, e); err != nil {
		return err
	}
	did, err := content.Brought(n.File(), e.File.Manifest)
	if err == nil && !did {
		err = errChanged
	}
	if err == nil {
		p.o.Steps.Changed(n.Ino()) // what only the bytes tell of a model is known now
		p.out.Files++
		p.out.Bytes += e.File.Size
	}
	return err
}

// bringStubs brings what entries need that only the remote has: files that were copied, or have another name,
// since they appeared here. It is the batch's until that is released. What the remote has lost keeps nothing
// else from being published: the entries that are left are returned.
func (p *push) bringStubs(ctx context.Context, b *store.Batch, entries []record.Entry) (
	left []record.Entry, err error) {
	for _, e := range entries {
		err := p.bringStub(ctx, b, &e)
		switch {
		case err == nil:
			left = append(left, e)
		case lost(err):
			p.out.Skipped = append(p.out.Skipped, control.Skip{Path: e.Path, Reason: err.Error()})
			delete(p.found.done, shared.Step(e.Path))
		default:
			return nil, fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return left, b.Commit()
}

func (p *push) bringStub(ctx context.Context, b *store.Batch, e *record.Entry) error {
	if e.File == nil || e.File.Manifest.IsZero() {
		return nil
	}
	f, err := p.o.State.File(e.File.Manifest)
	if err != nil || f == nil {
		return err
	}
	return p.bring.File(ctx, b, &record.Entry{Path: e.Path, File: f})
}

// replan keeps where the plans are now of files that were published again: those of before may go.
func (p *push) replan(entries []record.Entry, res writer.Result) error {
	var files []*record.File
	for i := range entries {
		if f := entries[i].File; f == nil || f.Manifest.IsZero() {
			continue
		}
		f, err := p.o.State.File(entries[i].File.Manifest)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		for _, e := range res.Head.Find(entries[i].Path) {
			if e.File != nil && e.File.Manifest == f.Manifest {
				files = append(files, e.File)
			}
		}
	}
	return p.o.State.SetFiles(files)
}
