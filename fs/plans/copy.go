package plans

import (
	"io"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/fs/view"
)

// copied is a range of a source.
type copied struct {
	src  int
	base int64
}

func (c *copied) read(src []io.ReaderAt, p []byte, off int64) error {
	return readFull(src[c.src], p, c.base+off)
}

func (c *copied) memory() int64 { return int64(unsafe.Sizeof(*c)) }

// gathered are elements of a source that do not lie one behind the other.
type gathered struct {
	src  int
	view *view.View
}

func (g *gathered) read(src []io.ReaderAt, p []byte, off int64) error {
	_, err := g.view.ReadAt(src[g.src], p, off)
	if err == io.EOF {
		err = nil
	}
	return err
}

func (g *gathered) memory() int64 { return g.view.Memory() }

// taken is the tensor t of the layout of source src: t may be a slice, by its offset and strides.
func taken(src int, s *Source, t formats.Tensor) (op, error) {
	if t.Contiguous() {
		return &copied{src, s.base(&t)}, nil
	}
	v, err := view.Of(nil, s.Layout.Regions, t)
	if err != nil {
		return nil, none("%v", err)
	}
	return &gathered{src, v}, nil
}
