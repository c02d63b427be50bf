// Package modelcard reads the front matter of a model card: the YAML that a README.md begins with, between
// two lines of three hyphens.
//
//	---
//	license: apache-2.0
//	tags:
//	- merge
//	base_model: [a/b, c/d]
//	---
//
// What is read is what PyYAML's safe_load reads of it, after the replacements that llama.cpp's gguf-py makes
// (a tab is two spaces; an item "no" of a list is text). A value is nil, a string, a pyjson.Array, a
// *pyjson.Object, or Other: a number, a truth value, a date, or text in several lines.
//
// # What is refused
//
// YAML has many ways to write a thing. Read are mappings and sequences in blocks, scalars in one line, plain
// or quoted, sequences of scalars in brackets, blocks of text as Other, and comments. All else is refused,
// also where PyYAML reads it: anchors, tags, text in several lines without a sign for it, escapes in double
// quotes. Front matter of more than 1 MiB or 32 levels is refused.
package modelcard

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"ckptfs/formats/pyjson"
)

// ErrInvalid says that a card's front matter is not read. The error that wraps it says why.
var ErrInvalid = errors.New("front matter that is not read here")

// Other is a value that is neither text, nor null, nor a list or a mapping.
type Other struct{}

const (
	maxSize  = 1 << 20
	maxDepth = 32
	fence    = "---"
)

// Parse reads a README.md. The object is nil where there is no front matter, or it is no mapping.
func Parse(file []byte) (*pyjson.Object, error) {
	if !utf8.Valid(file) {
		return nil, fmt.Errorf("%w: it is not UTF-8", ErrInvalid)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(file), "\r\n", "\n"), "\r", "\n")
	rest, ok := strings.CutPrefix(text, fence+"\n")
	if !ok {
		if first, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, fence) &&
			strings.ContainsFunc(first, odd) { // what Python takes for the end of a line
			return nil, fmt.Errorf("%w: line 1 has a control character", ErrInvalid)
		}
		return nil, nil
	}
	lines := strings.Split(rest, "\n")
	for i, l := range lines {
		if l == fence {
			lines = lines[:i]
			break
		}
	}
	rest = strings.Join(lines, "\n") + "\n"
	if len(rest) > maxSize {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrInvalid, len(rest))
	}
	rest = strings.ReplaceAll(rest, "- no\n", "- \"no\"\n")
	rest = strings.ReplaceAll(rest, "\t", "  ")
	p := parser{}
	for i, l := range strings.Split(rest, "\n") {
		if strings.ContainsFunc(l, odd) {
			return nil, p.fail(i, "has a control character")
		}
		if strings.HasPrefix(l, fence) || strings.HasPrefix(l, "...") || strings.HasPrefix(l, "%") {
			return nil, p.fail(i, "begins another document")
		}
		bare := strings.TrimLeft(l, " ")
		p.lines = append(p.lines, line{len(l) - len(bare), strings.TrimRight(bare, " ")})
	}
	if p.skip(); p.i == len(p.lines) {
		return nil, nil
	}
	v, err := p.block(p.lines[p.i].indent, 0)
	if err != nil {
		return nil, err
	}
	if p.skip(); p.i < len(p.lines) {
		return nil, p.fail(p.i, "is indented otherwise")
	}
	o, _ := v.(*pyjson.Object)
	return o, nil
}

// odd are the characters that YAML does not allow, or that Python takes for the end of a line.
func odd(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff ||
		r == 0xfffe || r == 0xffff
}

// line is a line without the spaces around it.
type line struct {
	indent int
	text   string
}

type parser struct {
	lines []line
	i     int
}

// fail is the error of line number, from 0 on, of the front matter.
func (p *parser) fail(number int, what string) error {
	return fmt.Errorf("%w: line %d %s", ErrInvalid, number+2, what)
}

// skip passes over lines that are empty, or comments.
func (p *parser) skip() {
	for p.i < len(p.lines) && (p.lines[p.i].text == "" || p.lines[p.i].text[0] == '#') {
		p.i++
	}
}

