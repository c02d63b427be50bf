package torchzip

import (
	"io"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
	"ckptfs/formats/torch"
	"ckptfs/formats/zipdir"
)

// Object is what torch.save wrote: a graph of values, and where the tensors in it lie.
type Object struct {
	Root   pickle.Value
	Layout *formats.Layout // regions alone

	storages []torch.Storage
}

// Open reads the pickle of a file. formats.ErrNotFormat: torch.save did not write the file, or its pickle is
// too long or is not understood.
func Open(r io.ReaderAt, size int64) (*Object, error) {
	records, err := zipdir.Read(r, size)
	if err != nil {
		return nil, err
	}
	a, err := newArchive(records)
	if err == nil && a.format != saved {
		err = reject("a program of torch.jit or torch.export")
	}
	if err == nil {
		err = a.checkByteOrder(r)
	}
	o := &Object{Layout: &formats.Layout{Format: saved}}
	if err == nil {
		err = a.addRegions(o.Layout, size)
	}
	if err != nil {
		return nil, err
	}
	g, err := a.readPickle(r)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, reject("its pickle is too long, or is not understood")
	}
	o.Root, o.storages = g.Root(), a.torchStorages()
	return o, nil
}

// Tensor is the tensor that a value is, without a name; false: the value is none.
func (o *Object) Tensor(v pickle.Value) (formats.Tensor, bool) { return torch.Tensor(v, o.storages) }
