package npy

import (
	"bytes"
	"strconv"

	"ckptfs/formats"
)

// types has the type of each kind and size that there is one for.
var types = map[string]formats.DType{
	"b1": formats.Bool, "i1": formats.I8, "u1": formats.U8, "i2": formats.I16, "u2": formats.U16,
	"i4": formats.I32, "u4": formats.U32, "i8": formats.I64, "u8": formats.U64, "f2": formats.F16,
	"f4": formats.F32, "f8": formats.F64, "c8": formats.C64, "c16": formats.C128,
}

// parse reads the dict literal.
func (h *header) parse(p []byte) error {
	s := scanner{p}
	var seen [3]bool
	if !s.next('{') {
		return reject("header: no dict")
	}
	for !s.next('}') {
		key, ok := s.text()
		field := map[string]int{"descr": 0, "fortran_order": 1, "shape": 2}
		i, known := field[string(key)]
		if !ok || !known || seen[i] || !s.next(':') {
			return reject("header: key %.32q", key)
		}
		seen[i] = true
		switch i {
		case 0:
			if ok = h.setType(&s); !ok {
				return reject("header: descr")
			}
			if h.opaque { // the rest is not needed
				return nil
			}
		case 1:
			switch {
			case s.word("True"):
				h.fortran = true
			case !s.word("False"):
				return reject("header: fortran_order")
			}
		case 2:
			if h.shape, ok = s.shape(); !ok {
				return reject("header: shape")
			}
		}
		if !s.next(',') && !s.peek('}') {
			return reject("header: no comma")
		}
	}
	if s.space(); len(s.p) > 0 || seen != [3]bool{true, true, true} {
		return reject("header: keys missing, or text after the dict")
	}
	return nil
}

// setType reads descr, a type's code or a list of fields.
func (h *header) setType(s *scanner) bool {
	if s.peek('[') || s.peek('(') {
		h.opaque = true
		return true
	}
	code, ok := s.text()
	if !ok || len(code) < 3 {
		return false
	}
	order, kind := code[0], code[1]
	digits := code[2:]
	if kind == 'M' || kind == 'm' { // <M8[ns]
		if i := bytes.IndexByte(digits, '['); i > 0 && digits[len(digits)-1] == ']' {
			digits = digits[:i]
		}
	}
	n, err := strconv.ParseUint(string(digits), 10, 24)
	if err != nil || bytes.IndexByte([]byte("<>|="), order) < 0 {
		return false
	}
	h.width = int64(n)
	switch kind {
	case 'U':
		h.width *= 4
	case 'V', 'S', 'M', 'm':
	case 'b', 'i', 'u', 'f', 'c':
		h.dtype = types[string(code[1:])]
		if h.dtype == "" && (kind != 'f' || n != 16 && n != 12) && (kind != 'c' || n != 32 && n != 24) {
			return false
		}
		switch {
		case order == '>' && n > 1:
			h.dtype = ""
		case order == '|' && n > 1:
			return false
		}
	default:
		return false
	}
	return true
}

// scanner eats a Python literal.
type scanner struct{ p []byte }

func (s *scanner) space() { s.p = bytes.TrimLeft(s.p, " \t\r\n") }

func (s *scanner) peek(c byte) bool {
	s.space()
	return len(s.p) > 0 && s.p[0] == c
}

func (s *scanner) next(c byte) bool {
	if !s.peek(c) {
		return false
	}
	s.p = s.p[1:]
	return true
}

func (s *scanner) word(w string) bool {
	s.space()
	if !bytes.HasPrefix(s.p, []byte(w)) {
		return false
	}
	s.p = s.p[len(w):]
	return true
}

// text reads a string without escapes.
func (s *scanner) text() ([]byte, bool) {
	s.space()
	if len(s.p) < 2 || s.p[0] != '\'' && s.p[0] != '"' {
		return nil, false
	}
	n := bytes.IndexByte(s.p[1:], s.p[0])
	if n < 0 {
		return nil, false
	}
	t := s.p[1 : 1+n]
	s.p = s.p[n+2:]
	return t, bytes.IndexByte(t, '\\') < 0
}

// shape reads a tuple of integers; Python 2 wrote some with an L.
func (s *scanner) shape() ([]int64, bool) {
	if !s.next('(') {
		return nil, false
	}
	var out []int64
	for comma := true; !s.next(')'); comma = s.next(',') {
		s.space()
		n := 0
		for n < len(s.p) && s.p[n] >= '0' && s.p[n] <= '9' {
			n++
		}
		v, err := strconv.ParseInt(string(s.p[:n]), 10, 64)
		if err != nil || !comma || len(out) == maxRank {
			return nil, false
		}
		out = append(out, v)
		if s.p = s.p[n:]; len(s.p) > 0 && s.p[0] == 'L' {
			s.p = s.p[1:]
		}
		if len(out) == 1 && s.peek(')') { // (3) is no tuple
			return nil, false
		}
	}
	return out, true
}
