package share

import (
	"context"
	"fmt"

	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
)

// isStub reports whether a node is a file whose bytes the remote has.
func isStub(n *names.Node) bool {
	f := n.File()
	if f == nil {
		return false
	}
	f.Lock()
	defer f.Unlock()
	return f.LoadLocked() == nil && f.StateLocked().Record.Remote
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
		p.out.Files++
		p.out.Bytes += e.File.Size
	}
	return err
}

// bringStubs brings what entries need that only the remote has: files that were copied, or have another name,
// since they appeared here. It is the batch's until that is released.
func (p *push) bringStubs(ctx context.Context, b *store.Batch, entries []record.Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.File == nil || e.File.Manifest.IsZero() {
			continue
		}
		f, err := p.o.State.File(e.File.Manifest)
		if err == nil && f != nil {
			err = p.bring.File(ctx, b, &record.Entry{Path: e.Path, File: f})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return b.Commit()
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
