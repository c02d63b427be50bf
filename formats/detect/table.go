package detect

import (
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/archive"
	"ckptfs/formats/arrow"
	"ckptfs/formats/frames"
	"ckptfs/formats/gguf"
	"ckptfs/formats/hdf5"
	"ckptfs/formats/npy"
	"ckptfs/formats/onnx"
	"ckptfs/formats/pyobject"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/tensorflow"
	"ckptfs/formats/torchlegacy"
	"ckptfs/formats/torchzip"
	"ckptfs/formats/trees"
)

// table has all formats. Their parsers are asked in this order: where a file may be of two, the more
// particular one comes first. Of files whose views would have one name, the view is that of the first.
//
// A safetensors file may begin as a zip does (a header of 67 MB); torch's zips, .npz and .distcp are zips;
// torch's old files are pickles; a tar file may begin with anything. All others begin differently from each
// other.
var table = []*formats.Format{
	&safetensors.Format,
	&torchzip.Format,
	&torchzip.SequenceFormat,
	&torchlegacy.Format,
	&npy.ZipFormat,
	&npy.Format,
	&hdf5.Format,
	&onnx.Format,
	&gguf.Format,
	&trees.Format,
	&pyobject.Format,
	&frames.Format,
	&arrow.Format,
	&archive.ZipFormat,
	&archive.TarFormat,
	&tensorflow.Format,
}

// Views returns the endings of the names of files that may have a safetensors view beside them, each once,
// best first.
func Views() []string {
	var all []string
	for _, f := range table {
		for _, ending := range f.Views {
			if !slices.Contains(all, ending) {
				all = append(all, ending)
			}
		}
	}
	return all
}

// About returns what is true of all files whose Layout.Format is name. Of a name that no format has, it is
// the name alone.
func About(name string) formats.Name {
	for _, f := range table {
		for _, n := range f.Names {
			if n.Name == name {
				return n
			}
		}
	}
	return formats.Name{Name: name}
}
