// Package gguf lays out GGUF files, llama.cpp's format.
//
//	"GGUF"               magic
//	u32                  version, 2 or 3
//	u64, u64             number of tensors, of key-value pairs
//	pairs                key string, u32 type, value
//	tensor infos         name string, u32 n, n × u64 dimensions, u32 type, u64 offset
//	                     zeros to a multiple of general.alignment (32)
//	data                 offsets count from here; each is a multiple of the alignment
//
// Numbers are little-endian. A string is a u64 length and that many bytes of UTF-8. Value types:
//
//	0 u8  1 i8  2 u16  3 i16  4 u32  5 i32  6 f32  7 bool  8 string  9 array  10 u64  11 i64  12 f64
//
// An array is a u32 type, a u64 count and that many values. Dimensions come innermost first: a tensor's shape
// is here the other way around, as the other formats have it.
//
// Each tensor that has bytes is a Data region. A quantised tensor's bytes are its blocks, as they are, and
// its type has ggml's name (Q4_K, IQ2_XS); formats.DType.Block has the blocks' sizes.
//
// # What is recognised
//
// F32, F16, BF16, F64, I8, I16, I32, I64 and the quantised types that are in files today. A tensor of another
// type (those removed from ggml, those to come) is Blob, and the layout partial. Big-endian files and version
// 1 are no format of ours. Refused are also: names that are used twice or are not UTF-8, tensors that overlap
// or reach past the file, offsets and alignments that don't fit, more than 4 dimensions, nested deeper than 4
// arrays.
//
// At most 262,144 tensors, 1,048,576 pairs and 64 MiB of names. Values are passed over, so the header of the
// largest vocabulary takes 64 KiB; a tensor takes some 250 bytes.
package gguf

import (
	"fmt"
	"io"
	"unicode/utf8"

	"ckptfs/formats"
)

const (
	magic      = "GGUF"
	maxTensors = 1 << 18
	maxPairs   = 1 << 20
	maxNames   = 64 << 20
	maxRank    = 4
	maxNesting = 4

	alignmentKey     = "general.alignment"
	defaultAlignment = 32
	maxAlignment     = 1 << 24
)

// types has ggml's numbers.
var types = map[uint32]formats.DType{
	0: formats.F32, 1: formats.F16, 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K",
	11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: formats.I8, 25: formats.I16, 26: formats.I32,
	27: formats.I64, 28: formats.F64, 29: "IQ1_M", 30: formats.BF16, 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
	40: "NVFP4", 41: "Q1_0",
}

// Format is GGUF's entry in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Parser{}.Name()}},
	Endings: []string{".gguf"},
	Views:   []string{".gguf"},
}

// Parser is the parser of GGUF files.
type Parser struct{}

// Name returns "gguf".
func (Parser) Name() string { return "gguf" }

func reject(format string, args ...any) error {
	return fmt.Errorf("gguf: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool { return len(p) >= len(magic) && string(p[:len(magic)]) == magic }

// info is a tensor as the file states it.
type info struct {
	tensor formats.Tensor
	offset uint64
}

// Parse returns the layout of a GGUF file. It reads the header.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	h := newReader(r, size)
	if string(h.take(len(magic))) != magic {
		return nil, h.fail("no magic")
	}
	version, tensors, pairs := h.u32(), h.u64(), h.u64()
	if version != 2 && version != 3 || tensors > maxTensors || pairs > maxPairs {
		return nil, h.fail("version %d, %d tensors, %d pairs", version, tensors, pairs)
	}
	alignment := int64(defaultAlignment)
	for range pairs {
		key := string(h.text(maxKey))
		typ := h.u32()
		if key == alignmentKey {
			if typ != typeU32 {
				return nil, h.fail("alignment of type %d", typ)
			}
			alignment = int64(h.u32())
		} else {
			h.pass(typ, 0)
		}
		if h.err != nil {
			return nil, h.fail("")
		}
	}
	if alignment < 1 || alignment > maxAlignment {
		return nil, h.fail("alignment %d", alignment)
	}
	infos, err := h.infos(int(tensors))
	if err != nil {
		return nil, err
	}
	base := pad(h.at(), alignment)
	if base > size && tensors > 0 {
		return nil, reject("no data")
	}
	return layOut(infos, base, alignment, size)
}

// pad is n rounded up to an alignment.
func pad(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// infos reads the tensor infos.
func (h *reader) infos(n int) ([]info, error) {
	var infos []info
	seen := make(map[string]bool)
	names := 0
	for range n {
		t := info{tensor: formats.Tensor{Name: string(h.text(maxKey))}}
		rank := h.u32()
		if rank > maxRank {
			return nil, h.fail("%d dimensions", rank)
		}
		t.tensor.Shape = make([]int64, rank)
		for i := range rank {
			t.tensor.Shape[rank-1-i] = int64(h.u64())
		}
		t.tensor.DType = types[h.u32()]
		t.offset = h.u64()
		names += len(t.tensor.Name)
		if h.err != nil || seen[t.tensor.Name] || names > maxNames || !utf8.ValidString(t.tensor.Name) {
			return nil, h.fail("tensor %.64q: cut short, twice, or no text", t.tensor.Name)
		}
		seen[t.tensor.Name] = true
		infos = append(infos, t)
	}
	return infos, nil
}

// layOut places the tensors of a file whose data begins at base.
func layOut(infos []info, base, alignment, size int64) (*formats.Layout, error) {
	l := &formats.Layout{Format: Parser{}.Name()}
	var data []formats.Range
	for i := range infos {
		t := &infos[i]
		if t.tensor.DType == "" {
			l.Leave("tensors are of types that are not known")
			continue
		}
		n := t.tensor.NumBytes()
		if n < 0 || t.offset%uint64(alignment) != 0 || t.offset > uint64(size-base) ||
			n > size-base-int64(t.offset) {
			return nil, reject("tensor %.64q: %v of %s at %d, the data has %d bytes", t.tensor.Name,
				t.tensor.Shape, t.tensor.DType, t.offset, size-base)
		}
		l.Tensors = append(l.Tensors, t.tensor)
		data = append(data, formats.Range{Off: base + int64(t.offset), Len: n})
	}
	var index []int
	var err error
	if l.Regions, index, err = formats.Cover(size, data); err != nil {
		return nil, reject("%v", err)
	}
	owner := make(map[int]bool, len(index))
	for i, k := range index {
		if k >= 0 && owner[k] { // the format has no aliases
			return nil, reject("tensor %.64q: another has its bytes", l.Tensors[i].Name)
		}
		owner[k] = k >= 0
		l.Tensors[i].Region = k
	}
	return l, nil
}
