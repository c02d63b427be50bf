package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// Append appends the index's bytes to dst.
func (x *Index) Append(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range x.Entries {
		e := &x.Entries[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, e.Name), ':', '[')
		dst = append(appendNumber(dst, e.Offset), ',')
		dst = append(appendNumber(dst, e.Size), ',')
		dst = append(appendNumbers(dst, e.Shape), ',')
		dst = append(appendNumbers(dst, e.Stride), ',')
		dst = append(appendString(dst, e.DType), ',')
		dst = append(appendNumber(dst, e.StorageOffset), ']')
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, v int64) []byte { return strconv.AppendUint(dst, uint64(v), 10) }

func appendNumbers(dst []byte, vs []int64) []byte {
	dst = append(dst, '[')
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendNumber(dst, v)
	}
	return append(dst, ']')
}

func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// maxIndex bounds an index that Decode reads, in bytes.
const maxIndex = 256 << 20

// Decode reads the bytes that Append wrote and nothing else, and checks that storages don't overlap and that
// every element lies in its storage. The error wraps ErrIndex. It takes memory in proportion to p.
func Decode(p []byte) (*Index, error) {
	bad := func(format string, args ...any) (*Index, error) {
		return nil, fmt.Errorf("%w: %s", ErrIndex, fmt.Sprintf(format, args...))
	}
	if len(p) > maxIndex || !utf8.Valid(p) {
		return bad("%d bytes, or not UTF-8", len(p))
	}
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad("no object")
	}
	x := &Index{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return bad("%v", err)
		}
		var fields []json.RawMessage
		if err := d.Decode(&fields); err != nil || len(fields) != 6 {
			return bad("tensor %.64q: %d fields, %v", name, len(fields), err)
		}
		e := Entry{Name: name}
		for i, to := range []any{&e.Offset, &e.Size, &e.Shape, &e.Stride, &e.DType, &e.StorageOffset} {
			if err := json.Unmarshal(fields[i], to); err != nil {
				return bad("tensor %.64q: %v", name, err)
			}
		}
		if n := len(x.Entries); n > 0 && x.Entries[n-1].Name >= name {
			return bad("tensor %.64q: twice, or out of order", name)
		}
		if err := e.check(); err != nil {
			return nil, err
		}
		x.Entries = append(x.Entries, e)
	}
	if _, err := d.Token(); err != nil {
		return bad("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("text after the object")
	}
	if !bytes.Equal(x.Append(nil), p) {
		return bad("written in another way than the canonical one")
	}
	_, err := x.Map()
	return x, err
}

// check returns an error unless every element lies in the storage.
func (e *Entry) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: tensor %.64q: %s", ErrIndex, e.Name, fmt.Sprintf(format, args...))
	}
	if e.Offset < 0 || e.Size < 0 || e.StorageOffset < 0 || len(e.Shape) != len(e.Stride) ||
		e.Size > math.MaxInt64-e.Offset {
		return bad("numbers that can't be")
	}
	last, any := int64(0), true // index of the last element
	for i, d := range e.Shape {
		s := e.Stride[i]
		switch {
		case d < 0 || s < 0:
			return bad("a negative dimension")
		case d == 0:
			any = false
		case s > 0 && d-1 > (math.MaxInt64-last)/s:
			return bad("strides overflow")
		default:
			last += (d - 1) * s
		}
	}
	if !any {
		return nil
	}
	width := int64(1) // at least
	for t, name := range torchNames {
		if e.DType == "torch."+name && t.Bits() >= 8 {
			width = int64(t.Bits() / 8)
		}
	}
	if e.StorageOffset > e.Size || last >= (e.Size-e.StorageOffset)/width {
		return bad("element %d of %d bytes, %d bytes into a storage of %d", last, width, e.StorageOffset,
			e.Size)
	}
	return nil
}
