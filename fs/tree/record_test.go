package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func id(b byte) (id [16]byte) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

var records = []struct {
	what string
	rec  Record
}{
	{"plain, view hidden", Record{ViewHidden: true}},
	{"packed, with a view", Record{Manifest: cas.Sum([]byte("manifest")), Mtime: 0x1122334455667788, Ctime: -2, ViewSize: 0x0102030405}},
	{"packed, view hidden", Record{Manifest: cas.Sum([]byte("manifest")), ViewSize: 1, ViewHidden: true}},
	{"hollow", Record{Manifest: cas.Sum([]byte("manifest")), Mtime: 1, Ctime: 2, Hollow: true}},
	{"hollow, of a remote", Record{Manifest: cas.Sum([]byte("manifest")), Mtime: 1, Ctime: 2, Hollow: true, Remote: true}},
	{"emptying", Record{Emptying: true}},
	{"literal", Record{Literal: true}},
	{"plain, lost", Record{Lost: true}},
	{"hollow, lost", Record{Manifest: cas.Sum([]byte("manifest")), Mtime: 1, Ctime: 2, Hollow: true,
		Lost: true}},
	{"with a checksum", Record{Summed: true, Sum: cas.Sum([]byte("bytes")), Mtime: 0x1122334455667788,
		Ctime: -2, Size: 5, Epoch: 0xa1b2c3d4}},
	{"with a checksum, literal, view hidden", Record{Summed: true, Sum: cas.Sum(nil), Literal: true, ViewHidden: true, Epoch: 1}},
}

// recordFields are the parts that the package comment draws.
var recordFields = []struct {
	off, size int
	name      string
}{
	{0, 1, "version"}, {1, 1, "flags"}, {2, 2, "zero"}, {4, 4, "CRC-32C"}, {8, 8, "modification time"},
	{16, 8, "change time"},
	{24, 32, "manifest"}, {56, 8, "view size"},
}

func TestRecordGolden(t *testing.T) {
	var out strings.Builder
	for _, r := range records {
		fmt.Fprintf(&out, "%s\n", r.what)
		b := r.rec.Encode()
		for _, f := range recordFields {
			for i := 0; i < f.size; i += 16 {
				label := ""
				if i == 0 {
					label = f.name
				}
				line := fmt.Sprintf("%04d  % -47x  %s", f.off+i, b[f.off+i:f.off+min(i+16, f.size)], label)
				fmt.Fprintln(&out, strings.TrimRight(line, " "))
			}
		}
		fmt.Fprintln(&out)
	}
	golden.Same(t, "record.golden", out.String())
}

func TestRecord(t *testing.T) {
	for _, r := range records {
		b := r.rec.Encode()
		got, err := DecodeRecord(b[:])
		if err != nil || got != r.rec {
			t.Errorf("%s: %+v, %v", r.what, got, err)
		}
		if got.Packed() != !r.rec.Manifest.IsZero() {
			t.Errorf("%s: packed %v", r.what, got.Packed())
		}
	}
}

// No damaged record is believed.
func TestRecordBitFlips(t *testing.T) {
	for _, r := range records {
		good := r.rec.Encode()
		for bit := range 8 * RecordSize {
			b := good
			b[bit/8] ^= 1 << (bit % 8)
			got, err := DecodeRecord(b[:])
			if !errors.Is(err, cas.ErrCorrupt) && !(bit < 8 && errors.Is(err, cas.ErrNewer)) {
				t.Errorf("%s, bit %d: %+v, %v", r.what, bit, got, err)
			}
		}
	}
}

// sealed is b with the right checksum.
func sealed(b [RecordSize]byte) []byte {
	binary.LittleEndian.PutUint32(b[4:], recordSum(b[:]))
	return b[:]
}

