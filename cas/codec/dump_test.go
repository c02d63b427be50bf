package codec

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"

	"ckptfs/cas/golden"
	"ckptfs/cas/rans"
)

// compare compares with the file of that name, and decodes what the file holds.
func (d *dump) compare(t *testing.T, name string, decode func([]byte) ([]byte, error)) {
	got := d.b.String()
	name += ".golden"
	golden.Same(t, name, got)
	file, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decode(undump(t, string(file))); err != nil || !bytes.Equal(back, d.raw) {
		t.Errorf("%v, % x", err, back)
	}
}

// dump prints stored, one slab.
type dump struct {
	b                 strings.Builder
	stored, raw, base []byte
	off               int
}

func (d *dump) field(n int, what string) []byte {
	q := d.stored[d.off : d.off+n]
	for i := 0; i < n; i += 16 {
		line := fmt.Sprintf("%04d  %-47s  %s", d.off+i, fmt.Sprintf("% x", q[i:min(i+16, n)]), what)
		d.b.WriteString(strings.TrimRight(line, " ") + "\n")
		what = ""
	}
	d.off += n
	return q
}

func (d *dump) planes() {
	shape := d.stored[0]
	w := int(shape & 15)
	d.field(1, fmt.Sprintf("elements of %d bytes, rotated: %v", w, shape&rotated != 0))
	d.stream()
	for k := range w {
		d.part(fmt.Sprintf("plane %d", k), len(d.raw)/w)
	}
	d.field(len(d.stored)-d.off, "tail")
}

// delta prints what DecodeDelta decodes.
func (d *dump) delta() {
	w := int(d.stored[1])
	d.field(2, fmt.Sprintf("kind, elements of %d bytes", w))
	shape := groupShape{int(d.stored[2]), int(d.stored[3]), int(d.stored[4])}
	d.field(3, fmt.Sprintf("%d groups, the exponent from bit %d on, at most %d", shape.n, shape.shift, shape.top))
	g := new(planeState).sortBy(shape, d.base, w)
	d.stream()
	for k := range w {
		if d.stored[d.off]&partWhole != 0 {
			d.part(fmt.Sprintf("plane %d, not sorted", k), len(d.raw)/w)
			continue
		}
		for i, n := range g.counts[:g.n] {
			d.part(fmt.Sprintf("plane %d, group %d", k, i), n)
		}
	}
	d.field(len(d.stored)-d.off, "tail")
}

func (d *dump) stream() {
	h := le.Uint32(d.stored[d.off:])
	d.field(4, fmt.Sprintf("stream: %d bytes, %d states", h>>8, h&0xff))
	d.field(4*int(h&0xff), "states")
	d.field(int(h>>8)-4*int(h&0xff), "words")
}

// part prints a part of n bytes, and how many bits a bitmap has set, if it is one that is raw.
func (d *dump) part(what string, n int) (ones int) {
	code := d.stored[d.off]
	d.field(1, fmt.Sprintf("%s: %s", what,
		[]string{"raw", "const", "rans", "sparse", "again", "period"}[code&^partWhole]))
	switch code &^ partWhole {
	case partRaw:
		for _, b := range d.field(n, "") {
			ones += bits.OnesCount8(b)
		}
	case partConst:
		d.field(1, "")
	case partRans:
		var f rans.Freqs
		rest, _ := f.Read(d.stored[d.off:])
		d.field(len(d.stored)-d.off-len(rest), "frequencies")
	case partPeriod:
		d.field(1, "")
		d.part(what+", differences", n)
	case partSparse:
		ones = d.part(what+", bitmap", (n+7)/8)
		d.part(what+", not zero", ones)
	}
	return ones
}

func undump(t testing.TB, s string) []byte {
	var p []byte
	for line := range strings.Lines(s) {
		for _, f := range strings.Fields(line[6:min(len(line), 53)]) {
			var v byte
			if _, err := fmt.Sscanf(f, "%02x", &v); err != nil {
				t.Fatal(err)
			}
			p = append(p, v)
		}
	}
	return p
}
