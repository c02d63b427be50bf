package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func TestGolden(t *testing.T) {
	plan, err := examplePlan().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "plan.hex", annotatePlan(plan))
	if got, err := DecodePlan(plan); err != nil || !reflect.DeepEqual(got, examplePlan()) {
		t.Errorf("%+v, %v", got, err)
	}
	head, err := exampleHead().Encode(ArchiveWriter)
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "head.hex", annotateHead(head))
	if got, err := DecodeHead(ArchiveWriter, head); err != nil || !reflect.DeepEqual(got, exampleHead()) {
		t.Errorf("%+v, %v", got, err)
	}
	table, _, err := EncodeTable(ArchiveWriter, id(0x77), exampleEntries())
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "table.hex", annotateTable(table))
	if got, _, err := DecodeTable(ArchiveWriter, id(0x77), table); err != nil ||
		!reflect.DeepEqual(got, exampleEntries()) {
		t.Errorf("%+v, %v", got, err)
	}
	stamped, err := (&Head{Remote: id(1), Stamp: 9}).Encode(me)
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "head-stamped.hex", annotateHead(stamped))
	goldenCollections(t)
}

// notes reads the formats a second time, by the package comment alone, and writes down what it finds.
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

func (n *notes) title(s string) { fmt.Fprintf(n, "\n%s\n", s) }

func (n *notes) num(what string) int64 {
	v, k := binary.Uvarint(n.p)
	n.note(k, "%s %d", what, v)
	return int64(v)
}

func (n *notes) zz(what string) int64 {
	v, k := binary.Varint(n.p)
	n.note(k, "%s %+d", what, v)
	return v
}

func (n *notes) str(what string) string {
	v, k := binary.Uvarint(n.p)
	return string(n.note(k+int(v), "%s %q", what, n.p[k:k+int(v)])[k:])
}

func (n *notes) fixed(size int, what string) uint64 {
	v := binary.LittleEndian.Uint64(append(append([]byte(nil), n.p[:size]...), make([]byte, 8-size)...))
	n.note(size, "%s %d", what, v)
	return v
}

// opening notes what a head, a trailer, and what collectors note begin with.
func (n *notes) opening() {
	n.note(8, "magic %q", n.p[:8])
	n.fixed(2, "version")
	n.note(6, "0")
}

// places notes places, one after the other.
type places struct {
	*notes
	object, end int64
}

func (n *places) place(what string) {
	v, k := binary.Uvarint(n.p)
	stored := int64(v >> 1)
	n.note(k, "%s: stored %d, goes on %v", what, stored, v&1 != 0)
	if v&1 == 0 {
		far := n.zz("  object")
		off := n.zz("  offset / 8") * 8
		if n.object += far; far == 0 {
			off += n.end
		}
		n.end = off
	}
	fmt.Fprintf(n, "%55sat %d of object %d\n", "", n.end, n.object)
	n.end += (80 + stored + 7) / 8 * 8
}

func (n *places) record(what string) {
	n.place(what)
	n.zz("  raw")
}

func annotatePlan(p []byte) string {
	n := &places{notes: &notes{p: p}}
	n.note(4, "magic")
	n.note(32, "manifest")
	n.num("size")
	for i := range n.num("objects:") {
		n.note(16, "id of object %d", i)
		v, k := binary.Uvarint(n.p)
		n.note(k, "length %d, meta %v", v>>1, v&1 != 0)
	}
	n.record("manifest")
	for i := range n.num("lists:") {
		n.record(fmt.Sprintf("list %d", i))
	}
	for i := range n.num("chunks:") {
		n.place(fmt.Sprintf("chunk %d", i))
	}
	for i := range n.num("bases:") {
		n.note(16, "hash of base %d", i)
		n.record("  record")
		n.note(1, "  number %d, %s", n.p[0]&15, cas.Kind(n.p[0]>>4))
	}
	for i := range n.num("against:") {
		for range n.num(fmt.Sprintf("record %d, stored against:", i+1)) {
			n.zz("  number")
		}
	}
	n.note(len(n.p), "end")
	return n.String()
}