// current is the line that is read next; an empty one at the end.
func (p *parser) current() line {
	if p.i == len(p.lines) {
		return line{}
	}
	return p.lines[p.i]
}

func isItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// block reads a mapping or a sequence whose lines are indented so.
func (p *parser) block(indent, depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.fail(p.i, "is nested too deeply")
	}
	if isItem(p.lines[p.i].text) {
		return p.sequence(indent, depth)
	}
	return p.mapping(indent, depth)
}

func (p *parser) sequence(indent, depth int) (any, error) {
	a := pyjson.Array{}
	for p.skip(); p.i < len(p.lines); p.skip() {
		l := &p.lines[p.i]
		if l.indent != indent || !isItem(l.text) {
			break
		}
		inner := strings.TrimLeft(l.text[1:], " ")
		var v any
		var err error
		switch {
		case inner == "" || inner[0] == '#':
			v, err = p.below(indent+1, depth)
		case isItem(inner):
			err = p.fail(p.i, "has a list in a list")
		case cutKey(inner) >= 0:
			l.indent += len(l.text) - len(inner)
			l.text = inner
			v, err = p.mapping(l.indent, depth+1)
		default:
			v, err = p.inline(inner, indent+1)
		}
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	return a, nil
}

func (p *parser) mapping(indent, depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.fail(p.i, "is nested too deeply")
	}
	o := new(pyjson.Object)
	for p.skip(); p.i < len(p.lines); p.skip() {
		l := p.lines[p.i]
		if l.indent != indent || isItem(l.text) {
			break
		}
		at := cutKey(l.text)
		if at < 0 {
			return nil, p.fail(p.i, "has no key")
		}
		k, err := p.scalar(p.i, strings.TrimRight(l.text[:at], " "), false)
		if err != nil {
			return nil, err
		}
		key, ok := k.(string)
		if !ok {
			key = "\x00" + l.text[:at] // of another type: nobody asks for it
		}
		rest := strings.TrimLeft(l.text[at+1:], " ")
		var v any
		if rest == "" || rest[0] == '#' {
			v, err = p.below(indent+1, depth)
			if l := p.current(); v == nil && err == nil && l.indent == indent && isItem(l.text) {
				v, err = p.block(indent, depth+1) // a list need not be indented
			}
		} else {
			v, err = p.inline(rest, indent+1)
		}
		if err != nil {
			return nil, err
		}
		o.Set(key, v)
	}
	return o, nil
}

// below is what the lines after this one are if they are indented by least at least; nil if they are not.
func (p *parser) below(least, depth int) (any, error) {
	p.i++
	if p.skip(); p.i == len(p.lines) || p.lines[p.i].indent < least {
		return nil, nil
	}
	v, err := p.block(p.lines[p.i].indent, depth+1)
	if err == nil {
		if p.skip(); p.i < len(p.lines) && p.lines[p.i].indent >= least {
			err = p.fail(p.i, "is indented otherwise")
		}
	}
	return v, err
}

var blockText = regexp.MustCompile(`^[|>][-+0-9]*( +#.*)?$`)

// inline is the value that the rest of a line is. Lines that are indented by least must not follow, but those
// of a block of text.
func (p *parser) inline(rest string, least int) (any, error) {
	number := p.i
	p.i++
	if blockText.MatchString(rest) {
		for p.i < len(p.lines) && (p.lines[p.i].text == "" || p.lines[p.i].indent >= least) {
			p.i++
		}
		return Other{}, nil
	}
	v, err := p.flow(number, rest)
	if err != nil {
		return nil, err
	}
	if p.skip(); p.i < len(p.lines) && p.lines[p.i].indent >= least {
		return nil, p.fail(p.i, "goes on with the one before")
	}
	return v, nil
}

