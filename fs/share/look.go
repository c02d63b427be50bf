package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/share/attrs"
	"ckptfs/fs/share/known"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// Reasons why a name is not published yet, or not at all.
var (
	errOpen     = errors.New("open for writing")
	errUnpacked = errors.New("not packed yet")
	errTorn     = errors.New("torn: a file of it was open for writing as the mount ended; write it again, or touch it if it is whole, or remove it")
	errLost     = errors.New("the disk did not take all that was written to it")
	errChanged  = errors.New("it was changed while it was read")
)

// looker makes entries of what the tree shows.
type looker struct {
	*Share
	ctx   context.Context
	waits bool         // until a change later than its look is told by a file's times
	batch *store.Batch // holds the manifests that were made for entries
}

// entry makes the entry of a node by its path, but for whose it is. Of a name that is not shared e is nil. If
// it looks as it did when k was noted, e is nil, too.
func (l *looker) entry(n *names.Node, path string, st *steps.Step, k *known.Name) (
	e *record.Entry, look known.Sum, err error) {
	if n.File() != nil {
		return l.file(n, path, st, k)
	}
	a, err := n.Attr()
	if err != nil {
		return nil, look, err
	}
	e = &record.Entry{Path: path, Mode: uint16(a.Mode & 0o777), MTime: nanoseconds(a.Mtime)}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		e.Kind = record.KindLink
		e.Link, err = n.Readlink()
	case unix.S_IFDIR:
		e.Kind = record.KindFolder
		e.Metrics = attrs.Metrics(st)
		e.Attrs, err = attrs.Of(n)
	default:
		return nil, look, nil
	}
	look = known.ContentOf(e)
	if k != nil && look == k.Look {
		return nil, look, err
	}
	return e, look, err
}

// file is entry of a regular file.
func (l *looker) file(n *names.Node, path string, st *steps.Step, k *known.Name) (
	*record.Entry, known.Sum, error) {
	a, is, err := settled(n)
	if l.waits && time.Since(time.Unix(0, nanoseconds(a.Ctime))).Abs() < tick {
		time.Sleep(tick) // another change might come in the same tick of the host's clock
		a, is, err = settled(n)
	}
	look := lookOf(&a, &is, st)
	if err != nil || k != nil && look == k.Look {
		return nil, look, err
	}
	e := &record.Entry{Path: path, Mode: uint16(a.Mode & 0o777), MTime: nanoseconds(a.Mtime),
		Metrics: attrs.Metrics(st)}
	e.File = &record.File{Size: a.Size}
	switch {
	case a.Size <= record.MaxInline:
		e.File.Inline, err = inline(n.File(), a.Size)
	case is.Packed():
		e.File.Manifest = is.Record.Manifest
		return e, look, nil
	default:
		e.File.Manifest, err = l.pack(n.File(), a.Size)
	}
	if err != nil {
		return nil, look, err
	}
	if b, now, err := settled(n); err != nil || a != b || is.Gen != now.Gen {
		return nil, look, errors.Join(errChanged, err)
	}
	return e, look, nil
}

// tick is longer than a tick of any host's clock that files' times are taken from.
const tick = 20 * time.Millisecond

// lookOf is what tells that a file is as it was.
func lookOf(a *tree.Attr, is *content.State, st *steps.Step) known.Sum {
	return known.SumOf(fmt.Appendf(nil, "%d %o %d %d %x %v", a.Size, a.Mode, nanoseconds(a.Mtime),
		nanoseconds(a.Ctime), is.Record.Manifest, attrs.Metrics(st)))
}

// settled is how a file is that nobody writes, and that needs no packing to be published.
func settled(n *names.Node) (a tree.Attr, is content.State, err error) {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return a, is, err
	}
	is = f.StateLocked()
	switch {
	case is.Damage != nil:
		return a, is, is.Damage
	case is.Record.Lost:
		return a, is, errLost
	case is.Writers > 0 || f.MappedLocked():
		return a, is, errOpen
	}
	a, err = n.AttrLocked()
	a.Atime, a.Blocks = unix.Timespec{}, 0
	if err == nil && is.Dirty && a.Size > record.MaxInline {
		err = errUnpacked
	}
	return a, is, err
}

// inline reads a small file.
func inline(f *content.File, size int64) (string, error) {
	f.Lock()
	err := f.UseLocked()
	f.Unlock()
	if err != nil {
		return "", err
	}
	defer func() {
		f.Lock()
		defer f.Unlock()
		f.DoneLocked()
	}()
	p := make([]byte, size)
	if n, err := f.ReadAt(p, 0); n < len(p) {
		return "", errors.Join(errChanged, err)
	}
	return string(p), nil
}

// pack stores a file that stays as it is: what reads it elsewhere needs a manifest.
func (l *looker) pack(f *content.File, size int64) (h cas.Hash, err error) {
	raw, err := f.OpenQuietly()
	if err != nil {
		return h, err
	}
	defer raw.Close()
	defer l.o.Wait()() // it is a small file, and others wait for it
	res, err := l.o.Pack.File(l.ctx, l.batch, raw, size)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return h, errChanged
	}
	if err != nil {
		return h, err
	}
	return res.Hash, nil
}

func nanoseconds(t unix.Timespec) int64 {
	ns, _ := tree.Nanoseconds(t)
	return ns
}
