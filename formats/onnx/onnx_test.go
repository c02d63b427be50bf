package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
	"ckptfs/formats/protowire"
)

var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 100}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "onnx/*.onnx", bound) }

func message(number byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{number<<3 | byte(protowire.Bytes)}, uint64(len(body))), body...)
}

func varint(number byte, v uint64) []byte { return binary.AppendUvarint([]byte{number << 3}, v) }

func tensor(typ uint64, n int, dims ...uint64) []byte {
	var p []byte
	for _, d := range dims {
		p = append(p, varint(1, d)...)
	}
	return message(5, p, varint(2, typ), message(8, []byte("w")), message(9, make([]byte, n)))
}

func whole(graph ...[]byte) []byte {
	return bytes.Join([][]byte{varint(1, 8), message(2, []byte("me")), message(7, graph...),
		message(8, varint(2, 21))}, nil)
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		p       []byte
		tensors int
		partial bool
	}{
		"good":        {whole(tensor(1, 24, 2, 3)), 1, false},
		"a scalar":    {whole(tensor(11, 8)), 1, false},
		"no elements": {whole(tensor(1, 0, 0, 3)), 1, false},
		"packed dims": {whole(message(5, message(1, []byte{2, 3}), varint(2, 1), message(8, []byte("w")),
			message(9, make([]byte, 24)))), 1, false},
		"packed floats": {whole(message(5, varint(1, 2), varint(2, 1), message(8, []byte("w")),
			message(4, make([]byte, 8)))), 1, false},
		"packed integers": {whole(message(5, varint(1, 2), varint(2, 7), message(8, []byte("w")),
			message(7, make([]byte, 2)))), 0, true},
		"4 bits":         {whole(tensor(22, 3, 6)), 0, true},
		"one name twice": {whole(tensor(1, 24, 2, 3), tensor(1, 24, 2, 3)), 1, true},
		"elsewhere": {whole(message(5, varint(1, 2), varint(2, 1), message(13), varint(14, 1))), 0,
			true},
		"in a node": {whole(message(1, message(5, message(5, varint(2, 1)))), tensor(1, 24, 2, 3)), 1,
			true},
	} {
		l := fixture.Check(t, Parser{}, c.p, bound)
		if l == nil || len(l.Tensors) != c.tensors || l.Partial != c.partial {
			t.Errorf("%s: %+v", name, l)
		}
	}
	good := whole(tensor(1, 24, 2, 3))
	for name, p := range map[string][]byte{
		"empty":          nil,
		"cut":            good[:len(good)-1],
		"a byte more":    append(bytes.Clone(good), 0),
		"fewer bytes":    whole(tensor(1, 20, 2, 3)),
		"negative":       whole(tensor(1, 24, 1<<63)),
		"past the graph": whole(tensor(1, 24, 2, 3)[:30]),
		"two graphs":     append(whole(), message(7)...),
		"no graph":       good[:6],
		"ir_version 65":  append(varint(1, 65), good[2:]...),
		"65 dimensions": whole(message(5, bytes.Repeat(varint(1, 1), 65), varint(2, 1),
			message(9, make([]byte, 4)))),
		"an unknown field": append(bytes.Clone(good), message(15)...),
		"a group":          append(bytes.Clone(good), 0x13),
		"a length past 2^63": append(bytes.Clone(good), 0x32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 1),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil && name != "negative" {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestExternal: the file that a model names is laid out by it.
func TestExternal(t *testing.T) {
	model, data := fixture.Read(t, "onnx/external.onnx"), fixture.Read(t, "onnx/external.bin")
	r, n := bytes.NewReader(model), int64(len(model))
	x, err := ReadExternal(r, n)
	if err != nil || !slices.Equal(x.Files(), []string{"external.bin"}) || x.Count("external.bin") != 1 {
		t.Fatalf("%+v, %v", x, err)
	}
	l, err := x.Layout("external.bin", int64(len(data)))
	if err != nil || !l.Partial || l.Check(int64(len(data))) != nil || len(l.Tensors) != 1 ||
		l.Tensors[0].Name != "w" || l.Regions[0].Len != 2400 {
		t.Errorf("%+v, %v", l, err)
	}
	for what, c := range map[string]struct {
		file string
		size int64
	}{"another file": {"other.bin", 2400}, "a shorter file": {"external.bin", 2399}} {
		if l, err := x.Layout(c.file, c.size); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%s: %+v, %v", what, l, err)
		}
	}
}

func FuzzExternal(f *testing.F) {
	f.Add(fixture.Read(f, "onnx/external.onnx"), int64(2400))
	f.Fuzz(func(t *testing.T, model []byte, size int64) {
		size &= 1<<40 - 1
		fixture.Within(t, bound, len(model), func() {
			x, err := ReadExternal(bytes.NewReader(model), int64(len(model)))
			if err == nil {
				for _, file := range x.Files() {
					l, err := x.Layout(file, size)
					if err == nil {
						err = l.Check(size)
					}
					if err != nil && !errors.Is(err, formats.ErrNotFormat) {
						t.Fatal(err)
					}
				}
			}
			if err != nil && !errors.Is(err, formats.ErrNotFormat) {
				t.Fatal(err)
			}
		})
	})
}
