package detect

import (
	"io"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/onnx"
	"ckptfs/formats/tensorflow"
)

// Beside opens another file in the folder of the one that is looked at; fs.ErrNotExist when there is none. done closes it.
type Beside func(name string) (r io.ReaderAt, size int64, done func(), err error)

// described are the files of raw bytes that another one describes.
//
//	PREFIX.data-00000-of-00001             PREFIX.index    TensorFlow
//	NAME.onnx.data, NAME.onnx_data         NAME.onnx       ONNX's external data, as torch and optimum call it
//	NAME.bin, NAME.data, NAME.weights      NAME.onnx       the same
//
// sure says that the name is not used for anything else.
func described(name string) (by string, sure bool) {
	if index, _, _, ok := tensorflow.Shard(name); ok {
		return index, true
	}
	for _, suffix := range []string{".onnx.data", ".onnx_data"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok {
			return stem + ".onnx", true
		}
	}
	for _, suffix := range []string{".bin", ".data", ".weights"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok {
			return stem + ".onnx", false
		}
	}
	return "", false
}

// Awaited reports whether a file of this name is known only by another.
func Awaited(name string) bool {
	_, sure := described(name)
	return sure
}

// Named is Detect of a file of a name, which another may describe. What is wrong with that one does not matter.
func Named(name string, r io.ReaderAt, size int64, beside Beside) (*formats.Layout, error) {
	l, err := Detect(r, size)
	if err != nil || l.Format != formats.BlobLayout(0).Format || size == 0 {
		return l, err
	}
	by, _ := described(name)
	if by == "" {
		return l, nil
	}
	other, otherSize, done, err := beside(by)
	if err != nil {
		return l, nil
	}
	defer done()
	if d, err := parse(describedBy{name, other, otherSize}, r, size); err == nil {
		return d, nil
	}
	return l, nil
}

// describedBy is the parser of a file by another.
type describedBy struct {
	name  string
	other io.ReaderAt
	size  int64
}

func (d describedBy) Name() string { return "described" }

func (d describedBy) Parse(_ io.ReaderAt, size int64) (*formats.Layout, error) {
	if _, number, shards, ok := tensorflow.Shard(d.name); ok {
		return tensorflow.Layout(d.other, d.size, number, shards, size)
	}
	return onnx.External(d.other, d.size, d.name, size)
}
