package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
)

// huffGolden is one chunk with a plane of every kind, as a version before this wrote it.
func huffGolden(t testing.TB) []byte {
	file, err := os.ReadFile("testdata/huff.golden")
	if err != nil {
		t.Fatal(err)
	}
	return undump(t, string(file))
}

// What was written must decode for ever.
func TestGoldenHuff(t *testing.T) {
	raw := everyPart(128)
	got, err := Decode(nil, huffPlanes, huffGolden(t), len(raw))
	if err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%v, % x", err, got)
	}
}

func TestGoldenHuffDelta(t *testing.T) {
	file, err := os.ReadFile("testdata/huffdelta.golden")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := hex.DecodeString(strings.ReplaceAll(string(file), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	base := codectest.Weights(1200, 4)
	raw := step(base, Hint{"F32", 4}, 1e-6)
	got, err := DecodeAgainst(nil, huffDelta, stored, base, len(raw))
	if err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%v, % x", err, got)
	}
	if !NeedsBase(huffDelta) {
		t.Error("the base would be taken away")
	}
}

func TestHuffRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		stored []byte
		rawLen int
	}{
		{"nothing", nil, 0},
		{"width 0", []byte{0}, 0},
		{"width 3", []byte{3, 'a', 'b'}, 2},
		{"width 16", []byte{0x10}, 0},
		{"rotated bytes", []byte{0x11}, 0},
		{"unknown bits", []byte{0x22}, 0},
		{"no slab", []byte{2}, 2},
		{"cut head", []byte{2, 0, 1, 0, 0, 0, 1, 0}, 2},
		{"unknown code", []byte{1, 9, 1, 0, 0, 'a'}, 1},
		{"raw, short", []byte{1, 0, 1, 0, 0, 'a'}, 2},
		{"raw, long", []byte{1, 0, 2, 0, 0, 'a', 'b'}, 1},
		{"plane past the end", []byte{1, 0, 2, 0, 0, 'a'}, 2},
		{"const, empty", []byte{1, 1, 0, 0, 0}, 2},
		{"const, long", []byte{1, 1, 2, 0, 0, 'a', 'b'}, 2},
		{"huff, empty", []byte{1, 2, 0, 0, 0}, 2},
		{"huff, no gain", []byte{1, 2, 2, 0, 0, 'a', 'b'}, 2},
		{"huff, garbage", append([]byte{1, 2, 60, 0, 0}, codectest.Random(60)...), 200},
		{"sparse, empty", []byte{1, 3, 0, 0, 0}, 8},
		{"sparse within sparse", []byte{1, 3, 9, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 1}, 8},
		{"sparse, all zero", []byte{1, 3, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 8},
		{"sparse, bits past the end", []byte{1, 3, 10, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x80, 'a'}, 7},
		{"sparse, too many", []byte{1, 3, 11, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 'a', 'b'}, 8},
		{"sparse, more behind", []byte{1, 3, 11, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 'a', 'b'}, 8},
		{"tail, short", []byte{4, 'a', 'b'}, 3},
		{"tail, long", []byte{4, 'a', 'b', 'c', 'd'}, 3},
	} {
		out, err := Decode([]byte("kept"), huffPlanes, c.stored, c.rawLen)
		if !errors.Is(err, cas.ErrCorrupt) || string(out) != "kept" {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
}