func TestRecordRefused(t *testing.T) {
	good := records[1].rec.Encode()
	change := func(f func(b *[RecordSize]byte)) []byte {
		b := good
		f(&b)
		return sealed(b)
	}
	for _, c := range []struct {
		what string
		b    []byte
		want error
	}{
		{"nothing", nil, cas.ErrCorrupt},
		{"cut short", good[:RecordSize-1], cas.ErrCorrupt},
		{"longer", append(good[:], 0), cas.ErrCorrupt},
		{"zeros", make([]byte, RecordSize), cas.ErrCorrupt},
		{"version 0", change(func(b *[RecordSize]byte) { b[0] = 0 }), cas.ErrCorrupt},
		{"version 1", change(func(b *[RecordSize]byte) { b[0] = 1 }), cas.ErrCorrupt},
		{"version 3", change(func(b *[RecordSize]byte) { b[0] = 3 }), cas.ErrNewer},
		{"version 3, longer", append([]byte{3}, make([]byte, 200)...), cas.ErrNewer},
		{"packed and no manifest", change(func(b *[RecordSize]byte) { clear(b[24:56]) }), cas.ErrCorrupt},
		{"a manifest and not packed", change(func(b *[RecordSize]byte) { b[1] = 0 }), cas.ErrCorrupt},
		{"lost and emptying", change(func(b *[RecordSize]byte) { clear(b[8:]); b[1] = 136 }), cas.ErrCorrupt},
		{"lost, with a checksum", change(func(b *[RecordSize]byte) { b[1] = 128 | 64 }), cas.ErrCorrupt},
		{"remote and not packed", change(func(b *[RecordSize]byte) { clear(b[8:]); b[1] = 32 | 2 }), cas.ErrCorrupt},
		{"remote, with a checksum", change(func(b *[RecordSize]byte) { b[1] = 64 | 32 }), cas.ErrCorrupt},
		{"emptying and packed", change(func(b *[RecordSize]byte) { b[1] |= 8 }), cas.ErrCorrupt},
		{"literal and packed", change(func(b *[RecordSize]byte) { b[1] |= 16 }), cas.ErrCorrupt},
		{"hollow and not packed", change(func(b *[RecordSize]byte) { clear(b[8:]); b[1] = 4 }), cas.ErrCorrupt},
		{"times and not packed", change(func(b *[RecordSize]byte) { clear(b[24:]); b[1] = 2 }), cas.ErrCorrupt},
		{"plain, which has none", change(func(b *[RecordSize]byte) { clear(b[1:]) }), cas.ErrCorrupt},
		{"bytes that are zero", change(func(b *[RecordSize]byte) { b[3] = 1 }), cas.ErrCorrupt},
		{"a negative view", change(func(b *[RecordSize]byte) { b[63] = 0x80 }), cas.ErrCorrupt},
	} {
		if got, err := DecodeRecord(c.b); !errors.Is(err, c.want) || got != (Record{}) {
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
}

// Whatever is accepted encodes to the same bytes.
func FuzzDecodeRecord(f *testing.F) {
	for _, r := range records {
		b := r.rec.Encode()
		f.Add(b[:])
		b[1] ^= 3
		f.Add(sealed(b))
	}
	f.Add([]byte{3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == RecordSize { // a checksum is not found by guessing
			b = sealed([RecordSize]byte(b))
		}
		r, err := DecodeRecord(b)
		if err != nil {
			if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
				t.Errorf("%x: %v", b, err)
			}
			if r != (Record{}) {
				t.Errorf("%x: %+v beside an error", b, r)
			}
			return
		}
		if again := r.Encode(); !bytes.Equal(again[:], b) {
			t.Errorf("%x\nencodes as\n%x", b, again)
		}
	})
}

// stub makes an empty file in a folder whose filesystem has attributes.
func stub(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stub")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(path, "user.test", []byte("x"), 0); err != nil {
		t.Skipf("the temporary folder's filesystem has no attributes: %v", err)
	}
	return path
}

func TestReadWriteRecord(t *testing.T) {
	path := stub(t)
	if _, err := ReadRecord(path); !errors.Is(err, ErrNoRecord) {
		t.Errorf("without a record: %v", err)
	}
	for _, r := range records {
		if err := WriteRecord(path, &r.rec); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadRecord(path); err != nil || got != r.rec {
			t.Errorf("%s: %+v, %v", r.what, got, err)
		}
	}
	for range 2 { // the second time there is none to take away
		if err := WriteRecord(path, &Record{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecord(path); !errors.Is(err, ErrNoRecord) {
			t.Errorf("that of a plain file: %v", err)
		}
	}
	if err := unix.Setxattr(path, XattrName, make([]byte, 1000), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRecord(path); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a record of 1000 bytes: %v", err)
	}
	if _, err := ReadRecord(path + "x"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := WriteRecord(path+"x", &records[0].rec); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a file that is not there: %v", err)
	}
}
