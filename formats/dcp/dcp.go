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

	maxRank = 64
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
	known := make(map[string]pickle.Value, dict.NumPairs())
	for i := range dict.NumPairs() {
		k, v := dict.Pair(i)
		if _, twice := known[string(k.Text())]; k.Kind() != pickle.Text || twice {
			return nil, reject("a name that is none, or occurs twice")
		}
		known[string(k.Text())] = v
	}
	sizes := map[int]map[string][]int64{} // of the chunks of a tensor, by the node's number and the offsets
	files := map[string][]Item{}
	for i := range storage.NumPairs() {
		key, info := storage.Pair(i)
		x, file, err := item(key, info)
		if err != nil {
			return nil, err
		}
		of, ok := known[x.Name]
		if !ok {
			return nil, reject("%.64q is not described", x.Name)
		}
		if chunks, ok := field(of, "chunks"); ok {
			whole, _ := field(of, "size")
			if x.Shape, ok = dims(whole); !ok || len(x.Shape) != len(x.Origin) {
				return nil, reject("%.64q has no size", x.Name)
			}
			at := sizes[chunks.ID()]
			if at == nil {
				if at, err = chunkSizes(chunks); err != nil {
					return nil, err
				}
				sizes[chunks.ID()] = at
			}
			if x.Size, ok = at[fmt.Sprint(x.Origin)]; !ok || len(x.Size) != len(x.Shape) {
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

// item reads a pair of storage_data.
func item(key, info pickle.Value) (x Item, file string, err error) {
	name, path := text(key, "fqn"), text(info, "relative_path")
	at, n := number(info, "offset"), number(info, "length")
	if file = string(path); at < 0 || n <= 0 || at > 1<<62-n || !strings.HasSuffix(file, Suffix) ||
		strings.ContainsAny(file, "/\x00") {
		return x, "", reject("where %.64q lies", name)
	}
	x = Item{Name: string(name), Off: at, Len: n}
	if origin, ok := field(key, "offset"); ok && origin.Kind() != pickle.None {
		if x.Origin, ok = dims(origin); !ok {
			return x, "", reject("where in %.64q", name)
		}
	}
	return x, file, nil
}

// chunkSizes reads the sizes of the chunks of a tensor, by their offsets.
func chunkSizes(chunks pickle.Value) (map[string][]int64, error) {
	out := make(map[string][]int64, chunks.Len())
	for i := range chunks.Len() {
		offsets, _ := field(chunks.At(i), "offsets")
		sizes, _ := field(chunks.At(i), "sizes")
		at, ok := dims(offsets)
		size, ok2 := dims(sizes)
		if !ok || !ok2 || len(at) != len(size) {
			return nil, reject("a part without a place")
		}
		out[fmt.Sprint(at)] = size
	}
	return out, nil
}

// field is what an object's state has by a name.
func field(v pickle.Value, name string) (x pickle.Value, ok bool) {
	if v == (pickle.Value{}) {
		return x, false
	}
	state, has := v.State()
	if !has || state.Kind() != pickle.Dict {
		return x, false
	}
	for i := range state.NumPairs() {
		if k, val := state.Pair(i); k.Kind() == pickle.Text && string(k.Text()) == name {
			x, ok = val, true
		}
	}
	return x, ok
}

// text is a field that is text; nil: it is not.
func text(v pickle.Value, name string) []byte {
	if x, ok := field(v, name); ok && x.Kind() == pickle.Text {
		return x.Text()
	}
	return nil
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

// dims reads a torch.Size.
func dims(v pickle.Value) ([]int64, bool) {
	if v == (pickle.Value{}) || v.Kind() != pickle.Call {
		return nil, false
	}
	fn, args, _ := v.Call()
	if !fn.IsGlobal("torch", "Size") || args.Kind() != pickle.Tuple || args.Len() != 1 {
		return nil, false
	}
	list := args.At(0)
	if k := list.Kind(); k != pickle.Tuple && k != pickle.List || list.Len() > maxRank {
		return nil, false
	}
	out := make([]int64, list.Len())
	for i := range out {
		n, ok := list.At(i).Int()
		if !ok || n < 0 || n > 1<<62 {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}
