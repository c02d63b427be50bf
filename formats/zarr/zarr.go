// Package zarr reads the arrays of zarr, versions 2 and 3, whose metadata and chunks the caller finds:
// what Orbax and TensorStore write.
//
// An array is cut by a grid into chunks of one shape, of which those at the upper ends reach beyond the
// array. A chunk is row-major and little-endian, then compressed or not, and the value of a key:
//
//	version 2   .zarray     {"shape": [64,96], "chunks": [32,48], "dtype": "<f4", "order": "C",
//	                        "compressor": {"id": "zstd"}, …}
//	            0.1         the chunk of row 0, column 1; with "dimension_separator": "/" 0/1; of a scalar 0
//	version 3   zarr.json   {"shape": …, "data_type": "float32", "chunk_grid": …,
//	                        "codecs": [bytes, zstd], …}
//	            c/0/1       the same; of a scalar c
//
// With the codec sharding_indexed a value is a shard, of several chunks in any order, and an index of them in
// the grid's order:
//
//	| chunk | chunk | … | u64 offset, u64 length of each, both 2^64-1 for one that is absent | u32 CRC-32C |
//
// A chunk that is not there is the fill value throughout. Read are chunks that are not compressed, or by
// zstd, gzip or zlib; others, filters, column-major chunks, big-endian elements and fill values that are not
// zero are refused (ErrUnread) when they are met.
//
// Elements are read forwards, a slab of at most 32 MiB at a time. Decoders stay open from slab to slab as
// long as their windows come to 192 MiB together; others, of an array with hundreds of chunks side by side,
// start again in each slab, and pass over what they gave before. A window of more than 64 MiB is refused, as
// are shards of more than 4,194,304 chunks.
package zarr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats"
)

// MaxMetadata bounds an array's metadata, in bytes.
const MaxMetadata = 1 << 20

const (
	maxRank  = 64
	maxInner = 1 << 22 // chunks of a shard
)

// ErrUnread says that an array is stored in a way that is not read here.
var ErrUnread = errors.New("stored in a way that is not read here")

