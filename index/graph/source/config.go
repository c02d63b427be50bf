package source

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// place says which members of an object are left out.
type place int

const (
	inside     place = iota // in a cfg: seed
	layer                   // a cfg: also name, trainable, dtype policy
	kerasLayer              // a Keras layer's: also dtype, which is the policy's name there
)

func dropped(key string, at place) bool {
	switch key {
	case "seed":
		return true
	case "name", "trainable", "dtype_policy", "dtype-policy":
		return at != inside
	case "dtype":
		return at == kerasLayer
	}
	return false
}

// config reads an object and returns its canonical form.
func (r *reader) config(what string, at place) (string, error) {
	if err := r.open('{', what); err != nil {
		return "", err
	}
	p, err := r.object(nil, at)
	return string(p), err
}

// value appends the canonical form of the value that comes next.
func (r *reader) value(dst []byte) ([]byte, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if err := r.deeper(); err != nil {
			return nil, err
		}
		if t == '{' {
			return r.object(dst, inside)
		}
		dst = append(dst, '[')
		first := true
		err := r.restOfArray(func() error {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			var err error
			dst, err = r.value(dst)
			return err
		})
		return append(dst, ']'), err
	case string:
		return appendJSONString(dst, t), nil
	case json.Number:
		dst, ok := appendNumber(dst, string(t))
		if !ok {
			return nil, r.errorf("number %.32s out of range", t)
		}
		return dst, nil
	case bool:
		return strconv.AppendBool(dst, t), nil
	}
	return append(dst, "null"...), nil
}

// object appends the canonical form of the object whose brace was read.
func (r *reader) object(dst []byte, at place) ([]byte, error) {
	type member struct {
		key   string
		units []uint16 // nil when the key is ASCII
		from  int      // in text
		to    int
	}
	var all []member
	var text []byte
	class, config := -1, -1
	err := r.restOfObject(func(key string) error {
		m := member{key: key, from: len(text)}
		var err error
		if text, err = r.value(text); err != nil {
			return err
		}
		m.to = len(text)
		if dropped(key, at) {
			text = text[:m.from]
			return nil
		}
		if strings.IndexFunc(key, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
			m.units = utf16.Encode([]rune(key))
		}
		switch key {
		case "class_name":
			class = len(all)
		case "config":
			config = len(all)
		}
		all = append(all, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &all[i], &all[j]
		if a.units == nil && b.units == nil {
			return strings.Compare(a.key, b.key)
		}
		return slices.Compare(unitsOf(a.key, a.units), unitsOf(b.key, b.units))
	})
	dst = append(dst, '{')
	for n, i := range order {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, all[i].key), ':')
		value := text[all[i].from:all[i].to]
		if i == config && class >= 0 && value[0] == '{' {
			value = withoutLayerNames(value)
		}
		dst = append(dst, value...)
	}
	return append(dst, '}'), nil
}

func unitsOf(key string, units []uint16) []uint16 {
	if units != nil {
		return units
	}
	return utf16.Encode([]rune(key))
}

// withoutLayerNames takes from a canonical object the members that a layer's cfg goes without. Which of an
// object's members come first is not known when a nested config is read, so this is done afterwards.
func withoutLayerNames(p []byte) []byte {
	out := append(make([]byte, 0, len(p)), '{')
	for i := 1; p[i] != '}'; {
		if p[i] == ',' {
			i++
		}
		from := i
		i = endOfValue(p, i)
		key := p[from+1 : i-1]
		i = endOfValue(p, i+1)
		if dropped(string(key), layer) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, p[from:i]...)
	}
	return append(out, '}')
}

// endOfValue is where the value of canonical JSON that starts at i ends.
func endOfValue(p []byte, i int) int {
	for depth := 0; ; {
		switch p[i] {
		case '"':
			for i++; p[i] != '"'; i++ {
				if p[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':':
			i++
			continue
		default:
			for i < len(p) && p[i] != ',' && p[i] != '}' && p[i] != ']' {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// appendJSONString appends s as RFC 8785, section 3.2.2.2, has it.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			if c < 0x20 {
				dst = fmt.Appendf(dst, `\u%04x`, c)
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}

// appendNumber appends a JSON number as ECMAScript prints it; integers that no float64 holds keep their
// digits. False when it is past the range of float64.
func appendNumber(dst []byte, s string) ([]byte, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, false
	}
	if f == 0 {
		return append(dst, '0'), true // -0 too
	}
	if math.Abs(f) >= 1<<53 && !strings.ContainsAny(s, ".eE") {
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			return nil, false
		}
		if v, _ := new(big.Float).SetFloat64(f).Int(nil); v.Cmp(n) != 0 {
			return append(dst, s...), true
		}
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64), true
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n-from >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') { // e-07
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, true
}
