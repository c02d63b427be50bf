package npy

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 64}

func FuzzNpy(f *testing.F) { fixture.Fuzz(f, Parser{}, "numpy/*.npy", bound) }

func FuzzNpz(f *testing.F) { fixture.Fuzz(f, Zip{}, "numpy/*.npz", bound) }

// file is an array of version 1 with this header and n bytes of elements.
func file(header string, n int) []byte {
	p := append([]byte(magic), 1, 0)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(header)))
	return append(append(p, header...), make([]byte, n)...)
}

func dict(descr, fortran, shape string) string {
	return fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, fortran, shape)
}

func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		header string
		n      int
		want   string
	}{
		{dict("'<f4'", "False", "(2, 3)"), 24, "F32 [2 3] []"},
		{dict("'=f4'", "False", "(2, 3,)"), 24, "F32 [2 3] []"},
		{dict("'<f4'", "True", "(2, 3)"), 24, "F32 [2 3] [1 2]"},
		{dict("'<f4'", "True", "(1, 3)"), 12, "F32 [1 3] []"},
		{dict("'<f4'", "False", "()"), 4, "F32 [] []"},
		{dict("'<f4'", "False", "(3L, 1L)"), 12, "F32 [3 1] []"},
		{dict("'<f4'", "False", "(1152921504606846976, 0)"), 0, "F32 [1152921504606846976 0] []"},
		{`{"shape":(2,),"descr":"|u1","fortran_order":False}`, 2, "U8 [2] []"},
		{dict("'>u1'", "False", "(2,)"), 2, "U8 [2] []"},
		{dict("'>f4'", "False", "(2,)"), 8, "partial"},
		{dict("'<M8[ns]'", "False", "(2,)"), 16, "partial"},
		{dict("'|V2'", "False", "(2,)"), 4, "partial"},
		{dict("[('a', '<f4')]", "False", "(2,)"), 8, "partial"},
	} {
		l := fixture.Check(t, Parser{}, file(c.header, c.n), bound)
		switch {
		case l == nil:
			t.Errorf("%s: refused", c.header)
		case c.want == "partial":
			if !l.Partial || len(l.Tensors) > 0 {
				t.Errorf("%s: %+v", c.header, l)
			}
		case len(l.Tensors) != 1 || l.Partial:
			t.Errorf("%s: %+v", c.header, l)
		default:
			x := l.Tensors[0]
			if got := fmt.Sprintf("%s %v %v", x.DType, x.Shape, x.Stride); got != c.want ||
				x.Name != "arr_0" {
				t.Errorf("%s: %s %s, want %s", c.header, x.Name, got, c.want)
			}
		}
	}
}

func TestRejects(t *testing.T) {
	good := dict("'<f4'", "False", "(2,)")
	for name, p := range map[string][]byte{
		"empty":                  nil,
		"cut in the magic":       file(good, 8)[:5],
		"cut in the header":      file(good, 8)[:20],
		"cut in the elements":    file(good, 7),
		"one byte more":          file(good, 9),
		"an object":              file(dict("'|O'", "False", "(2,)"), 16),
		"no such type":           file(dict("'<f5'", "False", "(2,)"), 10),
		"a size past 2^63":       file(dict("'<f4'", "False", "(4294967296, 4294967296)"), 8),
		"a size past the file":   file(dict("'<f4'", "False", "(1152921504606846976,)"), 8),
		"a number past 2^63":     file(dict("'<f4'", "False", "(18446744073709551616,)"), 8),
		"a negative dimension":   file(dict("'<f4'", "False", "(-1,)"), 8),
		"a shape that is none":   file(dict("'<f4'", "False", "(2)"), 8),
		"two commas":             file(dict("'<f4'", "False", "(2,,)"), 8),
		"65 dimensions":          file(dict("'<f4'", "False", "("+strings.Repeat("1, ", 65)+")"), 4),
		"a key twice":            file(good[:len(good)-3]+"'descr': '<f4'}", 8),
		"a key too many":         file(good[:len(good)-3]+"'x': 1}", 8),
		"a key missing":          file("{'descr': '<f4', 'fortran_order': False}", 8),
		"text after":             file(good+"x", 8),
		"an expression":          file(dict("'<f4'", "False", "(1+1,)"), 8),
		"version 4":              append([]byte(magic+"\x04"), file(good, 8)[7:]...),
		"a second array's start": append(file(good, 8), file(good, 8)[:30]...),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func TestHeaderBomb(t *testing.T) {
	p := append([]byte(magic), 3, 0)
	p = binary.LittleEndian.AppendUint32(p, 1<<32-1)
	if l := fixture.Check(t, Parser{}, append(p, make([]byte, 100)...), bound); l != nil {
		t.Errorf("%+v", l)
	}
}
