package gguf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 64}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "gguf/*", bound) }

// build is a file of the pairs and of one tensor.
func build(pairs string, n uint64, name string, typ uint32, offset uint64, data int, dims ...uint64) []byte {
	le := binary.LittleEndian
	p := le.AppendUint64(le.AppendUint64(append([]byte(magic), 3, 0, 0, 0), 1), n)
	p = append(p, pairs...)
	p = append(le.AppendUint64(p, uint64(len(name))), name...)
	p = le.AppendUint32(p, uint32(len(dims)))
	for _, d := range dims {
		p = le.AppendUint64(p, d)
	}
	p = le.AppendUint64(le.AppendUint32(p, typ), offset)
	for len(p)%32 != 0 {
		p = append(p, 0)
	}
	return append(p, make([]byte, data)...)
}

func pair(key string, typ uint32, value ...byte) string {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(key)))
	return string(append(binary.LittleEndian.AppendUint32(append(p, key...), typ), value...))
}

func TestParse(t *testing.T) {
	eight := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	for name, p := range map[string][]byte{
		"good":        build("", 0, "a", 0, 0, 24, 3, 2),
		"data after":  build("", 0, "a", 0, 0, 64, 3, 2),
		"blocks":      build("", 0, "a", 2, 0, 36, 64),
		"no elements": build("", 0, "a", 0, 0, 0, 3, 0),
		"a pair":      build(pair("k", 5, 1, 2, 3, 4), 1, "a", 0, 0, 24, 6),
		"nested pairs": build(pair("k", 9, append([]byte{9, 0, 0, 0},
			append(eight(1), append([]byte{0, 0, 0, 0}, append(eight(2), 1, 2)...)...)...)...), 1, "a", 0, 0,
			24, 6),
	} {
		l := fixture.Check(t, Parser{}, p, bound)
		if l == nil || len(l.Tensors) != 1 || l.Partial {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l := fixture.Check(t, Parser{}, build("", 0, "a", 4, 0, 24, 6), bound); l == nil || !l.Partial ||
		len(l.Tensors) != 0 {
		t.Errorf("a removed type: %+v", l)
	}
	for name, p := range map[string][]byte{
		"empty":            nil,
		"cut":              build("", 0, "a", 0, 0, 24, 3, 2)[:40],
		"past the file":    build("", 0, "a", 0, 0, 23, 3, 2),
		"unaligned":        build("", 0, "a", 0, 8, 64, 3),
		"offset past 2^63": build("", 0, "a", 0, 1<<63, 64, 3),
		"half a block":     build("", 0, "a", 2, 0, 36, 48),
		"overflow":         build("", 0, "a", 0, 0, 24, 1<<40, 1<<40),
		"negative":         build("", 0, "a", 0, 0, 24, 1<<63),
		"5 dimensions":     build("", 0, "a", 0, 0, 24, 1, 1, 1, 1, 1),
		"not UTF-8":        build("", 0, "\xff", 0, 0, 24, 6),
		"many pairs":       build("", 1<<21, "a", 0, 0, 24, 6),
		"pairs missing":    build("", 1000, "a", 0, 0, 24, 6),
		"a value's type":   build(pair("k", 13), 1, "a", 0, 0, 24, 6),
		"a long string":    build(pair("k", 8, eight(1<<62)...), 1, "a", 0, 0, 24, 6),
		"a long array": build(pair("k", 9, append([]byte{0, 0, 0, 0}, eight(1<<62)...)...), 1, "a", 0,
			0, 24, 6),
		"many empty strings": build(pair("k", 9, append([]byte{8, 0, 0, 0}, eight(1<<40)...)...), 1, "a", 0,
			0, 24, 6),
		"no alignment": build(pair(alignmentKey, typeU32, 0, 0, 0, 0), 1, "a", 0, 0, 24, 6),
		"version 1": bytes.Replace(build("", 0, "a", 0, 0, 24, 6), []byte("GGUF\x03"),
			[]byte("GGUF\x01"), 1),
		"big-endian": bytes.Replace(build("", 0, "a", 0, 0, 24, 6), []byte("GGUF\x03\x00\x00\x00"),
			[]byte("GGUF\x00\x00\x00\x03"), 1),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
