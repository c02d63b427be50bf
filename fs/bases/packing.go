package bases

import (
	"context"
	"errors"
	"io"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/fs/pack"
)

// slightShare: a file is slight if less than one part of so many was stored of it.
const slightShare = 50

// Packing is a file that is to be packed.
type Packing struct {
	Path string // below the tree's root
	Raw  io.ReaderAt
	Size int64 // bytes
	// Layout finds the file's layout.
	Layout func() (*formats.Layout, error)
	// Pack packs it by a layout, with the help of what it is related to. From its return on the manifest can
	// be read.
	Pack func(l *formats.Layout, rel pack.Related) (*pack.Result, error)
}

// Pack packs a file with the help of what the Finder finds, and remembers it: by the layout that is presumed
// of a model that has grown, if it has, else by its own.
func (f *Finder) Pack(ctx context.Context, p Packing) (*pack.Result, error) {
	var was []cas.Hash
	var res *pack.Result
	layout, rel, err := f.Presume(p.Path, p.Raw, p.Size)
	if layout != nil && err == nil {
		res, err = p.Pack(layout, rel)
	}
	if layout == nil && err == nil || errors.Is(err, pack.ErrPresumed) {
		if layout, err = p.Layout(); err != nil {
			return nil, err
		}
		var end func()
		rel, was, end = f.Related(ctx, p.Path, layout)
		defer end()
		res, err = p.Pack(layout, rel)
	}
	if err != nil {
		return nil, err
	}
	f.Note(p.Path, res.Hash, layout, was, res.FreshStored < p.Size/slightShare)
	f.NoteAnchors(res.Hash, res.Anchors)
	return res, nil
}