func reject(format string, args ...any) error {
	return fmt.Errorf("zarr: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

func unread(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnread, fmt.Sprintf(format, args...))
}

// Array is an array by its metadata.
type Array struct {
	Shape []int64
	DType formats.DType // of a type that is not known what zarr calls it

	why    error   // the elements can't be read
	chunk  []int64 // shape of what is compressed
	shard  []int64 // shape of what has a key
	codec  string  // "", zstd, gzip, zlib
	index  *index  // of shards; nil: a chunk has a key
	filled bool    // the fill value is not zero
	prefix string  // of keys
	sep    string
}

// index is where a shard has the index of its chunks.
type index struct{ first, crc bool }

// types are zarr's names: of version 2 with the order of bytes, of version 3 without.
var types = map[string]formats.DType{
	"b1": formats.Bool, "i1": formats.I8, "u1": formats.U8, "i2": formats.I16, "u2": formats.U16,
	"i4": formats.I32, "u4": formats.U32, "i8": formats.I64, "u8": formats.U64, "f2": formats.F16,
	"f4": formats.F32, "f8": formats.F64, "c8": formats.C64, "c16": formats.C128, "bool": formats.Bool,
	"int8": formats.I8, "uint8": formats.U8, "int16": formats.I16, "uint16": formats.U16,
	"int32": formats.I32, "uint32": formats.U32, "int64": formats.I64, "uint64": formats.U64,
	"float16": formats.F16, "float32": formats.F32, "float64": formats.F64, "complex64": formats.C64,
	"complex128": formats.C128, "bfloat16": formats.BF16, "float8_e4m3fn": formats.F8E4M3,
	"float8_e5m2": formats.F8E5M2, "float8_e4m3fnuz": formats.F8E4M3FZ,
	"float8_e5m2fnuz": formats.F8E5M2FZ,
}

// metadata is that of both versions.
type metadata struct {
	Format int             `json:"zarr_format"`
	Shape  []int64         `json:"shape"`
	Two    json.RawMessage `json:"dtype"`
	Three  json.RawMessage `json:"data_type"`
	Fill   json.RawMessage `json:"fill_value"`

	Chunks     []int64         `json:"chunks"`
	Separator  string          `json:"dimension_separator"`
	Order      string          `json:"order"`
	Filters    json.RawMessage `json:"filters"`
	Compressor *struct {
		ID string `json:"id"`
	} `json:"compressor"`

	Grid struct {
		Name          string `json:"name"`
		Configuration struct {
			Shape []int64 `json:"chunk_shape"`
		} `json:"configuration"`
	} `json:"chunk_grid"`
	Keys struct {
		Name          string `json:"name"`
		Configuration struct {
			Separator string `json:"separator"`
		} `json:"configuration"`
	} `json:"chunk_key_encoding"`
	Codecs       []codec         `json:"codecs"`
	Transformers json.RawMessage `json:"storage_transformers"`
}

// codec is one of version 3.
type codec struct {
	Name          string `json:"name"`
	Configuration struct {
		Endian   string  `json:"endian"`
		Shape    []int64 `json:"chunk_shape"`
		Codecs   []codec `json:"codecs"`
		Index    []codec `json:"index_codecs"`
		Location string  `json:"index_location"`
	} `json:"configuration"`
}

// Parse reads the metadata of an array. Errors wrap formats.ErrNotFormat; what is not understood of how the
// elements are stored is an error of reading those.
func Parse(p []byte) (*Array, error) {
	if len(p) > MaxMetadata {
		return nil, reject("metadata of %d bytes", len(p))
	}
	var m metadata
	if err := json.Unmarshal(p, &m); err != nil {
		return nil, reject("%v", err)
	}
	if m.Two == nil {
		m.Two = m.Three
	}
	var name string
	if json.Unmarshal(m.Two, &name) != nil || name == "" || len(name) > 64 {
		name = "unknown" // a structure
	}
	a := &Array{Shape: m.Shape}
	var ok bool
	if a.DType, ok = types[strings.TrimLeft(name, "<|")]; !ok {
		a.DType = formats.DType(name)
	}
	t := formats.Tensor{Shape: a.Shape, DType: a.DType}
	if len(a.Shape) > maxRank || t.NumElements() < 0 {
		return nil, reject("shape %v", a.Shape[:min(len(a.Shape), maxRank)])
	}
	if t.NumBytes() < 0 {
		a.why = unread("elements of type %s", a.DType)
		return a, nil
	}
	switch m.Format {
	case 2:
		a.why = a.version2(&m)
	case 3:
		a.why = a.version3(&m)
	default:
		a.why = unread("version %d", m.Format)
	}
	if a.why == nil {
		a.why = a.checkGrid()
	}
	switch strings.Join(strings.Fields(string(m.Fill)), "") {
	case "", "null", "0", "0.0", "false", "[0,0]", "[0.0,0.0]":
	default:
		a.filled = true
	}
	return a, nil
}

// Unread says why the elements can't be read, as far as the metadata tells; it wraps ErrUnread.
func (a *Array) Unread() error { return a.why }

func (a *Array) version2(m *metadata) error {
	a.chunk, a.shard, a.sep = m.Chunks, m.Chunks, m.Separator
	if a.sep == "" {
		a.sep = "."
	}
	if a.sep != "." && a.sep != "/" {
		return unread("keys joined by %.8q", a.sep)
	}
	if s := string(m.Filters); s != "" && s != "null" && s != "[]" {
		return unread("filters")
	}
	if m.Order != "C" && len(a.Shape) > 1 {
		return unread("order %.8q", m.Order)
	}
	if m.Compressor != nil {
		return a.compressed(m.Compressor.ID)
	}
	return nil
}

func (a *Array) compressed(by string) error {
	if !slices.Contains([]string{"zstd", "gzip", "zlib"}, by) {
		return unread("compressed by %.32q", by)
	}
	a.codec = by
	return nil
}

func (a *Array) version3(m *metadata) error {
	a.shard = m.Grid.Configuration.Shape
	a.chunk = a.shard
	if m.Grid.Name != "regular" {
		return unread("a grid that is %.32q", m.Grid.Name)
	}
	if s := string(m.Transformers); s != "" && s != "null" && s != "[]" {
		return unread("storage transformers")
	}
	a.sep = m.Keys.Configuration.Separator
	switch m.Keys.Name {
	case "default":
		if a.prefix = "c"; a.sep == "" {
			a.sep = "/"
		}
	case "v2":
		if a.sep == "" {
			a.sep = "."
		}
	default:
		return unread("keys of encoding %.32q", m.Keys.Name)
	}
	if a.sep != "." && a.sep != "/" {
		return unread("keys joined by %.8q", a.sep)
	}
	codecs := m.Codecs
	if len(codecs) == 1 && codecs[0].Name == "sharding_indexed" {
		c := codecs[0].Configuration
		a.chunk, codecs = c.Shape, c.Codecs
		a.index = &index{first: c.Location == "start"}
		if c.Location != "" && c.Location != "start" && c.Location != "end" {
			return unread("an index at %.32q", c.Location)
		}
		rest, err := plain(c.Index)
		if err != nil {
			return err
		}
		if len(rest) == 1 && rest[0].Name == "crc32c" {
			a.index.crc, rest = true, nil
		}
		if len(rest) > 0 {
			return unread("an index by codec %.32q", rest[0].Name)
		}
	}
	rest, err := plain(codecs)
	if err != nil || len(rest) == 0 {
		return err
	}
	if len(rest) > 1 {
		return unread("codecs %.32q after %.32q", rest[1].Name, rest[0].Name)
	}
	return a.compressed(rest[0].Name)
}

// plain is the codecs after that which makes bytes of the elements.
func plain(codecs []codec) ([]codec, error) {
	if len(codecs) == 0 || codecs[0].Name != "bytes" {
		return nil, unread("codecs that do not begin with bytes")
	}
	if e := codecs[0].Configuration.Endian; e != "" && e != "little" {
		return nil, unread("%.32q-endian elements", e)
	}
	return codecs[1:], nil
}

// checkGrid looks at the shapes.
func (a *Array) checkGrid() error {
	if len(a.chunk) != len(a.Shape) || len(a.shard) != len(a.Shape) {
		return unread("chunks of %d dimensions", len(a.chunk))
	}
	inner := int64(1)
	for d := range a.Shape {
		if a.chunk[d] <= 0 || a.shard[d] < a.chunk[d] || a.shard[d]%a.chunk[d] != 0 {
			return unread("chunks of shape %v in shards of %v", a.chunk, a.shard)
		}
		n := a.shard[d] / a.chunk[d]
		if n > maxInner/inner {
			return unread("more than %d chunks in a shard", maxInner)
		}
		inner *= n
	}
	if t := (formats.Tensor{Shape: a.chunk, DType: a.DType}); t.NumBytes() < 0 {
		return unread("chunks of shape %v", a.chunk)
	}
	return nil
}

// key is that of a shard, by its place in the grid of them.
func (a *Array) key(at []int64) string {
	parts := make([]string, 0, len(at)+1)
	if a.prefix != "" {
		parts = append(parts, a.prefix)
	} else if len(at) == 0 {
		return "0"
	}
	for _, k := range at {
		parts = append(parts, strconv.FormatInt(k, 10))
	}
	return strings.Join(parts, a.sep)
}
