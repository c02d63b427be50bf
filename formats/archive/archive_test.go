package archive

import (
	"bytes"
	"io"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
	"ckptfs/formats/hdf5"
	"ckptfs/formats/npy"
)

var bound = fixture.Bound{Fixed: 4 << 20, PerByte: 128}

// inner knows arrays only.
func inner(r io.ReaderAt, size int64) (*formats.Layout, error) {
	if l, err := (npy.Parser{}).Parse(r, size); err == nil {
		return l, nil
	}
	return formats.BlobLayout(size), nil
}

func FuzzZip(f *testing.F) { fixture.Fuzz(f, Zip{inner}, "archive/*.zip", bound) }

func FuzzTar(f *testing.F) { fixture.Fuzz(f, Tar{inner}, "archive/*.tar", bound) }

func TestRefusesWhatHoldsNothingKnown(t *testing.T) {
	for name, p := range map[string]formats.Parser{
		"archive/text.zip": Zip{inner}, "archive/nested.tar": Tar{inner},
	} {
		if l := fixture.Check(t, p, fixture.Read(t, name), bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestKeras: all tensors of a .keras are those of its weights; of any other zip it is not known.
func TestKeras(t *testing.T) {
	whole := func(r io.ReaderAt, size int64) (*formats.Layout, error) {
		if l, err := (hdf5.Parser{}).Parse(r, size); err == nil {
			return l, nil
		}
		return formats.BlobLayout(size), nil
	}
	p := fixture.Read(t, "hdf5/model.keras")
	if l := fixture.Check(t, Zip{whole}, p, bound); l == nil || l.Partial || len(l.Tensors) != 4 {
		t.Errorf("%+v", l)
	}
	p = bytes.ReplaceAll(p, []byte("metadata.json"), []byte("metadata.json"[:12]+"x"))
	if l := fixture.Check(t, Zip{whole}, p, bound); l == nil || !l.Partial {
		t.Errorf("with another entry: %+v", l)
	}
}

func TestRefusesDamage(t *testing.T) {
	whole := fixture.Read(t, "archive/files.tar")
	for name, p := range map[string][]byte{
		"cut in an entry": whole[:700],
		"a checksum":      append([]byte{'x'}, whole[1:]...),
		"the same twice":  append(bytes.Clone(whole[:1024]), whole...),
	} {
		if l := fixture.Check(t, Tar{inner}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestSeeks reads the headers of a large archive, not its bytes.
func TestSeeks(t *testing.T) {
	head := bytes.Clone(fixture.Read(t, "archive/files.tar")[:512])
	copy(head[124:], "77777777777\x00") // 8 GiB
	copy(head[148:], "        ")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:], []byte{'0', byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7),
		byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	r := &counting{head: head}
	if _, err := (Tar{inner}).Parse(r, 8<<30+2048); err == nil {
		t.Error("known")
	}
	if r.n > 1<<20 {
		t.Errorf("read %d bytes", r.n)
	}
}

// counting is head and zeros after it.
type counting struct {
	head []byte
	n    int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.n += int64(len(p))
	clear(p)
	if off < int64(len(c.head)) {
		copy(p, c.head[off:])
	}
	return len(p), nil
}
