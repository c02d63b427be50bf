package detect

import (
	"io"

	"ckptfs/formats"
)

// Beside opens another file in the folder of the one that is looked at; fs.ErrNotExist when there is none.
// done closes it.
type Beside func(name string) (r io.ReaderAt, size int64, done func(), err error)

// sidecar returns the file that describes one of this name, and the format that it is of; nil where none
// does.
func sidecar(name string) (f formats.Sidecar, by string, sure bool) {
	for _, f := range table {
		if f.Sidecar == nil {
			continue
		}
		if by, sure := f.Sidecar.Of(name); by != "" {
			return f.Sidecar, by, sure
		}
	}
	return nil, "", false
}

// Awaited reports whether a file of this name is known only by another.
func Awaited(name string) bool {
	_, _, sure := sidecar(name)
	return sure
}

// Named is Detect of a file of a name, which another may describe. What is wrong with that one does not
// matter.
func (d *Detector) Named(name string, r io.ReaderAt, size int64, beside Beside) (*formats.Layout, error) {
	l, err := d.Detect(r, size)
	if err != nil || l.Format != formats.BlobLayout(0).Format || size == 0 {
		return l, err
	}
	f, by, _ := sidecar(name)
	if f == nil {
		return l, nil
	}
	other, otherSize, done, err := beside(by)
	if err != nil {
		return l, nil
	}
	defer done()
	if known, err := parse(described{f, name, other, otherSize}, r, size); err == nil {
		return known, nil
	}
	return l, nil
}

// described is the parser of a file by another.
type described struct {
	formats.Sidecar
	name string
	by   io.ReaderAt
	size int64
}

func (described) Name() string { return "described" }

func (d described) Parse(_ io.ReaderAt, size int64) (*formats.Layout, error) {
	return d.Layout(d.name, size, d.by, d.size)
}
