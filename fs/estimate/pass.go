package estimate

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/dry"
	"ckptfs/formats"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
)

// pass is one way through all files, of which it packs a shell, or all.
type pass struct {
	*estimator
	shell, shells int
	packer        *pack.Packer
	finder        *bases.Finder
	byPath        map[string]*file
}

// pass packs one shell of all files.
func (e *estimator) pass(ctx context.Context, shell, shells int) error {
	p := &pass{estimator: e, shell: shell, shells: shells,
		packer: pack.New(e.store, pack.Options{LayoutBytes: e.o.LayoutBytes}),
		byPath: make(map[string]*file, len(e.files))}
	p.finder = bases.New(bases.Options{Store: e, Root: int(e.rootFD.Fd()), At: p.at})
	for i, f := range e.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.out {
			continue
		}
		f.manifest = cas.Hash{}
		switch err := p.file(ctx, uint32(i)); {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case e.store.Err() != nil, errors.Is(err, unix.ENOSPC):
			return err
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrNotExist), errors.Is(err, errChanged):
			f.out = true
			e.changed++
		default:
			f.out = true
			e.left.add(filepath.Join(e.root, f.shown), err)
		}
		p.byPath[f.path] = f
		if e.o.Progress != nil && e.o.Now().Sub(e.told) > tellEvery {
			e.tell(p.total(), i)
		}
	}
	return e.store.Err()
}

// total is how many bytes are read until this pass ends, and those that may follow it.
func (p *pass) total() int64 {
	if p.shells == 1 {
		return p.bytes()
	}
	return max(p.read, p.bytes()/int64(p.shells)*int64(max(minShells, p.shell+1)))
}

// at is the manifest of the file at a path below the root.
func (p *pass) at(rel string) (cas.Hash, bool) {
	f := p.byPath[rel]
	if f == nil || f.manifest.IsZero() {
		return cas.Hash{}, false
	}
	return f.manifest, true
}

// file packs what the shell has of a file.
func (p *pass) file(ctx context.Context, n uint32) error {
	f := p.files[n]
	if f.plain || p.shells > 1 && f.size < smallBlob && !p.mine(nameOf(f)) {
		return nil
	}
	raw, err := openRegular(filepath.Join(p.root, f.path))
	if err != nil {
		return err
	}
	defer raw.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(raw.Fd()), &st); err != nil {
		return err
	}
	if f.plain, err = content.StaysPlain(raw, st.Size); f.plain || err != nil {
		f.format = "plain"
		f.size = st.Size
		if holes, err := tree.HasHoles(int(raw.Fd()), st.Size); holes && err == nil {
			f.size = min(st.Size, st.Blocks*512)
		}
		return err
	}
	f.size = st.Size
	var r io.ReaderAt = raw
	size := st.Size
	place := func(off int64, _ int) (int64, bool) { return off, true }
	layout := func() (*formats.Layout, error) { return p.layout(f, raw, st.Size) }
	if p.shells > 1 {
		l, err := layout()
		if err != nil {
			return err
		}
		f.format = l.Format
		s := p.sampleOf(f, raw, l)
		if s.size == 0 {
			return nil
		}
		r, size, place = s, s.size, s.place
		layout = func() (*formats.Layout, error) { return s.layout, nil }
	}
	return p.pack(ctx, n, bases.Packing{Path: f.path, Raw: p.metered(r, size, int(n)), Size: size,
		Layout: layout}, place)
}

// pack packs a file and adds what it takes.
func (p *pass) pack(ctx context.Context, n uint32, what bases.Packing, place dry.Place) error {
	f := p.files[n]
	b := p.store.Begin(n, place)
	what.Pack = func(l *formats.Layout, rel pack.Related) (*pack.Result, error) {
		res, err := p.packer.Layout(ctx, b, what.Raw, what.Size, l, rel)
		if err == nil {
			f.manifest, f.format = res.Hash, res.Manifest.Format
			p.known.add(res.Hash, res.Manifest)
		}
		return res, err
	}
	if _, err := p.finder.Pack(ctx, what); err != nil {
		return err
	}
	p.add(n, b.Tally(), what.Size)
	return nil
}

// add counts what was packed of a file.
func (p *pass) add(n uint32, t dry.Tally, size int64) {
	f := p.files[n]
	f.sampled += size
	p.read += size
	// What was packed twice, since the first layout did not do, is equal to itself.
	t.Of[dry.Equal].Raw = max(0, size-t.Raw())
	for k, c := range t.Of {
		f.tally[k].Raw += c.Raw
		f.tally[k].Stored += c.Stored
	}
	for other, n := range t.From {
		if f.kin == nil {
			f.kin = map[int32]int64{}
		}
		if _, known := f.kin[int32(other)]; known || len(f.kin) < mostKin {
			f.kin[int32(other)] += n
		}
	}
	if p.shells > 1 {
		p.replicates[len(p.replicates)-1].add(p.stratum(n), size, t.Stored())
	}
}

// layout is the file's, as packing would find it.
func (p *pass) layout(f *file, raw *os.File, size int64) (*formats.Layout, error) {
	dir := filepath.Join(p.root, path.Dir(f.path))
	l, err := p.packer.Detector().Named(path.Base(f.path), raw, size,
		func(name string) (io.ReaderAt, int64, func(), error) { return beside(raw, filepath.Join(dir, name)) })
	if err == nil && !p.packer.Keeps(l) {
		l = formats.BlobLayout(size)
	}
	return l, err
}

// beside opens the file that describes another one, if it is of the same owner.
func beside(raw *os.File, p string) (io.ReaderAt, int64, func(), error) {
	var own, other unix.Stat_t
	f, err := openRegular(p)
	if err != nil {
		return nil, 0, nil, err
	}
	if err := errors.Join(unix.Fstat(int(raw.Fd()), &own), unix.Fstat(int(f.Fd()), &other)); err != nil ||
		own.Uid != other.Uid {
		f.Close()
		return nil, 0, nil, errors.Join(err, unix.ENOENT)
	}
	return f, other.Size, func() { f.Close() }, nil
}
