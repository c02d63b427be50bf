package torchzip

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"ckptfs/formats"
)

// As in package torch.
const (
	untyped  = "UntypedStorage"
	maxName  = 1 << 12
	maxDepth = 400
)

// Zip structures, APPNOTE.TXT 4.3.
const (
	localSig   = "PK\x03\x04"
	endSig     = "PK\x05\x06"
	end64Sig   = "PK\x06\x06"
	locatorSig = "PK\x06\x07"

	localLen   = 30
	centralLen = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20
)

// A zip built by hand, so that every field can lie. The zero value of a field is the truth.

type testRecord struct {
	name string
	data []byte
	zero int64 // zero bytes after data, which take no memory

	method, flags uint16
	localName     string
	localMethod   uint16
	localSizes    *[2]uint32 // without a descriptor
	central       func(h []byte)
	extra         string // of the local header
	skipLocal     bool   // the local header is that of another record
	overlap       int64  // bytes that the next record starts before this one ends
}

type testZip struct {
	records []testRecord
	lead    string // before the first record
	after   string // between the last record and the directory
	trail   string // after the end record
	zip64   bool   // end records as torch writes them
	end     func(end []byte)
	end64   func(end []byte)
	locator func(loc []byte)
}

// sparse is a file of zeros with some parts.
type sparse struct {
	size  int64
	parts []part
}

type part struct {
	off int64
	p   []byte
}

func (s *sparse) add(p []byte) {
	s.parts = append(s.parts, part{s.size, p})
	s.size += int64(len(p))
}