// flow is a scalar, or a list of them in brackets.
func (p *parser) flow(number int, s string) (any, error) {
	if s[0] != '[' {
		return p.scalar(number, s, false)
	}
	a := pyjson.Array{}
	s = strings.TrimLeft(s[1:], " ")
	for {
		if s == "" {
			return nil, p.fail(number, "has a list in several lines")
		}
		if s[0] == ']' {
			if rest := strings.TrimLeft(s[1:], " "); rest != "" && (rest[0] != '#' || rest == s[1:]) {
				return nil, p.fail(number, "goes on after a list")
			}
			return a, nil
		}
		n := itemEnd(s)
		if n < 0 {
			return nil, p.fail(number, "has a list that is not read")
		}
		v, err := p.scalar(number, strings.TrimRight(s[:n], " "), true)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, p.fail(number, "has an empty item")
		}
		a = append(a, v)
		if s = s[n:]; s[0] == ',' {
			s = strings.TrimLeft(s[1:], " ")
		}
	}
}

// itemEnd is where an item of a list in brackets ends; -1: nowhere.
func itemEnd(s string) int {
	if s[0] == '"' || s[0] == '\'' {
		n := strings.IndexByte(s[1:], s[0])
		if n < 0 {
			return -1
		}
		n += 2
		for n < len(s) && s[n] == ' ' {
			n++
		}
		if n == len(s) || s[n] != ',' && s[n] != ']' {
			return -1
		}
		return n
	}
	return strings.IndexAny(s, ",]")
}

// cutKey is where the colon after a key is; -1: there is no key.
func cutKey(s string) int {
	from := 0
	if s[0] == '"' || s[0] == '\'' {
		n := strings.IndexByte(s[1:], s[0])
		if n < 0 {
			return -1
		}
		if from = n + 2; from == len(s) || s[from] != ':' {
			return -1
		}
	}
	if comment := strings.Index(s, " #"); comment >= 0 && from == 0 {
		s = s[:comment]
	}
	if n := strings.Index(s[from:], ": "); n >= 0 {
		return from + n
	}
	if strings.HasSuffix(s, ":") {
		return len(s) - 1
	}
	return -1
}

// What plain scalars are not text, as YAML 1.1 has it.
var (
	null  = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	typed = regexp.MustCompile(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF` +
		`|[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?` +
		`|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)` +
		`|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+` +
		`|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|[0-9]{4}-[0-9]{2}-[0-9]{2}` +
		`|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]| +)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?` +
		`(?: *(?:Z|[-+][0-9][0-9]?(?::[0-9][0-9])?))?)$`)
)

// scalar is the value of text that is plain or quoted, without the comment behind it.
func (p *parser) scalar(number int, s string, inList bool) (any, error) {
	if s == "" {
		return nil, nil
	}
	if q := s[0]; q == '"' || q == '\'' {
		n := strings.IndexByte(s[1:], q)
		if n < 0 {
			return nil, p.fail(number, "has a quote without end")
		}
		text, rest := s[1:n+1], strings.TrimLeft(s[n+2:], " ")
		if rest != "" && (rest[0] != '#' || s[n+2] != ' ') || q == '"' && strings.Contains(text, `\`) {
			return nil, p.fail(number, "has text in quotes that is not read")
		}
		return text, nil
	}
	if at := strings.Index(s, " #"); at >= 0 {
		s = strings.TrimRight(s[:at], " ")
	}
	plain := !strings.ContainsRune(",[]{}#&*!|>%@`", rune(s[0])) && !strings.Contains(s, ": ") &&
		!strings.HasSuffix(s, ":")
	if strings.IndexByte("-?:", s[0]) >= 0 && (len(s) == 1 || s[1] == ' ') {
		plain = false
	}
	if inList && strings.ContainsAny(s, "[]{},:?") {
		plain = false
	}
	switch {
	case !plain, s == "<<", s == "=":
		return nil, p.fail(number, "has a value that is not read")
	case null.MatchString(s):
		return nil, nil
	case typed.MatchString(s):
		return Other{}, nil
	}
	return s, nil
}
