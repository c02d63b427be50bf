package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/scratch"
	"ckptfs/cas/spilled"
	"ckptfs/cas/store"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// marker finds everything in the store that files need: the mark of mark-and-sweep.
//
// It walks the names, and reads each manifest when it comes to the first file that has it. Names.EachFile
// misses no file that moves meanwhile. The sweep itself keeps what is packed meanwhile.
type marker struct {
	passes *Passes
	m      *store.Marking
	read   *spilled.Set // manifests and chunk lists, or about to be
}

// mark is the Mark of a sweep. It fails when it cannot find out what some file needs. With forget set the
// ledger forgets tombstones that nothing needs, and their records are not kept.
func (p *Passes) mark(ctx context.Context, m *store.Marking, forget bool) error {
	k := &marker{passes: p, m: m, read: spilled.NewSet(p.Spill)}
	if err := p.Names.EachFile(ctx, p.with(k.file)); err != nil {
		return err
	}
	if err := p.Models.Mark(forget, m.Keep); err != nil {
		return fmt.Errorf("lineage: %w", err)
	}
	// Manifests that no file has yet. A clone makes one of another file's and may put no chunk. The walk may
	// have missed that other file, which is gone by now or has changed. Then the clone has put its manifest
	// once this lock is free. What a later clone takes is marked already.
	p.Files.Cloning.Lock()
	//lint:ignore SA2001 taken only to wait for its holders
	p.Files.Cloning.Unlock()
	for _, h := range m.Named() {
		if err := k.manifestLeft(ctx, h, "a file being packed"); err != nil {
			return err
		}
	}
	for h, path := range p.lostManifests() {
		if err := k.manifestLeft(ctx, h, path); err != nil {
			return err
		}
	}
	return nil
}

// file keeps what a file needs.
func (k *marker) file(path string, n *names.Node, _ *unix.Stat_t) error {
	needs, err := manifestsOf(n)
	for _, h := range needs {
		if err == nil {
			err = k.manifest(h)
		}
	}
	if err != nil {
		return unknown(path, err)
	}
	return nil
}

// manifestsOf are the manifests that a file needs.
func manifestsOf(n *names.Node) (needs []cas.Hash, err error) {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	err = f.LoadLocked()
	if err == nil && !f.StateLocked().Packed() {
		err = f.VetLocked()
	}
	is := f.StateLocked()
	if err == unix.ENOENT || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // gone meanwhile
	}
	if err == nil && is.Damage != nil {
		// The header of a hollow file repeats its record, which is lost.
		var h tree.Header
		if h, err = f.HeaderLocked(); err != nil {
			err = is.Damage
		} else if !h.Record.Remote {
			needs = append(needs, h.Record.Manifest)
		}
	}
	if is.Packed() && !is.Record.Remote {
		needs = append(needs, is.Record.Manifest)
	}
	return needs, err
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

// manifestLeft is manifest, but passes over what is lost or damaged.
func (k *marker) manifestLeft(ctx context.Context, h cas.Hash, of string) error {
	if err := k.manifest(h); err != nil && !gone(err) {
		return unknown(of, err)
	}
	return ctx.Err()
}

// unknown is the error of a file of which it cannot be found out what it needs.
func unknown(path string, err error) error {
	return fmt.Errorf("%s: what it needs is unknown: %w; `ckptfs check` says how to mend it", path, err)
}

// gone reports whether what was to be read is lost or damaged.
func gone(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) || disk.Unreadable(err)
}

// manifest keeps a manifest and all that it names.
func (k *marker) manifest(h cas.Hash) error {
	if !k.read.Add(short(h)) {
		return nil
	}
	k.m.Keep(h)
	buf := scratch.Get()
	defer scratch.Put(buf)
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
		if !o.List || !k.read.Add(short(o.Digest)) {
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
