package source

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"ckptfs/index/graph"
)

const maxDepth = 64

// reader reads one JSON document token by token, so that it takes memory only in proportion to what is kept
// of it.
type reader struct {
	dec   tokens
	depth int
}

func newReader(p []byte) (*reader, error) {
	if len(p) > MaxSource {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", len(p), MaxSource, graph.ErrInvalid)
	}
	if !utf8.Valid(p) {
		return nil, fmt.Errorf("not UTF-8: %w", graph.ErrInvalid)
	}
	s := string(p)
	if !valid(s) && !json.Valid(p) {
		var v json.RawMessage
		err := json.Unmarshal(p, &v)
		return nil, fmt.Errorf("%v: %w", err, graph.ErrInvalid)
	}
	return &reader{dec: tokens{s: s}}, nil
}

func (r *reader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s at byte %d: %w", fmt.Sprintf(format, args...), r.dec.InputOffset(),
		graph.ErrInvalid)
}

func (r *reader) token() (json.Token, error) {
	t, err := r.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, r.errorf("%v", err)
	}
	return t, nil
}

// open reads the { or [ of an object or an array.
func (r *reader) open(want byte, what string) error {
	if !r.dec.Take(want) {
		if _, err := r.token(); err != nil {
			return err
		}
		return r.errorf("%s is not %s", what, map[byte]string{'{': "an object", '[': "an array"}[want])
	}
	return r.deeper()
}

// close reads the end of one, once nothing more is in it.
func (r *reader) close() {
	r.depth--
	r.dec.Skip(1)
}

func (r *reader) deeper() error {
	if r.depth++; r.depth > maxDepth {
		return r.errorf("nested deeper than %d", maxDepth)
	}
	return nil
}

// object is an object that is being read: what its members so far were called, and the last of them.
type object struct {
	key  string
	err  error
	few  [8]string
	n    int             // of few
	many map[string]bool // those that few has no room for
}

// next reads the name of an object's next member, whose value has to be read before the next call. False when
// there is none, or o.err is set.
func (r *reader) next(o *object) bool {
	if !r.dec.More() {
		r.close()
		return false
	}
	if o.key, _, o.err = r.dec.Text(); o.err != nil {
		o.err = r.errorf("%v", o.err)
		return false
	}
	twice := o.many[o.key]
	for i := range o.n {
		twice = twice || o.few[i] == o.key
	}
	switch {
	case twice:
		o.err = r.errorf("member %q twice", o.key)
		return false
	case o.n < len(o.few):
		o.few[o.n] = o.key
		o.n++
	default:
		if o.many == nil {
			o.many = map[string]bool{}
		}
		o.many[o.key] = true
	}
	return true
}

// members calls member for each of the object that comes next.
func (r *reader) members(what string, member func(key string) error) error {
	if err := r.open('{', what); err != nil {
		return err
	}
	return r.restOfObject(member)
}

func (r *reader) restOfObject(member func(key string) error) error {
	var o object
	for r.next(&o) {
		if err := member(o.key); err != nil {
			return err
		}
	}
	return o.err
}

// items calls item for each of the array that comes next.
func (r *reader) items(what string, item func() error) error {
	if err := r.open('[', what); err != nil {
		return err
	}
	return r.restOfArray(item)
}

func (r *reader) restOfArray(item func() error) error {
	for r.dec.More() {
		if err := item(); err != nil {
			return err
		}
	}
	r.close()
	return nil
}

func (r *reader) string(what string) (string, error) {
	s, ok, err := r.dec.Text()
	switch {
	case err != nil:
		return "", r.errorf("%v", err)
	case !ok:
		return "", r.errorf("%s is not a string", what)
	}
	return s, nil
}

func (r *reader) bool(what string) (bool, error) {
	t, err := r.token()
	if err != nil {
		return false, err
	}
	b, ok := t.(bool)
	if !ok {
		return false, r.errorf("%s is not true or false", what)
	}
	return b, nil
}

// int reads an integer from 0 to limit.
func (r *reader) int(what string, limit int64) (int64, error) {
	n, ok := r.dec.Number()
	if !ok {
		if _, err := r.token(); err != nil {
			return 0, err
		}
		return 0, r.errorf("%s is not a number", what)
	}
	v, err := strconv.ParseInt(n, 10, 64)
	if err != nil || v < 0 || v > limit {
		return 0, r.errorf("%s is %.32s, not an integer from 0 to %d", what, n, limit)
	}
	return v, nil
}

// skip reads any value.
func (r *reader) skip() error {
	_, err := r.value(nil)
	return err
}