func (s *sparse) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(s.size-off, 0)))
	clear(p[:n])
	for _, x := range s.parts {
		if from := max(off, x.off); from < min(off+int64(n), x.off+int64(len(x.p))) {
			copy(p[from-off:n], x.p[from-x.off:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// bytes is the file as a whole; it must be small.
func (s *sparse) bytes() []byte {
	p := make([]byte, s.size)
	if _, err := s.ReadAt(p, 0); err != nil {
		panic(err)
	}
	return p
}

func (z testZip) build() *sparse {
	le := binary.LittleEndian
	f := &sparse{}
	f.add([]byte(z.lead))
	var dir []byte
	for _, r := range z.records {
		size := int64(len(r.data)) + r.zero
		off := f.size
		big := func(n int64) uint32 { return uint32(min(n, 1<<32-1)) }

		h := make([]byte, localLen)
		copy(h, localSig)
		le.PutUint16(h[6:], 0x0808|r.flags)
		le.PutUint16(h[8:], r.method+r.localMethod)
		if r.localSizes != nil {
			le.PutUint16(h[6:], 0x0800|r.flags)
			le.PutUint32(h[18:], r.localSizes[0])
			le.PutUint32(h[22:], r.localSizes[1])
		}
		name := r.name
		if r.localName != "" {
			name = r.localName
		}
		le.PutUint16(h[26:], uint16(len(name)))
		le.PutUint16(h[28:], uint16(len(r.extra)))
		if !r.skipLocal {
			f.add(append(append(h, name...), r.extra...))
			f.add(r.data)
			f.size += r.zero
			f.add(make([]byte, 16)) // the descriptor, which is not read
			f.size -= r.overlap
		}

		var extra []byte
		if size >= 1<<32-1 {
			extra = le.AppendUint64(le.AppendUint64(extra, uint64(size)), uint64(size))
		}
		if off >= 1<<32-1 {
			extra = le.AppendUint64(extra, uint64(off))
		}
		if len(extra) > 0 {
			extra = append(le.AppendUint16(le.AppendUint16(nil, 1), uint16(len(extra))), extra...)
		}
		c := make([]byte, centralLen)
		copy(c, "PK\x01\x02")
		le.PutUint16(c[8:], 0x0808|r.flags)
		le.PutUint16(c[10:], r.method)
		le.PutUint32(c[20:], big(size))
		le.PutUint32(c[24:], big(size))
		le.PutUint16(c[28:], uint16(len(r.name)))
		le.PutUint16(c[30:], uint16(len(extra)))
		le.PutUint32(c[42:], big(off))
		if r.central != nil {
			r.central(c)
		}
		dir = append(append(append(dir, c...), r.name...), extra...)
	}
	f.add([]byte(z.after))
	start, n := f.size, len(z.records)
	f.add(dir)
	if z.zip64 {
		e := make([]byte, end64Len+locatorLen)
		copy(e, end64Sig)
		le.PutUint64(e[4:], end64Len-12)
		le.PutUint64(e[24:], uint64(n))
		le.PutUint64(e[32:], uint64(n))
		le.PutUint64(e[40:], uint64(len(dir)))
		le.PutUint64(e[48:], uint64(start))
		l := e[end64Len:]
		copy(l, locatorSig)
		le.PutUint64(l[8:], uint64(f.size))
		le.PutUint32(l[16:], 1)
		if z.end64 != nil {
			z.end64(e)
		}
		if z.locator != nil {
			z.locator(l)
		}
		f.add(e)
	}
	e := make([]byte, endLen)
	copy(e, endSig)
	le.PutUint16(e[8:], uint16(min(n, 1<<16-1)))
	le.PutUint16(e[10:], uint16(min(n, 1<<16-1)))
	le.PutUint32(e[12:], uint32(len(dir)))
	le.PutUint32(e[16:], uint32(min(start, 1<<32-1)))
	if z.end != nil {
		z.end(e)
	}
	f.add(e)
	f.add([]byte(z.trail))
	return f
}

func parse(f *sparse) (*formats.Layout, error) { return Parser{}.Parse(f, f.size) }

// The pickler: each function returns opcodes that push one value.

func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}
func integer(n int64) string            { return fmt.Sprintf("I%d\n", n) }
func global(module, name string) string { return "c" + module + "\n" + name + "\n" }
func tuple(values ...string) string     { return "(" + strings.Join(values, "") + "t" }
func reduce(fn, args string) string     { return fn + args + "R" }
func dict(pairs ...string) string       { return "}(" + strings.Join(pairs, "") + "u" }
func file(value string) []byte          { return []byte("\x80\x02" + value + ".") }

func ints(values ...int64) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(integer(v))
	}
	return tuple(b.String())
}

func storageID(class, key string, numel int64) string {
	module := "torch"
	if class == untyped {
		module = "torch.storage"
	}
	return tuple(text("storage"), global(module, class), text(key), text("cpu"), integer(numel)) + "Q"
}

// tensorV2 is a call of _rebuild_tensor_v2.
func tensorV2(storage string, offset int64, size, stride []int64) string {
	return reduce(global("torch._utils", "_rebuild_tensor_v2"),
		tuple(storage, integer(offset), ints(size...), ints(stride...), "\x89", "}"))
}

// checkpoint is a sound file with a pickle and storages of the given sizes.
func checkpoint(value string, sizes ...int64) testZip {
	z := testZip{zip64: true, records: []testRecord{
		{name: "m/data.pkl", data: file(value)},
		{name: "m/byteorder", data: []byte("little")},
	}}
	for i, n := range sizes {
		z.records = append(z.records, testRecord{name: fmt.Sprintf("m/data/%d", i), zero: n})
	}
	z.records = append(z.records, testRecord{name: "m/version", data: []byte("3\n")})
	return z
}

// names lists a layout's tensors.
func names(l *formats.Layout) string {
	var out []string
	for _, x := range l.Tensors {
		s := fmt.Sprintf("%s %s %v", x.Name, x.DType, x.Shape)
		if x.Stride != nil {
			s += fmt.Sprintf(" stride %v", x.Stride)
		}
		if x.Offset != 0 {
			s += fmt.Sprintf(" at %d", x.Offset)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// dataRegions lists the lengths of a layout's data regions.
func dataRegions(l *formats.Layout) (lens []int64) {
	for _, r := range l.Regions {
		if r.Kind == formats.Data {
			lens = append(lens, r.Len)
		}
	}
	return lens
}

// mustParse parses a file that must have a layout that holds.
func mustParse(t *testing.T, z testZip) *formats.Layout {
	t.Helper()
	f := z.build()
	l, err := parse(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(f.size); err != nil {
		t.Fatal(err)
	}
	return l
}
