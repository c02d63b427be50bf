// Package orbax lists the arrays of a checkpoint that Orbax wrote: a directory with a file _METADATA.
//
//	_METADATA                 JSON: tree_metadata: "('params', 'layer.0', 'w')": {key_metadata: [{key,
//	                          key_type}, …], value_metadata: …}
//	manifest.ocdbt, d/…       with use_ocdbt: a database with the keys params.layer.0.w/.zarray (zarr 2) or
//	                          …/zarr.json (zarr 3)
//	params.layer.0.w/.zarray  without: files
//
// The tree's keys give the names, joined by '/'; a name whose keys have a '/' is the tuple as _METADATA
// writes it. In the database the keys are joined by dots, which may be those of another tuple, too: the
// arrays of both are left out then, as is what has no array (empty nodes, strings). Shapes and types are
// zarr's. Where the arrays' parts lie is told: the metadata and each chunk, by zarr's key; package zarr reads
// the elements.
package orbax

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/ocdbt"
	"ckptfs/formats/zarr"
)

const (
	// Metadata is the file by which a directory is known.
	Metadata = "_METADATA"

	maxMetadata = 64 << 20
)

// IsMetadata reports whether a file of this name may describe its folder.
func IsMetadata(p string) bool { return path.Base(p) == Metadata }

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
	Zarr     *zarr.Array
	Metadata []byte // zarr's, as it is stored
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

// Arrays lists the arrays of the checkpoint whose files read reads, by name. Errors are read's, or wrap
// formats.ErrNotFormat.
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
		z, err := zarr.Parse(p)
		if err != nil {
			return reject("%s: %v", dotted, err)
		}
		if name := names[dotted]; name != "" {
			t := formats.Tensor{Name: name, DType: z.DType, Shape: z.Shape, Region: -1}
			out = append(out, Array{Tensor: t, Zarr: z, Metadata: p, Folder: dotted})
		}
		return nil
	}
	if m.OCDBT {
		err = ocdbt.Each(read, func(key string, v *ocdbt.Value) error {
			dotted, ok := arrayOf(key)
			if !ok {
				if dotted = known(names, key); dotted != "" {
					chunks[dotted] = append(chunks[dotted],
						Chunk{key[len(dotted):], v.Path, v.Off, v.Len, v.Inline})
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
			p, err := read(dotted+file, 0, -1, zarr.MaxMetadata)
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