func (n *notes) ref(what string) {
	n.num(what + ": object")
	n.num("  offset / 8")
	n.num("  stored")
}

func (n *notes) parent(what string) {
	if n.str(what) != "" {
		n.str("  manifest")
	}
}

func (n *notes) entry() {
	n.num("path: shared")
	n.str("  rest")
	n.body()
}

func (n *notes) body() {
	b := n.p[0]
	n.note(1, "kind: %s, inline %v, model %v, over %v, metrics %v",
		[...]string{"file", "link", "folder", "tombstone", "tombstone with what it removed"}[b&7], b&8 != 0, b&16 != 0, b&32 != 0, b&64 != 0)
	n.num("origin")
	n.num("version")
	if b&7 < 3 {
		v, k := binary.Uvarint(n.p)
		n.note(k, "mode %#o", v)
		n.zz("mtime")
	}
	switch size := int64(0); b & 7 {
	case 0:
		if size = n.num("size"); b&8 != 0 {
			n.note(int(size), "inline")
			break
		}
		n.note(32, "manifest")
		n.ref("plan")
		for range n.num("deps:") {
			n.num("  between")
		}
		if b&16 != 0 {
			n.num("model: bytes")
			n.parent("  parent")
			n.str("  how")
			for range n.num("  merged from:") {
				n.parent("    path")
			}
			for range n.num("  graph:") {
				n.note(32, "    hash")
				n.ref("    record")
			}
			n.str("  source")
		}
	case 1:
		n.str("target")
	case 2:
		for range n.num("attributes:") {
			n.str("  name")
			n.str("  value")
		}
	case 4:
		n.zz("time")
		n.body()
	}
	if b&64 != 0 {
		for range n.num("metrics:") {
			n.str("  name")
			v := math.Float64frombits(binary.LittleEndian.Uint64(n.p))
			n.note(8, "  value %g", v)
		}
	}
	if b&32 != 0 {
		for range n.num("over:") {
			n.num("  writer")
			n.num("  version")
		}
	}
}

func (n *notes) dictionary() {
	for i := range n.num("dictionary:") {
		n.note(16, "id of object %d", i)
	}
	for range n.num("writers:") {
		n.str("  writer")
	}
}

func annotateHead(p []byte) string {
	n := &notes{p: p}
	n.opening()
	n.note(16, "remote")
	n.note(16, "instance")
	n.note(16, "commit")
	n.fixed(8, "sequence")
	n.fixed(4, "stamp")
	n.fixed(4, "flags")
	n.fixed(8, "clock")
	n.fixed(8, "time")
	for range n.num("runs:") {
		n.str("  run")
	}
	for range n.num("tables:") {
		n.title("table")
		n.note(16, "id")
		n.num("length")
		n.num("directory")
		n.note(32, "hash")
		n.num("entries")
		n.str("first")
		n.str("last")
	}
	n.title("dictionary")
	n.dictionary()
	for len(n.p) > 4 {
		n.title("entry")
		n.entry()
	}
	n.title("end")
	n.note(4, "CRC of all before")
	return n.String()
}

func annotateTable(p []byte) string {
	n := &notes{p: p}
	trailer := len(p) - 64
	directory := int(binary.LittleEndian.Uint64(p[trailer+16:]))
	for n.off < directory {
		n.title("entry")
		n.entry()
	}
	n.title("directory")
	for range n.num("runs:") {
		n.str("  name")
		n.num("    first block")
		n.num("    entries")
		n.num("    bytes")
		n.zz("    newest")
	}
	n.dictionary()
	for range n.num("blocks:") {
		n.str("  first path")
		n.num("    length")
		n.note(16, "    sum")
	}
	n.title("trailer")
	n.opening()
	n.fixed(8, "offset of the directory")
	n.fixed(8, "entries")
	n.note(24, "0")
	n.note(4, "CRC of the directory")
	n.note(4, "CRC of bytes 0 to 59")
	return n.String()
}
