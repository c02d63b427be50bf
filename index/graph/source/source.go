// Package source finds the architecture graph of a model among the files of its step, and reads it. Nothing
// of a source is executed; its bytes are bounded by MaxSource, the depth of its nesting by 64.
//
// # Kinds, first that applies
//
//	explicit  exact                        GRAPH.json, see below
//	onnx      exact, a vertex an operator  nodes of a model's graph, initializers as parameters
//	export    exact, a vertex an operator  the graph of a torch.export archive
//	keras     exact                        config.json of a .keras file, attribute model_config of an HDF5 one
//	seq       approximate                  a torch file's tensors in their order: a vertex a module, a chain
//	bag       similarity only              any other file's tensors: a vertex a module, no edges
//
// In seq and bag a module is what stands before the last dot or slash of a tensor's name. In a seq the
// module's name is no part of its identity, in a bag it is. A bag has no vertex for the virtual root that
// longest common prefixes begin at: it would match in every pair of bags and turn "none" into a match of
// length 1.
//
// # Where each is looked for
//
//	explicit  attribute user.ckptfs.arch of the model; MODEL.arch.json beside the model MODEL; arch.json or
//	          graph.json in its folder, or in the step's; member "ckptfs.arch" of the __metadata__ of a
//	          safetensors file
//	onnx      the model itself; model.onnx in its folder
//	export    the model itself, a .pt2 file; the only .pt2 file in its folder
//	keras     the model itself, a .keras file or an HDF5 file; the only .keras file in its folder
//	seq, bag  the model's tensors
//
// # GRAPH.json
//
// At most 16 MiB and 65,535 vertices, nested at most 64 deep; a member that is not described here is refused,
// so that a misspelt one is not an empty one.
//
//	{"v": 1, "nodes": [
//	  {"id": "x",     "op": "Input",  "cfg": {"shape": [null, 3, 32, 32]}},
//	  {"id": "conv1", "op": "Conv2d", "cfg": {"out": 16}, "in": ["x"],
//	   "params": ["conv1.weight", "conv1.bias"]},
//	  {"id": "sum",   "op": "Add",    "in": ["conv1", "x:1"], "comm": true}]}
//
//	id      not empty, one for each vertex
//	op      not empty: the layer's class
//	cfg     object, default {}
//	in      ids of vertices further up, in argument order; "id:k" is output k (an id that is spelt so comes
//	        first)
//	comm    the order of the inputs does not matter: only for Add, Mul, Multiply, Average, Max, Maximum, Min,
//	        Minimum
//	params  tensors of the file, each a name or {"name": …, "dtype": "F32", "shape": [16, 3, 3, 3],
//	        "tied": […]}; tied are other names of the same tensor, of which a file may have but one
//
// The canonical cfg is JSON as RFC 8785 has it (members sorted by UTF-16 units, shortest numbers, no white
// space), less the members name, trainable, dtype_policy and dtype-policy of cfg itself, and seed at any
// depth. An object with members class_name and config nests a layer's cfg, and the same members are left out
// of that config. Integers that no float64 holds keep their digits: rounding them, as the RFC would, makes
// different layers equal.
package source

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/hdf5"
	"ckptfs/formats/onnx"
	"ckptfs/formats/safetensors"
	"ckptfs/formats/zipdir"
	"ckptfs/index/graph"
)

// File is a file of a step.
type File struct {
	Rel   string // below the step's folder
	Stamp string // changes with its bytes
	Attr  []byte // its attribute Xattr; nil when it has none
}

// ErrAbsent says that a source that may have a graph has none; callers do not report it. It comes with
// graph.ErrInvalid.
var ErrAbsent = errors.New("nothing is said")

// Xattr is the extended attribute of a model that has its graph.
const Xattr = "user.ckptfs.arch"

// Bounds of what a graph is read from.
const (
	MaxSource = 16 << 20 // bytes of a sidecar or config
	maxDim    = 1<<63 - 1
)

