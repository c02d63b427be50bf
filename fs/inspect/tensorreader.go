package inspect

import (
	"errors"
	"io"
	"io/fs"
	"slices"

	"ckptfs/formats"
	"ckptfs/fs/view"
)

// tensorReader reads the elements of one tensor, contiguous and row-major, whatever the file holds.
type tensorReader struct {
	path string
	plan *view.View
	head int64
	src  io.ReaderAt
	done func()
}

// openTensor makes a tensor readable until done is called.
func (ins *Inspector) openTensor(f *file, t *formats.Tensor) (*tensorReader, error) {
	one := *t
	one.Name = "t"
	switch _, size := t.DType.Block(); {
	case t.DType == formats.C128: // which a header of safetensors cannot say
		one.DType = formats.F64
		one.Shape = append(slices.Clone(t.Shape), 2)
		if t.Stride != nil {
			one.Stride = nil
			for _, s := range t.Stride {
				one.Stride = append(one.Stride, 2*s)
			}
			one.Stride = append(one.Stride, 1)
		}
	case size > 0 || t.DType.Bits()%8 != 0: // its bytes will do
		if !t.Contiguous() {
			return nil, errors.New("its elements cannot be gathered")
		}
		one.DType, one.Shape, one.Stride = formats.U8, []int64{t.NumBytes()}, nil
	}
	plan, err := view.Safetensors(f.layout.Regions, []formats.Tensor{one})
	if err != nil {
		return nil, err
	}
	src, done, err := f.open()
	if err != nil {
		return nil, err
	}
	return &tensorReader{path: f.path, plan: plan, head: plan.Size() - t.NumBytes(), src: src, done: func() {
		plan.Drop()
		done()
	}}, nil
}

func (r *tensorReader) read(p []byte, off int64) error {
	n, err := r.plan.ReadAt(r.src, p, r.head+off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &fs.PathError{Op: "read", Path: r.path, Err: err}
}
