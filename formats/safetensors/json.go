package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads JSON where it lies, as strictly as serde_json: encoding/json replaces lone surrogates, folds
// the case of field names and would build the whole document.
type decoder struct {
	p      []byte // UTF-8
	pos    int
	depth  int
	dims   int      // dimensions read in all
	shaped []uint64 // the last shape
	buf    []byte   // the last string that had escapes
	kept   []byte   // the last key that had, and is kept
}

// maxDepth is serde_json's: the 128th open object or array is refused.
const maxDepth = 127

func (d *decoder) errorf(format string, args ...any) error {
	return fmt.Errorf("%s at offset %d", fmt.Sprintf(format, args...), d.pos)
}

func (d *decoder) space() {
	for d.pos < len(d.p) {
		switch d.p[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// peek is the next byte that is no white space, or 0 at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.pos == len(d.p) {
		return 0
	}
	return d.p[d.pos]
}

// expect consumes c, after white space.
func (d *decoder) expect(c byte) error {
	if d.peek() != c {
		return d.errorf("expected %q", c)
	}
	d.pos++
	return nil
}

func (d *decoder) literal(s string) error {
	d.space()
	if !bytes.HasPrefix(d.p[d.pos:], []byte(s)) {
		return d.errorf("expected %s", s)
	}
	d.pos += len(s)
	return nil
}

// sequence reads from open to end, with item called at each item's start.
func (d *decoder) sequence(open, end byte, item func() error) error {
	if err := d.expect(open); err != nil {
		return err
	}
	if d.depth++; d.depth > maxDepth {
		return d.errorf("recursion limit exceeded")
	}
	for first := true; ; first = false {
		if c := d.peek(); c == end {
			break
		} else if c == ',' && !first {
			d.pos++
			if d.peek() == end {
				return d.errorf("trailing comma")
			}
		} else if !first {
			return d.errorf("expected ',' or %q", end)
		}
		if err := item(); err != nil {
			return err
		}
	}
	d.pos++
	d.depth--
	return nil
}

func (d *decoder) array(item func() error) error { return d.sequence('[', ']', item) }

// object calls value at the start of each value. The key is valid until value reads on.
func (d *decoder) object(value func(key []byte) error) error {
	return d.sequence('{', '}', func() error {
		key, err := d.string()
		if err != nil {
			return err
		}
		if err := d.expect(':'); err != nil {
			return err
		}
		return value(key)
	})
}

// keep makes a key outlast the reading of its value.
func (d *decoder) keep(key []byte) []byte {
	if len(key) == 0 || len(d.buf) == 0 || &key[0] != &d.buf[0] {
		return key // it lies in the input
	}
	d.kept = append(d.kept[:0], key...)
	return d.kept
}

// skip reads any value.
func (d *decoder) skip() error {
	switch c := d.peek(); {
	case c == '{':
		return d.object(func([]byte) error { return d.skip() })
	case c == '[':
		return d.array(d.skip)
	case c == '"':
		_, err := d.string()
		return err
	case c == 't':
		return d.literal("true")
	case c == 'f':
		return d.literal("false")
	case c == 'n':
		return d.literal("null")
	}
	s, err := d.number()
	if err == nil {
		if f, _ := strconv.ParseFloat(string(s), 64); math.IsInf(f, 0) {
			err = d.errorf("number out of range")
		}
	}
	return err
}

// uint64 reads an unsigned integer, written as one: no sign, fraction or exponent.
func (d *decoder) uint64() (uint64, error) {
	s, err := d.number()
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(string(s[:min(len(s), 32)]), 10, 64)
	if err != nil {
		return 0, d.errorf("%.32q is no unsigned integer of 64 bits", s)
	}
	return v, nil
}

// number reads a number by JSON's grammar.
func (d *decoder) number() ([]byte, error) {
	d.space()
	start := d.pos
	digits := func() int {
		from := d.pos
		for d.pos < len(d.p) && '0' <= d.p[d.pos] && d.p[d.pos] <= '9' {
			d.pos++
		}
		return d.pos - from
	}
	accept := func(set string) bool {
		if d.pos < len(d.p) && bytes.IndexByte([]byte(set), d.p[d.pos]) >= 0 {
			d.pos++
			return true
		}
		return false
	}
	accept("-")
	if !accept("0") && digits() == 0 {
		return nil, d.errorf("invalid value")
	}
	if accept(".") && digits() == 0 {
		return nil, d.errorf("invalid number")
	}
	if accept("eE") {
		accept("+-")
		if digits() == 0 {
			return nil, d.errorf("invalid number")
		}
	}
	if d.pos < len(d.p) && '0' <= d.p[d.pos] && d.p[d.pos] <= '9' { // 01
		return nil, d.errorf("invalid number")
	}
	return d.p[start:d.pos], nil
}

// string reads a string. The result is in the input, or in buf where escapes had to be resolved, until the
// next call.
func (d *decoder) string() ([]byte, error) {
	if err := d.expect('"'); err != nil {
		return nil, err
	}
	start := d.pos
	for ; d.pos < len(d.p); d.pos++ {
		switch c := d.p[d.pos]; {
		case c == '"':
			d.pos++
			return d.p[start : d.pos-1], nil
		case c == '\\':
			return d.escaped(start)
		case c < 0x20:
			return nil, d.errorf("control character in a string")
		}
	}
	return nil, d.errorf("string without end")
}

// escaped reads on in a string that began at start, from its first backslash.
func (d *decoder) escaped(start int) ([]byte, error) {
	d.buf = append(d.buf[:0], d.p[start:d.pos]...)
	for d.pos < len(d.p) {
		c := d.p[d.pos]
		d.pos++
		switch {
		case c == '"':
			return d.buf, nil
		case c < 0x20:
			return nil, d.errorf("control character in a string")
		case c != '\\':
			d.buf = append(d.buf, c)
			continue
		}
		if d.pos == len(d.p) {
			break
		}
		c = d.p[d.pos]
		d.pos++
		const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		if i := bytes.IndexByte([]byte(from), c); i >= 0 {
			d.buf = append(d.buf, to[i])
			continue
		}
		if c != 'u' {
			return nil, d.errorf("invalid escape")
		}
		r, err := d.hex4()
		if err != nil {
			return nil, err
		}
		if utf16.IsSurrogate(r) {
			if !bytes.HasPrefix(d.p[d.pos:], []byte(`\u`)) {
				return nil, d.errorf("lone surrogate")
			}
			d.pos += 2
			low, err := d.hex4()
			if err != nil {
				return nil, err
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return nil, d.errorf("lone surrogate")
			}
		}
		d.buf = utf8.AppendRune(d.buf, r)
	}
	return nil, d.errorf("string without end")
}

func (d *decoder) hex4() (rune, error) {
	if len(d.p)-d.pos >= 4 {
		v, err := strconv.ParseUint(string(d.p[d.pos:d.pos+4]), 16, 16)
		if err == nil {
			d.pos += 4
			return rune(v), nil
		}
	}
	return 0, d.errorf("invalid escape")
}