func tooMany() error {
	return fmt.Errorf("more than %d vertices: %w", graph.MaxVertices, graph.ErrInvalid)
}

// Source is where a model's graph is to be read from.
type Source struct {
	Kind graph.Kind
	Rel  string // of the file; "": the model's tensors
	Key  string // changes with the source
	attr []byte // it has been read: the attribute
}

// metadataKey is the member of a safetensors file's __metadata__.
const metadataKey = "ckptfs.arch"

// Find lists where the graph of the model rel, of a format, may be read from, best first. The last one is the
// model's tensors.
func Find(files []File, rel, format string) []Source {
	at := make(map[string]*File, len(files))
	var pt2, keras []*File
	dir := path.Dir(rel)
	for i := range files {
		f := &files[i]
		at[f.Rel] = f
		if path.Dir(f.Rel) == dir {
			switch path.Ext(f.Rel) {
			case ".pt2":
				pt2 = append(pt2, f)
			case ".keras":
				keras = append(keras, f)
			}
		}
	}
	var out []Source
	add := func(kind graph.Kind, f *File) {
		if f != nil {
			out = append(out, Source{Kind: kind, Rel: f.Rel,
				Key: fmt.Sprintf("%s %s %s", kind, f.Rel, f.Stamp)})
		}
	}
	self := at[rel]
	if self == nil {
		self = &File{Rel: rel}
	}
	if self.Attr != nil {
		out = append(out, Source{Kind: graph.Explicit, Rel: rel,
			Key: fmt.Sprintf("%s @%s", graph.Explicit, cas.Sum(self.Attr)), attr: self.Attr})
	}
	for _, name := range []string{rel + ".arch.json", path.Join(dir, "arch.json"),
		path.Join(dir, "graph.json"), "arch.json", "graph.json"} {
		if f := at[name]; f != nil && (len(out) == 0 || out[len(out)-1].Rel != name) {
			add(graph.Explicit, f)
		}
	}
	if format == safetensors.Name {
		add(graph.Explicit, self)
	}
	if path.Ext(rel) == onnx.Ending || format == onnx.Name {
		add(graph.ONNX, self)
	} else {
		add(graph.ONNX, at[path.Join(dir, "model.onnx")])
	}
	if path.Ext(rel) == ".pt2" {
		add(graph.Export, self)
	} else if len(pt2) == 1 {
		add(graph.Export, pt2[0])
	}
	if path.Ext(rel) == ".keras" || format == hdf5.Name {
		add(graph.Keras, self)
	}
	if path.Ext(rel) != ".keras" && len(keras) == 1 {
		add(graph.Keras, keras[0])
	}
	if detect.About(format).Ordered {
		return append(out, Source{Kind: graph.Seq, Key: graph.Seq.String()})
	}
	return append(out, Source{Kind: graph.Bag, Key: graph.Bag.String()})
}

// Sidecar reports whether the source is a file or an attribute whose only purpose is to say what the graph
// is: callers report what is wrong with it.
func (s *Source) Sidecar() bool {
	return s.Kind == graph.Explicit && (s.attr != nil || strings.HasSuffix(s.Rel, ".json"))
}

// Own reports whether the source is the model rel itself, whose bytes are those of its manifest.
func (s *Source) Own(rel string) bool { return s.attr == nil && (s.Rel == "" || s.Rel == rel) }

// CheckAttr checks what is to be an attribute Xattr of a model with these tensors; nil where they are not
// known. The error wraps graph.ErrInvalid.
func CheckAttr(p []byte, tensors Tensors) error {
	_, err := ParseExplicit(p, tensors)
	return err
}

// Open opens a file of the step until done is called.
type Open func(rel string) (r io.ReaderAt, size int64, done func(), err error)

