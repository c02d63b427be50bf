package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// marker finds everything in the store that files need: the mark of mark-and-sweep.
//
// First the names are walked and the manifests collected, then the manifests are read. Names.EachFile misses
// no file that moves meanwhile. What is packed meanwhile the sweep sees to itself.
type marker struct {
	ps *Passes
	m  *store.Marking

	manifests map[cas.Hash]string // and a path of each

	mu    sync.Mutex
	lists map[cas.Hash]bool // read already
}

// mark is the Mark of a sweep. An error says that what some file needs cannot be told.
func (ps *Passes) mark(ctx context.Context, m *store.Marking) error {
	k := &marker{ps: ps, m: m, manifests: map[cas.Hash]string{}, lists: map[cas.Hash]bool{}}
	if err := ps.Names.EachFile(ctx, k.file); err != nil {
		return err
	}
	if err := ps.Models.Mark(true, m.Keep); err != nil {
		return fmt.Errorf("lineage: %w", err)
	}
	if err := k.read(ctx, k.manifests, false); err != nil {
		return err
	}
	// Manifests on their way, which may be made of others without a chunk being put. A packer that took one
	// from a file that the walk has not seen, since it is gone or was changed, has put it when this lock is
	// free. What is taken from now on is known.
	ps.Files.Cloning.Lock()
	//lint:ignore SA2001 it is waited for, nothing else
	ps.Files.Cloning.Unlock()
	named := map[cas.Hash]string{}
	for _, h := range m.Named() {
		named[h] = "a file being packed"
	}
	if err := k.read(ctx, named, true); err != nil {
		return err
	}
	return k.read(ctx, ps.lostManifests(), true)
}

// file notes what a file needs.
func (k *marker) file(n *names.Node, p string) error {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	err := f.LoadLocked()
	if err == nil && !f.StateLocked().Packed() {
		err = f.VetLocked()
	}
	is := f.StateLocked()
	if err == unix.ENOENT || errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	if err == nil && is.Damage != nil {
		// The header of a hollow file says what its lost record said.
		var h tree.Header
		if h, err = f.HeaderLocked(); err == nil {
			k.manifests[h.Record.Manifest] = p
		} else {
			err = is.Damage
		}
	}
	if err != nil {
		return fmt.Errorf("%s: what it needs cannot be told: %w", p, err)
	}
	if is.Packed() {
		k.manifests[is.Record.Manifest] = p
	}
	return nil
}

// lostManifests are those of files that a repair moved aside: as long as these lie there, what is left of
// them is kept.
func (ps *Passes) lostManifests() map[cas.Hash]string {
	found := map[cas.Hash]string{}
	lost := filepath.Join(ps.Dir, tree.LostFound)
	_ = filepath.WalkDir(lost, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if rec, err := tree.ReadRecord(p); err == nil {
			if rec.Packed() {
				found[rec.Manifest] = p
			}
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return nil
		}
		defer f.Close()
		head := make([]byte, tree.HeaderSize)
		if _, err := f.ReadAt(head, 0); err == nil {
			if h, err := tree.DecodeHeader(head); err == nil {
				found[h.Record.Manifest] = p
			}
		}
		return nil
	})
	return found
}

// read keeps manifests and all that they name. If lenient, what cannot be read is passed over.
func (k *marker) read(ctx context.Context, manifests map[cas.Hash]string, lenient bool) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for h, p := range manifests {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := k.manifest(h)
			if err == nil || lenient && (errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt)) {
				return nil
			}
			return fmt.Errorf("%s: what it needs cannot be told: %w", p, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (k *marker) manifest(h cas.Hash) error {
	k.m.Keep(h)
	p, err := k.ps.Store.Get(h, nil)
	if err != nil {
		return err
	}
	m, err := manifest.Decode(p)
	if err != nil {
		return err
	}
	for _, o := range m.Objects {
		k.m.Keep(o.Digest)
		if !o.List {
			continue
		}
		k.mu.Lock()
		seen := k.lists[o.Digest]
		k.lists[o.Digest] = true
		k.mu.Unlock()
		if seen {
			continue
		}
		spans, err := o.Spans(k.ps.Store.Get)
		if err != nil {
			return err
		}
		for _, s := range spans {
			k.m.Keep(s.Hash)
		}
	}
	return nil
}
