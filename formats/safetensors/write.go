package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"ckptfs/formats"
)

// Entry is a tensor of a file to be written, contiguous and row-major.
type Entry struct {
	Name  string
	DType formats.DType
	Shape []int64
}

// NumBytes is the size of the entry's data, or -1 when it has none that the format can state.
func (e *Entry) NumBytes() int64 {
	t := formats.Tensor{DType: e.DType, Shape: e.Shape}
	if !HasType(e.DType) {
		return -1
	}
	return t.NumBytes()
}

// Sort orders entries by name, which is the order AppendHeader takes.
func Sort(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// AppendHeader appends the first bytes of a file to dst: the 8-byte length, and the header padded with spaces
// to a multiple of 8, so that data starts 8-byte aligned when dst was empty. The data of the entries must
// follow in their order and without gaps. Entries must be sorted (Sort) with distinct names. metadata may be
// nil. Equal arguments give equal bytes.
func AppendHeader(dst []byte, entries []Entry, metadata map[string]string) ([]byte, error) {
	for i := 1; i < len(entries); i++ {
		if entries[i-1].Name >= entries[i].Name {
			return nil, fmt.Errorf("safetensors: name %q after %q", entries[i].Name, entries[i-1].Name)
		}
	}
	var pairs []Pair
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, Pair{k, metadata[k]})
	}
	return appendHeader(dst, entries, pairs)
}

// appendHeader appends a header of entries whose data follows in their order.
func appendHeader(dst []byte, entries []Entry, metadata []Pair) ([]byte, error) {
	at := len(dst)
	dst = append(dst, make([]byte, lenBytes)...)
	dst = append(dst, '{')
	if metadata != nil {
		dst = append(dst, `"`+metadataKey+`":{`...)
		for i, p := range metadata {
			if i > 0 {
				dst = append(dst, ',')
			}
			if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
				return nil, fmt.Errorf("safetensors: metadata %q: not UTF-8", p.Key)
			}
			dst = appendString(dst, p.Key)
			dst = append(dst, ':')
			dst = appendString(dst, p.Value)
		}
		dst = append(dst, '}')
	}
	var end int64
	for i := range entries {
		e := &entries[i]
		n := e.NumBytes()
		switch {
		case e.Name == metadataKey || !utf8.ValidString(e.Name):
			return nil, fmt.Errorf("safetensors: %q can't be a name", e.Name)
		case n < 0 || n > math.MaxInt64-end:
			return nil, fmt.Errorf("safetensors: tensor %q: shape %v of %s", e.Name, e.Shape, e.DType)
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = appendString(dst, e.Name)
		dst = fmt.Appendf(dst, `:{"dtype":%q,"shape":[`, string(e.DType))
		for k, v := range e.Shape {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = fmt.Appendf(dst, "%d", v)
		}
		dst = fmt.Appendf(dst, `],"data_offsets":[%d,%d]}`, end, end+n)
		end += n
	}
	dst = append(dst, '}')
	for (len(dst)-at)%8 != 0 {
		dst = append(dst, ' ')
	}
	n := len(dst) - at - lenBytes
	if n > MaxHeader {
		return nil, fmt.Errorf("safetensors: header of %d bytes, more than %d", n, MaxHeader)
	}
	binary.LittleEndian.PutUint64(dst[at:], uint64(n))
	return dst, nil
}

// appendString appends s, which is UTF-8, as JSON with the escapes that serde_json writes.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c >= '\b' && c <= '\r' && c != '\v':
			dst = append(dst, '\\', "btn.fr"[c-'\b'])
		default:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		}
	}
	return append(dst, '"')
}
