package detect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// stub is a parser that does what a test wants.
type stub func(r io.ReaderAt, size int64) (*formats.Layout, error)

func (stub) Name() string                                               { return "stub" }
func (s stub) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) { return s(r, size) }
func layout(l *formats.Layout) stub {
	return func(io.ReaderAt, int64) (*formats.Layout, error) { return l, nil }
}
func run(p ...formats.Parser) (*formats.Layout, error) {
	return detect(p, strings.NewReader("12345678"), 8)
}
func whole(format string) *formats.Layout {
	return &formats.Layout{Format: format, Regions: []formats.Region{{Off: 0, Len: 8, Kind: formats.Data}}}
}

func TestDetect(t *testing.T) {
	disk := errors.New("disk")
	for _, c := range []struct {
		name    string
		parsers []formats.Parser
		format  string
		err     error
	}{
		{"no parsers", nil, "blob", nil},
		{"the first that knows", []formats.Parser{
			stub(func(io.ReaderAt, int64) (*formats.Layout, error) { return nil, formats.ErrNotFormat }),
			layout(whole("a")), layout(whole("b")),
		}, "a", nil},
		{"a panic", []formats.Parser{
			stub(func(io.ReaderAt, int64) (*formats.Layout, error) { panic("a bug of the parser") }),
			layout(whole("b")),
		}, "b", nil},
		{"a layout that does not hold", []formats.Parser{layout(&formats.Layout{Format: "a"})}, "blob", nil},
		{"a tensor outside", []formats.Parser{layout(&formats.Layout{Format: "a", Regions: whole("").Regions,
			Tensors: []formats.Tensor{{DType: formats.F64, Shape: []int64{2}}}})}, "blob", nil},
		{"an error of the file's", []formats.Parser{
			stub(func(io.ReaderAt, int64) (*formats.Layout, error) { return nil, disk }), layout(whole("b")),
		}, "", disk},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := run(c.parsers...)
			if err != c.err {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err == nil && (l.Format != c.format || l.Check(8) != nil) {
				t.Errorf("layout %+v, want %s", l, c.format)
			}
		})
	}
}

func TestDetectSmall(t *testing.T) {
	for _, s := range []string{"", "x", "PK\x03\x04", "\x02\x00\x00\x00\x00\x00\x00\x00{",
		strings.Repeat("\x00", 100000)} {
		l, err := Detect(strings.NewReader(s), int64(len(s)))
		if err != nil || l.Format != "blob" || l.Check(int64(len(s))) != nil {
			t.Errorf("%.20q: %+v, %v", s, l, err)
		}
	}
}

func TestSniff(t *testing.T) {
	zip := func(name string) string {
		h := make([]byte, 30)
		copy(h, "PK\x03\x04")
		binary.LittleEndian.PutUint16(h[26:], uint16(len(name)))
		return string(h) + name
	}
	header := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for _, c := range []struct {
		prefix string
		size   int64
		want   bool
	}{
		{"", 0, false},
		{"", 1 << 30, false},
		{"hello, world", 12, false},
		{header(2) + "{}", 10, true},
		{header(2) + " {", 10, true},
		{header(2), 10, true}, // no more was read
		{header(2) + "[]", 10, false},
		{header(3) + "{}", 10, false},
		{header(100_000_000) + "{", 200_000_000, true},
		{header(100_000_001) + "{", 200_000_000, false},
		{header(1<<64-1) + "{", 1 << 62, false},
		{zip("archive/data.pkl"), 1000, true},
		{zip("model/data/0"), 1000, true},
		{zip("readme.txt"), 1000, true},
		{zip("archive/data.pkl")[:30], 1000, true}, // the name was not read
		{zip("archive/data.pkl")[:29], 1000, false},
		{"PK\x05\x06", 22, false},
	} {
		if got := Sniff([]byte(c.prefix), c.size); got != c.want {
			t.Errorf("%q of %d: %v", c.prefix, c.size, got)
		}
	}
}

// bound is what a file may take in all parsers together.
var bound = fixture.Bound{Fixed: 16 << 20, PerByte: 2500}

// FuzzDetect runs the parsers as Detect does, but lets their panics through and takes no layout that fails
// Check.
func FuzzDetect(f *testing.F) {
	for _, p := range fixtures(f) {
		if len(p) < 5000 {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		size := int64(len(p))
		known := false
		for _, parser := range top.parsers {
			l, err := parser.Parse(bytes.NewReader(p), size)
			if err != nil {
				if !errors.Is(err, formats.ErrNotFormat) {
					t.Fatalf("%s: %v", parser.Name(), err)
				}
				continue
			}
			// a torch-zip or npz may hold what a zip may hold
			if name := parser.Name(); known && name != "zip" {
				t.Fatalf("%s: another parser knows the file too", name)
			}
			known = true
			if err := l.Check(size); err != nil {
				t.Fatalf("%s: %v", parser.Name(), err)
			}
		}
		if known && !Sniff(p[:min(len(p), SniffLen)], size) {
			t.Fatal("Sniff says no")
		}
		var l *formats.Layout
		var err error
		fixture.Within(t, bound, len(p), func() { l, err = Detect(bytes.NewReader(p), size) })
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for _, r := range l.Regions {
			out = append(out, p[r.Off:r.Off+r.Len]...)
		}
		if !bytes.Equal(out, p) {
			t.Fatal("the regions are not the file")
		}
	})
}
