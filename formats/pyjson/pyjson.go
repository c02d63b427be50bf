// Package pyjson reads JSON as Python's json.load does, where what Python makes of it matters: the order of
// an object's keys, whether a number is an int or a float, and the last value of a key that is there twice.
//
// A value is nil, a bool, a Number, a string, an Array or an *Object.
//
// # What is refused
//
// What Python refuses, and also: what is not UTF-8, half of a surrogate pair (Python has such strings, and
// can write them to no file), NaN and Infinity, more than 64 levels, and more values than the caller allows.
// A value takes some 60 bytes. Strings without escapes are parts of the text.
package pyjson

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrInvalid says that a text is not JSON, or is more of it than is read. The error that wraps it says why.
var ErrInvalid = errors.New("not JSON that is read here")

// Number is a number as it is written.
type Number string

// Int is the number if Python takes it for an int, of 64 bits.
func (n Number) Int() (int64, bool) {
	if strings.ContainsAny(string(n), ".eE") {
		return 0, false
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	return v, err == nil
}

// Float is the number in double precision. It is finite.
func (n Number) Float() float64 {
	v, _ := strconv.ParseFloat(string(n), 64)
	return v
}

// Array is a list.
type Array []any

// Object is a dict: keys in the order in which each came first, with the values that came last.
type Object struct {
	keys   []string
	values []any
	at     map[string]int
}

// Len is the number of keys; 0 of nil.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Key is the key number i, and its value.
func (o *Object) Key(i int) (string, any) { return o.keys[i], o.values[i] }

// Get is the value of a key, and whether there is one.
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	i, ok := o.at[key]
	if !ok {
		return nil, false
	}
	return o.values[i], true
}

// Value is the value of a key; nil where there is none.
func (o *Object) Value(key string) any {
	v, _ := o.Get(key)
	return v
}

// Set sets the value of a key, which comes last if it is new.
func (o *Object) Set(key string, v any) {
	if i, ok := o.at[key]; ok {
		o.values[i] = v
		return
	}
	if o.at == nil {
		o.at = make(map[string]int)
	}
	o.at[key] = len(o.keys)
	o.keys, o.values = append(o.keys, key), append(o.values, v)
}

const maxDepth = 64

// Parse reads a text of at most so many values. Errors wrap ErrInvalid.
func Parse(text []byte, values int) (any, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not UTF-8", ErrInvalid)
	}
	p := parser{s: string(text), left: values}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.i < len(p.s) {
			err = p.fail("more follows")
		}
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

type parser struct {
	s    string
	i    int
	left int
}

func (p *parser) fail(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrInvalid, what, p.i)
}

func (p *parser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// next is the byte that comes after spaces; 0 at the end.
func (p *parser) next() byte {
	p.space()
	if p.i == len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *parser) value(depth int) (any, error) {
	if p.left--; p.left < 0 {
		return nil, p.fail("too many values")
	}
	if depth > maxDepth {
		return nil, p.fail("too many levels")
	}
	switch c := p.next(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.text()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	switch {
	case p.word("null"):
		return nil, nil
	case p.word("true"):
		return true, nil
	case p.word("false"):
		return false, nil
	}
	return nil, p.fail("no value")
}

// word passes over a word, if it is the next.
func (p *parser) word(s string) bool {
	is := strings.HasPrefix(p.s[p.i:], s)
	if is {
		p.i += len(s)
	}
	return is
}

func (p *parser) object(depth int) (any, error) {
	o := new(Object)
	p.i++
	if p.next() == '}' {
		p.i++
		return o, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.fail("no key")
		}
		key, err := p.text()
		if err != nil {
			return nil, err
		}
		if p.next() != ':' {
			return nil, p.fail("no colon")
		}
		p.i++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(key, v)
		switch p.next() {
		case ',':
			p.i++
		case '}':
			p.i++
			return o, nil
		default:
			return nil, p.fail("no comma")
		}
	}
}

func (p *parser) array(depth int) (any, error) {
	a := Array{}
	p.i++
	if p.next() == ']' {
		p.i++
		return a, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		switch p.next() {
		case ',':
			p.i++
		case ']':
			p.i++
			return a, nil
		default:
			return nil, p.fail("no comma")
		}
	}
}

// digits passes over digits, and says whether there is one.
func (p *parser) digits() bool {
	from := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

// is passes over one of these bytes.
func (p *parser) is(any string) bool {
	if p.i < len(p.s) && strings.IndexByte(any, p.s[p.i]) >= 0 {
		p.i++
		return true
	}
	return false
}

func (p *parser) number() (any, error) {
	from := p.i
	p.is("-")
	if !p.is("0") && !p.digits() {
		return nil, p.fail("no digit")
	}
	if p.is(".") && !p.digits() {
		return nil, p.fail("no digit")
	}
	if p.is("eE") {
		p.is("+-")
		if !p.digits() {
			return nil, p.fail("no digit")
		}
	}
	n := p.s[from:p.i]
	if len(n) > 400 {
		return nil, p.fail("a number too long")
	}
	if _, err := strconv.ParseFloat(n, 64); err != nil {
		return nil, p.fail("a number too large")
	}
	return Number(n), nil
}

// text reads a string, from its first quote on.
func (p *parser) text() (string, error) {
	p.i++
	from := p.i
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return p.s[from : p.i-1], nil
		case c == '\\':
			return p.escaped(from)
		case c < ' ':
			return "", p.fail("a control character in a string")
		}
		p.i++
	}
	return "", p.fail("a string without end")
}

// escaped goes on with a string that began at from, at its first backslash.
func (p *parser) escaped(from int) (string, error) {
	var b strings.Builder
	b.WriteString(p.s[from:p.i])
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch {
		case c == '"':
			return b.String(), nil
		case c < ' ':
			return "", p.fail("a control character in a string")
		case c != '\\':
			b.WriteByte(c)
			continue
		case p.i == len(p.s):
			return "", p.fail("a string without end")
		}
		c = p.s[p.i]
		p.i++
		if k := strings.IndexByte(`"\/bfnrt`, c); k >= 0 {
			b.WriteByte("\"\\/\b\f\n\r\t"[k])
			continue
		}
		r, ok := p.unit(c)
		if ok && utf16.IsSurrogate(r) {
			low := rune(-1)
			if strings.HasPrefix(p.s[p.i:], `\u`) {
				p.i += 2
				low, ok = p.unit('u')
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return "", p.fail("half of a surrogate pair")
			}
		}
		if !ok {
			return "", p.fail("no such escape")
		}
		b.WriteRune(r)
	}
	return "", p.fail("a string without end")
}

// unit reads the four digits of an escape \u.
func (p *parser) unit(c byte) (rune, bool) {
	if c != 'u' || len(p.s)-p.i < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(p.s[p.i:p.i+4], 16, 16)
	p.i += 4
	return rune(v), err == nil
}
