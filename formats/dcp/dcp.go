// Package dcp reads the .metadata of a checkpoint that torch.distributed.checkpoint wrote: which tensor, or
// which part of one, lies where in the .distcp files beside it. It is a pickle, which is not run (package
// pickle):
//
//	Metadata
//	    state_dict_metadata    {"model.w": TensorStorageMetadata, "step": BytesStorageMetadata, …}
//	        size               torch.Size((5, 40))
//	        chunks             [ChunkStorageMetadata{offsets: torch.Size((0, 0)),
//	                            sizes: torch.Size((3, 40))}, …]
//	    storage_data           {MetadataIndex{fqn: "model.w", offset: torch.Size((0, 0))}: _StorageInfo, …}
//	        relative_path      "__0_0.distcp"
//	        offset, length     bytes of the file: a zip of torch.save
//
// Whatever differs from that is an error: files whose tensors have no name for certain go on being called by
// their numbers.
//
// In a pickle many values may refer to one. So names and sizes are read once each, and what has no bound in
// practice has one here: items, chunks, fields, and the bytes of a name.
package dcp

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

const (
	// Metadata is the name of the file.
	Metadata = ".metadata"
	// MaxMetadata bounds it, in bytes.
	MaxMetadata = 64 << 20
	// Suffix ends the names of the files that it describes.
	Suffix = ".distcp"

	maxRank   = 64
	maxItems  = 1 << 19 // and chunks of a tensor: more than pickle.DefaultLimits hold of what torch writes
	maxFields = 64      // of an object
	maxName   = 4096    // bytes
)

// IsMetadata reports whether a file of this name may describe its folder.
func IsMetadata(p string) bool { return path.Base(p) == Metadata }

// Item is a tensor, a part of one, or an object, and where in a file it lies.
type Item struct {
	Name     string
	Shape    []int64 // of the whole tensor; nil: it is no tensor
	Origin   []int64 // of the part
	Size     []int64
	Off, Len int64 // bytes
}

// Tensor reports whether the item is a tensor, or a part of one.
func (x *Item) Tensor() bool { return x.Shape != nil }

func reject(format string, args ...any) error {
	return fmt.Errorf("dcp: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Parse returns the items of each file, by the file's name, in the order in which they lie there, without
// overlaps.
func Parse(p []byte) (map[string][]Item, error) {
	if len(p) > MaxMetadata {
		return nil, reject("%d bytes", len(p))
	}
	g, err := pickle.Parse(p, pickle.DefaultLimits)
	if err != nil {
		return nil, reject("%v", err)
	}
	root := g.Root()
	if fn, _, ok := root.Call(); !ok || !fn.IsGlobal("torch.distributed.checkpoint.metadata", "Metadata") {
		return nil, reject("no Metadata")
	}
	dict, ok := field(root, "state_dict_metadata")
	storage, ok2 := field(root, "storage_data")
	if !ok || !ok2 || storage.Kind() != pickle.Dict || dict.Kind() != pickle.Dict {
		return nil, reject("nothing is said of where")
	}
	if n := storage.NumPairs(); n > maxItems {
		return nil, reject("%d items", n)
	}
	r := reader{map[int]string{}, map[int]*size{}, map[int]map[string][]int64{}}
	known := make(map[string]pickle.Value, dict.NumPairs())
	for i := range dict.NumPairs() {
		k, v := dict.Pair(i)
		name := r.text(k)
		if _, twice := known[name]; k.Kind() != pickle.Text || twice || len(k.Text()) > maxName {
			return nil, reject("a name that is none, too long, or occurs twice")
		}
		known[name] = v
	}
	files := map[string][]Item{}
	for i := range storage.NumPairs() {
		key, info := storage.Pair(i)
		x, at, file, err := r.item(key, info)
		if err != nil {
			return nil, err
		}
		of, ok := known[x.Name]
		if !ok {
			return nil, reject("%.64q is not described", x.Name)
		}
		if chunks, ok := field(of, "chunks"); ok {
			size, _ := field(of, "size")
			whole := r.size(size)
			if whole == nil || len(whole.dims) != len(x.Origin) {
				return nil, reject("%.64q has no size", x.Name)
			}
			sizes, err := r.chunkSizes(chunks)
			if err != nil {
				return nil, err
			}
			x.Shape = whole.dims
			if x.Size, ok = sizes[at]; !ok || len(x.Size) != len(x.Shape) {
				return nil, reject("%.64q has no part at %v", x.Name, x.Origin)
			}
		} else {
			x.Origin = nil
		}
		files[file] = append(files[file], x)
	}
	for file, items := range files {
		slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Off, b.Off) })
		for i := range items[1:] {
			if items[i].Off+items[i].Len > items[i+1].Off {
				return nil, reject("%.64q: %.64q overlaps the next", file, items[i].Name)
			}
		}
	}
	return files, nil
}

