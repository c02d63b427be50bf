// Package orbax lists the arrays of a checkpoint that Orbax wrote: a directory with a file _METADATA.
//
//	_METADATA                 JSON: tree_metadata: "('params', 'layer.0', 'w')": {key_metadata: [{key, key_type}, …], value_metadata: …}
//	manifest.ocdbt, d/…       with use_ocdbt: a database with the keys params.layer.0.w/.zarray (zarr 2) or …/zarr.json (zarr 3)
//	params.layer.0.w/.zarray  without: files
//
// The tree's keys give the names, joined by '/'; a name whose keys have a '/' is the tuple as _METADATA writes it. In the database
// the keys are joined by dots, which may be those of another tuple, too: the arrays of both are left out then, as is what has no array
// (empty nodes, strings). Shapes and types are zarr's. Nothing is read of the arrays themselves: they are compressed. Where their parts lie is
// told: the metadata and each chunk, by zarr's key.
package orbax

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/ocdbt"
)

const (
	// Metadata is the file by which a directory is known.
	Metadata = "_METADATA"

	maxMetadata = 64 << 20
	maxArray    = 1 << 20
	maxRank     = 64
)

func reject(format string, args ...any) error {
	return fmt.Errorf("orbax: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

type metadata struct {
	Tree map[string]struct {
		Keys []struct {
			Key string `json:"key"`
		} `json:"key_metadata"`
	} `json:"tree_metadata"`
	OCDBT bool `json:"use_ocdbt"`
}

// Array is an array; its Region is -1.
type Array struct {
	formats.Tensor
	Metadata []byte // zarr's
	Folder   string // that has a file for each chunk; "": the chunks are in the database
	Chunks   []Chunk
}

// Chunk is a chunk of an array that is in the database: bytes of a file, or Inline.
type Chunk struct {
	Key      string
	Path     string
	Off, Len int64
	Inline   []byte
}

// Arrays lists the arrays of the checkpoint whose files read reads, by name. Errors are read's, or wrap formats.ErrNotFormat.
func Arrays(read ocdbt.Read) ([]Array, error) {
	p, err := read(Metadata, 0, -1, maxMetadata)
	if err != nil {
		return nil, err
	}
	var m metadata
	if err := json.Unmarshal(p, &m); err != nil {
		return nil, reject("%v", err)
	}
	if m.Tree == nil {
		return nil, reject("no tree_metadata")
	}
	names := make(map[string]string, len(m.Tree)) // by the keys joined by dots; "": of several
	for tuple, v := range m.Tree {
		keys := make([]string, len(v.Keys))
		slash := false
		for i, k := range v.Keys {
			keys[i] = k.Key
			slash = slash || strings.Contains(k.Key, "/")
		}
		name := strings.Join(keys, "/")
		if slash || name == "" {
			name = tuple
		}
		dotted := strings.Join(keys, ".")
		if _, twice := names[dotted]; twice {
			name = ""
		}
		names[dotted] = name
	}
	var out []Array
	chunks := map[string][]Chunk{}
	add := func(dotted string, p []byte) error {
		t, err := array(p)
		if err != nil {
			return err
		}
		if t.Name = names[dotted]; t.Name != "" {
			out = append(out, Array{Tensor: t, Metadata: p, Folder: dotted})
		}
		return nil
	}
	if m.OCDBT {
		err = ocdbt.Each(read, func(key string, v *ocdbt.Value) error {
			dotted, ok := arrayOf(key)
			if !ok {
				if dotted = known(names, key); dotted != "" {
					chunks[dotted] = append(chunks[dotted], Chunk{key[len(dotted):], v.Path, v.Off, v.Len, v.Inline})
				}
				return nil
			}
			if names[dotted] == "" {
				return nil
			}
			p, err := v.Read()
			if err != nil {
				return err
			}
			return add(dotted, p)
		})
		for i := range out {
			out[i].Chunks, out[i].Folder = chunks[out[i].Folder], ""
		}
	} else {
		err = loose(read, names, add)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Array) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

var arrayFiles = []string{"/.zarray", "/zarr.json"}

// known is the array that a chunk's key is of; "": of none that has a name.
func known(names map[string]string, key string) string {
	for i := len(key) - 1; i > 0; i-- {
		if key[i] == '/' && names[key[:i]] != "" {
			return key[:i]
		}
	}
	return ""
}

// arrayOf is the array whose metadata a key has.
func arrayOf(key string) (dotted string, ok bool) {
	for _, suffix := range arrayFiles {
		if dotted, ok = strings.CutSuffix(key, suffix); ok {
			return dotted, true
		}
	}
	return "", false
}

// loose reads the metadata of arrays that are folders.
func loose(read ocdbt.Read, names map[string]string, add func(dotted string, p []byte) error) error {
	for dotted, name := range names {
		if name == "" || dotted == "." || !fs.ValidPath(dotted) {
			continue
		}
		for _, file := range arrayFiles {
			p, err := read(dotted+file, 0, -1, maxArray)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = add(dotted, p)
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// types are zarr's names: of version 2 with the order of bytes, of version 3 without.
var types = map[string]formats.DType{
	"b1": formats.Bool, "i1": formats.I8, "u1": formats.U8, "i2": formats.I16, "u2": formats.U16, "i4": formats.I32, "u4": formats.U32,
	"i8": formats.I64, "u8": formats.U64, "f2": formats.F16, "f4": formats.F32, "f8": formats.F64, "c8": formats.C64, "c16": formats.C128,
	"bool": formats.Bool, "int8": formats.I8, "uint8": formats.U8, "int16": formats.I16, "uint16": formats.U16, "int32": formats.I32,
	"uint32": formats.U32, "int64": formats.I64, "uint64": formats.U64, "float16": formats.F16, "float32": formats.F32,
	"float64": formats.F64, "complex64": formats.C64, "complex128": formats.C128, "bfloat16": formats.BF16,
	"float8_e4m3fn": formats.F8E4M3, "float8_e5m2": formats.F8E5M2, "float8_e4m3fnuz": formats.F8E4M3FZ, "float8_e5m2fnuz": formats.F8E5M2FZ,
}

// array reads the metadata of one array. A type that is not known is called as zarr does.
func array(p []byte) (t formats.Tensor, err error) {
	var z struct {
		Shape []int64         `json:"shape"`
		Two   json.RawMessage `json:"dtype"`
		Three json.RawMessage `json:"data_type"`
	}
	if err := json.Unmarshal(p, &z); err != nil {
		return t, reject("an array: %v", err)
	}
	if z.Two == nil {
		z.Two = z.Three
	}
	var name string
	if json.Unmarshal(z.Two, &name) != nil || name == "" || len(name) > 64 {
		name = "unknown" // a structure
	}
	d, ok := types[strings.TrimLeft(name, "<|")]
	if !ok {
		d = formats.DType(name)
	}
	t = formats.Tensor{DType: d, Shape: z.Shape, Region: -1}
	if len(z.Shape) > maxRank || t.NumElements() < 0 {
		return t, reject("an array of shape %v", z.Shape[:min(len(z.Shape), maxRank)])
	}
	return t, nil
}
