package detect

import (
	"errors"
	"io"
	"path"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/formats/hdf5"
	"ckptfs/formats/npy"
	"ckptfs/formats/onnx"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/tensorflow"
	"ckptfs/formats/torchlegacy"
	"ckptfs/formats/torchzip"
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

// suspects are the parsers that a file's ending speaks for. What torch saves is known by how it begins.
var suspects = map[string]formats.Parser{
	".safetensors": safetensors.Parser{}, ".npy": npy.Parser{}, ".npz": npy.Zip{}, ".gguf": gguf.Parser{}, ".h5": hdf5.Parser{}, ".hdf5": hdf5.Parser{},
	".onnx": onnx.Parser{}, ".pt": nil, ".pth": nil, ".ckpt": nil, ".pt2": nil, ".bin": nil,
}

// compressed are how files begin that are compressed as a whole, by what.
var compressed = map[string]string{"gzip": "\x1f\x8b\x08", "bzip2": "BZh", "xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd", "lz4": "\x04\x22\x4d\x18"}

// Why says why no parser knows a file: it is compressed, or not what its ending has one expect. "" when there is nothing to be said.
func Why(name string, r io.ReaderAt, size int64) string {
	head := make([]byte, min(size, SniffLen))
	if err := formats.ReadFull(r, head, 0); err != nil || size == 0 {
		return ""
	}
	for by, magic := range compressed {
		if strings.HasPrefix(string(head), magic) {
			return "the file is compressed, by " + by
		}
	}
	ext := path.Ext(name)
	p, ok := suspects[ext]
	switch {
	case ext == ".joblib" && len(head) > 2 && head[0] == 0x78 && (int(head[0])<<8|int(head[1]))%31 == 0:
		return "the file is compressed, by zlib"
	case ext == ".zip" && sniffZip(head):
		return "zip: entries are compressed, or are no files with tensors"
	case !ok, p == nil && !sniffZip(head) && !torchlegacy.Sniff(head):
		return ""
	case p == nil && sniffZip(head):
		p = torchzip.Parser{}
	case p == nil:
		p = torchlegacy.Parser{}
	}
	if _, err := parse(p, r, size); errors.Is(err, formats.ErrNotFormat) {
		return strings.Replace(err.Error(), formats.ErrNotFormat.Error()+": ", "", 1)
	}
	return ""
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
	x, err := onnx.ReadExternal(d.other, d.size)
	if err != nil {
		return nil, err
	}
	return x.Layout(d.name, size)
}
