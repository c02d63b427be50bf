package detect

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// thin is a file most of which is one byte over and over. It counts what is read of it.
type thin struct {
	head, tail string
	fill       byte
	size, read int64
}

func (f *thin) ReadAt(p []byte, off int64) (int, error) {
	f.read += int64(len(p))
	for i := range p {
		p[i] = f.fill
	}
	if off < int64(len(f.head)) {
		copy(p, f.head[off:])
	}
	if at := f.size - int64(len(f.tail)); off+int64(len(p)) > at {
		if off >= at {
			copy(p, f.tail[off-at:])
		} else {
			copy(p[at-off:], f.tail)
		}
	}
	return len(p), nil
}

func word(v uint64) string { return string(binary.LittleEndian.AppendUint64(nil, v)) }

// overlapping is a zip of n files that all say that they are the same bytes, which expand to a terabyte each.
func overlapping(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.CreateRaw(&zip.FileHeader{Name: "data.pkl", Method: zip.Deflate, CompressedSize64: 1 << 10,
		UncompressedSize64: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 1<<10))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p := b.Bytes()
	dir := bytes.Index(p, []byte("PK\x01\x02"))
	end := bytes.Index(p, []byte("PK\x06\x06"))
	if end < 0 {
		end = bytes.Index(p, []byte("PK\x05\x06"))
	}
	out := append([]byte{}, p[:dir]...)
	for range n {
		out = append(out, p[dir:end]...)
	}
	tail := []byte("PK\x05\x06\x00\x00\x00\x00")
	tail = binary.LittleEndian.AppendUint16(tail, uint16(n))
	tail = binary.LittleEndian.AppendUint16(tail, uint16(n))
	tail = binary.LittleEndian.AppendUint32(tail, uint32(n*(end-dir)))
	tail = binary.LittleEndian.AppendUint32(tail, uint32(dir))
	return string(append(out, append(tail, 0, 0)...))
}

// TestHostile has a file of each kind that is made to take time or memory. Each has a layout, of which it is
// not asked more than that it is sound, for the memory that is stated and for reading a few times what it
// has.
func TestHostile(t *testing.T) {
	const giga = 1_000_000_000
	if testing.Short() {
		t.Skip("reads some gigabytes of nothing")
	}
	entries := func(s ...string) string {
		h := "{" + strings.Join(s, ",") + "}"
		return word(uint64(len(h))) + h
	}
	var many strings.Builder // a header of 100 MB that is entries throughout
	many.WriteByte('{')
	for i := 0; many.Len() < 100_000_000-64; i++ {
		fmt.Fprintf(&many, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	full := many.String() + `"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`
	for _, c := range []struct {
		name string
		f    thin
		most fixture.Bound
	}{
		{"a header of 100 MB of spaces", thin{head: word(100_000_000), fill: ' ', size: 100_000_008},
			fixture.Bound{Fixed: 128 << 20}},
		{"a header of 100 MB of entries", thin{head: word(uint64(len(full))) + full,
			size: int64(8 + len(full))}, fixture.Bound{Fixed: 1 << 30}},
		{"a header longer than the file", thin{head: word(99_999_999), fill: ' ', size: 1000},
			fixture.Bound{Fixed: 4 << 20}},
		{"tensors that overlap", thin{head: entries(`"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}`,
			`"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}`), size: 200},
			fixture.Bound{Fixed: 4 << 20}},
		{"offsets past 2^64",
			thin{head: entries(`"a":{"dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,` +
				`18446744073709551616]}`), size: 200}, fixture.Bound{Fixed: 4 << 20}},
		{"a shape past 2^64",
			thin{head: entries(`"a":{"dtype":"F64","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}`),
				size: 120}, fixture.Bound{Fixed: 4 << 20}},
		{"data outside", thin{head: entries(`"a":{"dtype":"U8","shape":[800],"data_offsets":[0,800]}`),
			size: 200}, fixture.Bound{Fixed: 4 << 20}},
		{"a billion memo puts", thin{head: "\x80\x04N", fill: 0x94, tail: ".", size: giga},
			fixture.Bound{Fixed: 64 << 20}},
		{"a billion lists", thin{head: "\x80\x04N", fill: ']', tail: ".", size: giga / 10},
			fixture.Bound{Fixed: 64 << 20}},
		{"a billion marks of torch's old format",
			thin{head: "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", fill: '(',
				size: giga / 10}, fixture.Bound{Fixed: 256 << 20}},
		{"a zip bomb of files that overlap", thin{head: overlapping(t, 60000),
			size: int64(len(overlapping(t, 60000)))}, fixture.Bound{Fixed: 128 << 20}},
		{"a terabyte of zeros", thin{size: 1 << 40}, fixture.Bound{Fixed: 64 << 20}},
		{"a terabyte of text", thin{head: `{"learner":`, fill: ' ', size: 1 << 40},
			fixture.Bound{Fixed: 64 << 20}},
		{"a terabyte of frames' numbers", thin{head: "\x28\xb5\x2f\xfd", fill: 0x28, size: 1 << 40},
			fixture.Bound{Fixed: 64 << 20}},
	} {
		var l *formats.Layout
		var err error
		fixture.Within(t, c.most, 0, func() { l, err = Detect(&c.f, c.f.size) })
		if err != nil || l.Check(c.f.size) != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.f.read > min(16*c.f.size+1<<20, 4<<30) {
			t.Errorf("%s: %d bytes read of %d", c.name, c.f.read, c.f.size)
		}
		if len(l.Regions) != 1 || len(l.Tensors) > 0 {
			t.Errorf("%s: %s of %d regions", c.name, l.Format, len(l.Regions))
		}
	}
}