// reader has what was read of values that others refer to, by their numbers.
type reader struct {
	texts map[int]string
	sizes map[int]*size
	parts map[int]map[string][]int64 // of a tensor: the sizes of its chunks, by the keys of their offsets
}

// size is a torch.Size, and a key that tells it from others.
type size struct {
	dims []int64
	key  string
}

// item reads a pair of storage_data. at is the key of the part's origin.
func (r *reader) item(key, info pickle.Value) (x Item, at, file string, err error) {
	name, _ := field(key, "fqn")
	rel, _ := field(info, "relative_path")
	x = Item{Name: r.text(name), Off: number(info, "offset"), Len: number(info, "length")}
	if file = r.text(rel); x.Off < 0 || x.Len <= 0 || x.Off > 1<<62-x.Len ||
		!strings.HasSuffix(file, Suffix) || strings.ContainsAny(file, "/\x00") {
		return x, "", "", reject("where %.64q lies", x.Name)
	}
	if origin, ok := field(key, "offset"); ok && origin.Kind() != pickle.None {
		size := r.size(origin)
		if size == nil {
			return x, "", "", reject("where in %.64q", x.Name)
		}
		x.Origin, at = size.dims, size.key
	}
	return x, at, file, nil
}

// chunkSizes reads the sizes of the chunks of a tensor, by the keys of their offsets.
func (r *reader) chunkSizes(chunks pickle.Value) (map[string][]int64, error) {
	if out := r.parts[chunks.ID()]; out != nil {
		return out, nil
	}
	if n := chunks.Len(); n > maxItems {
		return nil, reject("%d parts", n)
	}
	out := map[string][]int64{}
	for i := range chunks.Len() {
		offsets, _ := field(chunks.At(i), "offsets")
		sizes, _ := field(chunks.At(i), "sizes")
		at, size := r.size(offsets), r.size(sizes)
		if at == nil || size == nil || len(at.dims) != len(size.dims) {
			return nil, reject("a part without a place")
		}
		out[at.key] = size.dims
	}
	r.parts[chunks.ID()] = out
	return out, nil
}

// field is what an object's state has by a name.
func field(v pickle.Value, name string) (x pickle.Value, ok bool) {
	if v == (pickle.Value{}) {
		return x, false
	}
	state, has := v.State()
	if !has || state.Kind() != pickle.Dict || state.NumPairs() > maxFields {
		return x, false
	}
	for i := range state.NumPairs() {
		if k, val := state.Pair(i); k.Kind() == pickle.Text && string(k.Text()) == name {
			x, ok = val, true
		}
	}
	return x, ok
}

// text is a name; "": it is none, or too long.
func (r *reader) text(v pickle.Value) string {
	if v == (pickle.Value{}) || v.Kind() != pickle.Text || len(v.Text()) > maxName {
		return ""
	}
	s, ok := r.texts[v.ID()]
	if !ok {
		s = string(v.Text())
		r.texts[v.ID()] = s
	}
	return s
}

// number is a field that is a number; -1: it is not.
func number(v pickle.Value, name string) int64 {
	if x, ok := field(v, name); ok {
		if n, ok := x.Int(); ok {
			return n
		}
	}
	return -1
}

// size reads a torch.Size; nil: it is none.
func (r *reader) size(v pickle.Value) *size {
	if v == (pickle.Value{}) || v.Kind() != pickle.Call {
		return nil
	}
	fn, args, _ := v.Call()
	if !fn.IsGlobal("torch", "Size") || args.Kind() != pickle.Tuple || args.Len() != 1 {
		return nil
	}
	list := args.At(0)
	if k := list.Kind(); k != pickle.Tuple && k != pickle.List || list.Len() > maxRank {
		return nil
	}
	if s := r.sizes[list.ID()]; s != nil {
		return s
	}
	s := &size{dims: make([]int64, list.Len())}
	for i := range s.dims {
		n, ok := list.At(i).Int()
		if !ok || n < 0 || n > 1<<62 {
			return nil
		}
		s.dims[i] = n
	}
	s.key = fmt.Sprint(s.dims)
	r.sizes[list.ID()] = s
	return s
}
