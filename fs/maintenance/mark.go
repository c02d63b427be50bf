package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// marker finds everything in the store that files need: the mark of mark-and-sweep.
//
// It walks the names and collects the manifests, and then reads the manifests. Names.EachFile misses no file
// that moves meanwhile. The sweep itself keeps what is packed meanwhile.
type marker struct {
	passes *Passes
	m      *store.Marking

	mu        sync.Mutex
	manifests map[cas.Hash]string // each with the path of a file
	lists     map[cas.Hash]bool   // chunk lists that were read
}

// mark is the Mark of a sweep. It fails when it cannot find out what some file needs. With forget set the
// ledger forgets tombstones that nothing needs, and their records are not kept.
func (p *Passes) mark(ctx context.Context, m *store.Marking, forget bool) error {
	k := &marker{passes: p, m: m, manifests: map[cas.Hash]string{}, lists: map[cas.Hash]bool{}}
	if err := p.Names.EachFile(ctx, p.with(k.file)); err != nil {
		return err
	}
	if err := p.Models.Mark(forget, m.Keep); err != nil {
		return fmt.Errorf("lineage: %w", err)
	}
	if err := k.read(ctx, k.manifests, false); err != nil {
		return err
	}
	// Manifests that no file has yet. A clone makes one of another file's and may put no chunk. The walk may
	// have missed that other file, which is gone by now or has changed. Then the clone has put its manifest
	// once this lock is free. What a later clone takes is marked already.
	p.Files.Cloning.Lock()
	//lint:ignore SA2001 taken only to wait for its holders
	p.Files.Cloning.Unlock()
	named := map[cas.Hash]string{}
	for _, h := range m.Named() {
		named[h] = "a file being packed"
	}
	if err := k.read(ctx, named, true); err != nil {
		return err
	}
	return k.read(ctx, p.lostManifests(), true)
}

// needed notes that the file at path needs a manifest.
func (k *marker) needed(h cas.Hash, path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.manifests[h] = path
}

// file notes what a file needs.
func (k *marker) file(path string, n *names.Node, _ *unix.Stat_t) error {
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
		// The header of a hollow file repeats its record, which is lost.
		var h tree.Header
		if h, err = f.HeaderLocked(); err != nil {
			err = is.Damage
		} else if !h.Record.Remote {
			k.needed(h.Record.Manifest, path)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: what it needs is unknown: %w; `ckptfs check` says how to mend it", path, err)
	}
	if is.Packed() && !is.Record.Remote {
		k.needed(is.Record.Manifest, path)
	}
	return nil
}

// lostManifests are those of the files that a repair moved to lost+found. What is left of such a file is kept
// as long as it lies there.
func (p *Passes) lostManifests() map[cas.Hash]string {
	found := map[cas.Hash]string{}
	lost, err := p.Folder.Sub(tree.LostFound)
	if err != nil {
		return found
	}
	defer lost.Close()
	_ = lost.Walk(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		handle, err := lost.Open(path, unix.O_PATH, 0) // its mode may deny more
		if err != nil {
			return nil
		}
		defer handle.Close()
		if rec, err := tree.ReadRecord(fmt.Sprintf("/proc/self/fd/%d", handle.Fd())); err == nil {
			if rec.Packed() {
				found[rec.Manifest] = lost.Join(path)
			}
			return nil
		}
		f, err := lost.Open(path, os.O_RDONLY, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		head := make([]byte, tree.HeaderSize)
		if _, err := f.ReadAt(head, 0); err == nil {
			if h, err := tree.DecodeHeader(head); err == nil {
				found[h.Record.Manifest] = lost.Join(path)
			}
		}
		return nil
	})
	return found
}

// read keeps manifests and all that they name. If lenient, it passes over what is lost or damaged.
func (k *marker) read(ctx context.Context, manifests map[cas.Hash]string, lenient bool) error {
	todo := slices.Collect(maps.Keys(manifests))
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for range cas.Processors { // not a goroutine for each manifest: each would grow a stack
		g.Go(func() error {
			var buf []byte
			for i := next.Add(1) - 1; i < int64(len(todo)) && gctx.Err() == nil; i = next.Add(1) - 1 {
				err := k.manifest(todo[i], &buf)
				if err == nil || lenient && gone(err) {
					continue
				}
				return fmt.Errorf("%s: what it needs is unknown: %w; `ckptfs check` says how to mend it",
					manifests[todo[i]], err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// gone reports whether what was to be read is lost or damaged.
func gone(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) || disk.Unreadable(err)
}

// manifest keeps a manifest and all that it names. buf is for its bytes, and may be used again.
func (k *marker) manifest(h cas.Hash, buf *[]byte) error {
	k.m.Keep(h)
	raw, err := k.passes.Store.Get(h, (*buf)[:0])
	if err != nil {
		return err
	}
	*buf = raw
	objects, err := manifest.Objects(raw)
	if err != nil {
		return err
	}
	for _, o := range objects {
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
		spans, err := o.Spans(k.passes.Store.Get)
		if err != nil {
			return err
		}
		for _, s := range spans {
			k.m.Keep(s.Hash)
		}
	}
	return nil
}
