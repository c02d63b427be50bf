package manifest

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/formats"
)

// content is a file of the manifest where every byte of object d at offset i is d's first byte plus i.
func content(m *Manifest) []byte {
	var p []byte
	for _, e := range m.Extents {
		for i := range e.Len {
			if e.Object < 0 {
				p = append(p, 0)
			} else {
				p = append(p, m.Objects[e.Object].Digest[0]+byte(e.ObjOff+i))
			}
		}
	}
	return p
}

func TestSpliceIsConcatenation(t *testing.T) {
	sources := []*Manifest{example(), unaligned(), {Format: "blob"}}
	files := make([][]byte, len(sources))
	for i, m := range sources {
		files[i] = content(m)
	}
	rapid.Check(t, func(t *rapid.T) {
		var parts []Part
		var want []byte
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			k := rapid.IntRange(0, len(sources)).Draw(t, "source")
			if k == len(sources) || sources[k].Size == 0 {
				n := rapid.Int64Range(1, 50).Draw(t, "zeros")
				parts, want = append(parts, Part{Len: n}), append(want, make([]byte, n)...)
				continue
			}
			size := sources[k].Size
			off := rapid.Int64Range(0, size-1).Draw(t, "off")
			n := rapid.Int64Range(1, size-off).Draw(t, "len")
			parts, want = append(parts, Part{sources[k], off, n}), append(want, files[k][off:off+n]...)
		}
		m, err := Splice(parts, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(m), want) {
			t.Fatal("other bytes")
		}
		enc, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(enc)
		if err != nil || !reflect.DeepEqual(again.Extents, m.Extents) {
			t.Fatalf("reads back as %v, %v", again, err)
		}
	})
}

func TestSpliceWhole(t *testing.T) {
	want, _ := example().Encode()
	m, err := Splice([]Part{{From: example(), Len: example().Size}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Encode(); !bytes.Equal(got, want) {
		t.Error("the splice of a whole file is another manifest")
	}
	// In two parts it is known only by its bytes, unless the caller tells.
	parts := []Part{{example(), 0, 300_000}, {example(), 300_000, example().Size - 300_000}}
	if m, _ := Splice(parts, nil); m.Format != "blob" || len(m.Tensors) > 0 {
		t.Errorf("format %s", m.Format)
	}
	if m, err := Splice(parts, example().Layout()); err != nil || len(m.Tensors) != 4 {
		t.Errorf("with a layout: %v, %v", m, err)
	}
}

func TestSpliceRefuses(t *testing.T) {
	e := example()
	for name, p := range map[string]Part{
		"empty":         {e, 0, 0},
		"before":        {e, -1, 5},
		"past the end":  {e, 0, e.Size + 1},
		"overflow":      {e, 1 << 62, 1 << 62},
		"zeros with at": {nil, 1, 5},
	} {
		if _, err := Splice([]Part{p}, nil); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Splice([]Part{{Len: 5}}, formats.BlobLayout(6)); err == nil {
		t.Error("a layout of another size was taken")
	}
	if m, err := Splice(nil, nil); err != nil || m.Size != 0 {
		t.Errorf("nothing: %v, %v", m, err)
	}
}
