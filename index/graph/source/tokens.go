package source

import (
	"encoding/json"
	"io"
)

// tokens reads the tokens of a document of valid UTF-8 that json.Valid has passed, as a json.Decoder with
// UseNumber does: at a seventh of its cost, which was most of what a query cost.
//
// Strings that need no change are parts of s: keeping one keeps all of it.
type tokens struct {
	s  string
	at int // behind the last token
}

// next is the place of the next byte that is no space and nothing between tokens.
func (t *tokens) next() int {
	for i := t.at; i < len(t.s); i++ {
		switch t.s[i] {
		case ' ', '\t', '\n', '\r', ',', ':':
		default:
			return i
		}
	}
	return len(t.s)
}

// More reports whether an array or object goes on.
func (t *tokens) More() bool {
	i := t.next()
	return i < len(t.s) && t.s[i] != ']' && t.s[i] != '}'
}

// InputOffset is the place behind the last token.
func (t *tokens) InputOffset() int64 { return int64(t.at) }

func (t *tokens) Token() (json.Token, error) {
	i := t.next()
	if i == len(t.s) {
		return nil, io.EOF
	}
	switch c := t.s[i]; c {
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
	n, _ := t.Number()
	return json.Number(n), nil
}

// Number is Token where that is a number; ok is false, and nothing read, where it is none.
func (t *tokens) Number() (s string, ok bool) {
	i := t.next()
	j := i
	for ; j < len(t.s); j++ {
		if c := t.s[j]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
	}
	if i == j || t.s[i] > '9' {
		return "", false
	}
	t.at = j
	return t.s[i:j], true
}

// Take reads a delimiter if it comes next.
func (t *tokens) Take(c byte) bool {
	i := t.next()
	if i == len(t.s) || t.s[i] != c {
		return false
	}
	t.at = i + 1
	return true
}

// Text is Token where that is a string; ok is false, and nothing read, where it is none.
func (t *tokens) Text() (s string, ok bool, err error) {
	i := t.next()
	if i == len(t.s) || t.s[i] != '"' {
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
		return t.s[i+1 : j-1], nil
	}
	var s string
	err := json.Unmarshal([]byte(t.s[i:j]), &s)
	return s, err
}

// endOfText is the place behind the string that begins at i.
func (t *tokens) endOfText(i int) (end int, escaped bool) {
	for i++; t.s[i] != '"'; i++ {
		if t.s[i] == '\\' {
			escaped = true
			i++
		}
	}
	return i + 1, escaped
}

// Object is the text of the object that comes next, of which none is read; "" when another value does.
func (t *tokens) Object() string {
	from := t.next()
	if from == len(t.s) || t.s[from] != '{' {
		return ""
	}
	depth := 0
	for i := from; ; i++ {
		switch t.s[i] {
		case '"':
			i, _ = t.endOfText(i)
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return t.s[from : i+1]
			}
		}
	}
}

// Skip passes over n bytes from the next token on.
func (t *tokens) Skip(n int) { t.at = t.next() + n }