// Read reads the graph from a source. tensors are the model's. The error wraps graph.ErrInvalid when the
// source is none.
func Read(src *Source, open Open, tensors []formats.Tensor) (*graph.Graph, error) {
	if src.Rel == "" {
		return FromTensors(src.Kind, tensors)
	}
	if src.attr != nil {
		return ParseExplicit(src.attr, ByName(tensors))
	}
	r, size, done, err := open(src.Rel)
	if err != nil {
		return nil, err
	}
	defer done()
	switch src.Kind {
	case graph.ONNX:
		return ParseONNX(r, size)
	case graph.Export:
		p, err := member(r, size, func(name string) bool {
			return strings.HasSuffix(name, ".json") && strings.HasPrefix(path.Base(path.Dir(name)), "models")
		}, MaxSource)
		if err != nil {
			return nil, err
		}
		return ParseExport(p)
	case graph.Keras:
		if head := make([]byte, 8); formats.ReadFull(r, head, 0) == nil && hdf5.Sniff(head, size) {
			p, found, err := hdf5.Attribute(r, size, "model_config", MaxKeras)
			if err != nil || !found {
				return nil, errors.Join(err, fmt.Errorf("no attribute model_config: %w", graph.ErrInvalid))
			}
			return ParseKeras(p, tensors)
		}
		p, err := member(r, size, func(name string) bool { return name == "config.json" }, MaxKeras)
		if err != nil {
			return nil, err
		}
		return ParseKeras(p, tensors)
	}
	var p []byte
	if src.Sidecar() {
		p, err = whole(r, size)
	} else {
		p, err = metadata(r, size)
	}
	if err != nil {
		return nil, err
	}
	return ParseExplicit(p, ByName(tensors))
}

// whole reads a sidecar.
func whole(r io.ReaderAt, size int64) ([]byte, error) {
	if size > MaxSource {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", size, MaxSource, graph.ErrInvalid)
	}
	p := make([]byte, size)
	n, err := r.ReadAt(p, 0)
	if err == io.EOF {
		err = nil
	}
	return p[:n], err
}

// metadata is what a safetensors file says of its graph.
func metadata(r io.ReaderAt, size int64) ([]byte, error) {
	none := fmt.Errorf("no %s in its metadata: %w: %w", metadataKey, ErrAbsent, graph.ErrInvalid)
	var head [8]byte
	if size < 8 || formats.ReadFull(r, head[:], 0) != nil {
		return nil, none
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > MaxSource || int64(n) > size-8 {
		return nil, none
	}
	p := make([]byte, n)
	if err := formats.ReadFull(r, p, 8); err != nil {
		return nil, err
	}
	if !bytes.Contains(p, []byte(metadataKey)) {
		return nil, none
	}
	var doc struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	if json.Unmarshal(p, &doc) != nil || doc.Metadata[metadataKey] == "" {
		return nil, none
	}
	return []byte(doc.Metadata[metadataKey]), nil
}

// member reads the first member of a zip whose name is wanted.
func member(r io.ReaderAt, size int64, wanted func(string) bool, most int64) ([]byte, error) {
	records, err := zipdir.Read(r, size)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", err, graph.ErrInvalid)
	}
	for i := range records {
		rec := &records[i]
		if !wanted(rec.Name) {
			continue
		}
		var in io.Reader = io.NewSectionReader(r, rec.Off, rec.Len)
		switch {
		case rec.Stored():
		case rec.Method == zip.Deflate:
			f := flate.NewReader(in)
			defer f.Close()
			in = f
		default:
			return nil, fmt.Errorf("%s: compression %d: %w", rec.Name, rec.Method, graph.ErrInvalid)
		}
		p, err := io.ReadAll(io.LimitReader(in, most+1))
		if err == nil && int64(len(p)) > most {
			err = fmt.Errorf("over %d bytes", most)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", rec.Name, err, graph.ErrInvalid)
		}
		return p, nil
	}
	return nil, fmt.Errorf("no description of the model in it: %w", graph.ErrInvalid)
}
