package manifest

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
	"ckptfs/formats"
)

func TestGolden(t *testing.T) {
	spans := []Span{{hash(1), cas.ChunkSize}, {hash(2), cas.ChunkSize}, {hash(3), 75_712}}
	for name, m := range map[string]*Manifest{"manifest": example(), "unaligned": unaligned(),
		"empty": {Format: "blob"}} {
		p, err := m.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden.Same(t, name+".hex", annotate(p))
		got, err := Decode(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: decoded\n%+v, want\n%+v", name, got, m)
		}
	}
	golden.Same(t, "list-grid.hex", annotateList(EncodeList(spans)))
	golden.Same(t, "list-any.hex", annotateList(EncodeList(append([]Span{{hash(9), 70_000}}, spans[:2]...))))
}

// notes reads the format a second time, by the package comment alone, and writes down what it finds.
type notes struct {
	strings.Builder
	p   []byte
	off int
}

func (n *notes) note(size int, format string, args ...any) []byte {
	q := n.p[:size]
	n.p = n.p[size:]
	for i := 0; i == 0 || i < len(q); i += 16 {
		hex := fmt.Sprintf("% x", q[i:min(i+16, len(q))])
		text := ""
		if i == 0 {
			text = fmt.Sprintf(format, args...)
		}
		fmt.Fprintf(n, "%s\n", strings.TrimRight(fmt.Sprintf("%04x  %-47s  %s", n.off+i, hex, text), " "))
	}
	n.off += size
	return q
}

func (n *notes) num(what string) int64 {
	v, k := binary.Uvarint(n.p)
	n.note(k, "%s %d", what, v)
	return int64(v)
}

func (n *notes) zz(what string) {
	v, k := binary.Varint(n.p)
	n.note(k, "%s %+d", what, v)
}

func (n *notes) str(what string) {
	v, k := binary.Uvarint(n.p)
	n.note(k+int(v), "%s %q", what, n.p[k:k+int(v)])
}

func annotate(p []byte) string {
	n := &notes{p: p}
	n.note(4, "magic")
	flags := n.num("flags")
	n.str("format")
	n.num("size")
	for i := range n.num("objects:") {
		n.note(32, "digest of object %d", i)
		v, k := binary.Uvarint(n.p)
		n.note(k, "length %d, list %v", v>>1, v&1 != 0)
	}
	for range n.num("extents:") {
		op := n.p[0]
		n.note(1, "%s, %s", [...]string{"blob", "data", "pad", "same region"}[op&3],
			[...]string{"zeros", "next object", "object, on", "object, anywhere"}[op>>2])
		switch op >> 2 {
		case 0:
			n.num("  length")
		case 2:
			n.num("  object")
			n.num("  length")
		case 3:
			n.num("  object")
			n.num("  offset")
			n.num("  length")
		}
	}
	if flags&1 != 0 {
		for range n.num("regions:") {
			n.num("  length")
			n.note(1, "  kind %s", formats.Kind(n.p[0]))
		}
	}
	if c := n.num("tensors:"); c > 0 {
		for range n.num("types:") {
			n.str("  type")
		}
		for range c {
			n.num("name: shared")
			n.str("  rest")
			v, k := binary.Uvarint(n.p)
			n.note(k, "  type %d, stride mode %d", v>>2, v&3)
			rank := n.num("  dimensions")
			for range rank {
				n.num("    size")
			}
			n.zz("  region")
			n.num("  offset")
			if v&3 == 2 {
				for range rank {
					n.zz("    stride")
				}
			}
		}
	}
	n.note(len(n.p), "end")
	return n.String()
}

func annotateList(p []byte) string {
	n := &notes{p: p}
	n.note(4, "magic")
	if n.note(1, "form %d", n.p[0])[0] == 0 {
		n.num("last")
	} else {
		for range n.num("chunks:") {
			n.num("  length")
		}
	}
	for i := 0; len(n.p) > 0; i++ {
		n.note(32, "hash %d", i)
	}
	return n.String()
}
