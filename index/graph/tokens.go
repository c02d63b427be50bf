package graph

import (
	"encoding/json"
	"io"
)

// tokens reads the tokens of a document of valid UTF-8 that json.Valid has passed, as a json.Decoder with UseNumber does: at a seventh of its cost, which was
// most of what a query cost.
type tokens struct {
	p  []byte
	at int // behind the last token
}

// next is the place of the next byte that is no space and nothing between tokens.
func (t *tokens) next() int {
	for i := t.at; i < len(t.p); i++ {
		switch t.p[i] {
		case ' ', '\t', '\n', '\r', ',', ':':
		default:
			return i
		}
	}
	return len(t.p)
}

// More reports whether an array or object goes on.
func (t *tokens) More() bool {
	i := t.next()
	return i < len(t.p) && t.p[i] != ']' && t.p[i] != '}'
}

// InputOffset is the place behind the last token.
func (t *tokens) InputOffset() int64 { return int64(t.at) }

func (t *tokens) Token() (json.Token, error) {
	i := t.next()
	if i == len(t.p) {
		return nil, io.EOF
	}
	switch c := t.p[i]; c {
	case '{', '}', '[', ']':
		t.at = i + 1
		return json.Delim(c), nil
	case '"':
		return t.text(i)
	case 't':
		t.at = i + 4
		return true, nil
	case 'f':
		t.at = i + 5
		return false, nil
	case 'n':
		t.at = i + 4
		return nil, nil
	}
	j := i
	for ; j < len(t.p); j++ {
		if c := t.p[j]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
	}
	t.at = j
	return json.Number(t.p[i:j]), nil
}

// Text is Token where that is a string; ok is false, and nothing read, where it is none.
func (t *tokens) Text() (s string, ok bool, err error) {
	i := t.next()
	if i == len(t.p) || t.p[i] != '"' {
		return "", false, nil
	}
	s, err = t.text(i)
	return s, true, err
}

// text reads the string that begins at i.
func (t *tokens) text(i int) (string, error) {
	j, escaped := t.endOfText(i)
	t.at = j
	if !escaped {
		return string(t.p[i+1 : j-1]), nil
	}
	var s string
	err := json.Unmarshal(t.p[i:j], &s)
	return s, err
}

// endOfText is the place behind the string that begins at i.
func (t *tokens) endOfText(i int) (end int, escaped bool) {
	for i++; t.p[i] != '"'; i++ {
		if t.p[i] == '\\' {
			escaped = true
			i++
		}
	}
	return i + 1, escaped
}

// Object is the bytes of the object that comes next, of which none is read; nil when another value does.
func (t *tokens) Object() []byte {
	from := t.next()
	if from == len(t.p) || t.p[from] != '{' {
		return nil
	}
	depth := 0
	for i := from; ; i++ {
		switch t.p[i] {
		case '"':
			i, _ = t.endOfText(i)
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return t.p[from : i+1]
			}
		}
	}
}

// Skip passes over what Object returned.
func (t *tokens) Skip(object []byte) { t.at = t.next() + len(object) }
