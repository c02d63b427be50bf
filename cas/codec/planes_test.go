package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codectest"
	"ckptfs/cas/rans"
)

// hints are one for each shape, and some that say nothing of use.
var hints = []Hint{
	{}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"C64", 8}, {"C128", 16}, {"F8_E4M3", 1},
	{"I8", 1}, {"U8", 1},
	{"I16", 2}, {"I32", 4}, {"I64", 8}, {"", 4}, {"BOOL", 1}, {"F4", 0}, {"X", 3}, {"F32", -1},
}

func doubles(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	var p []byte
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(r.NormFloat64()*0.02))
	}
	return p[:n]
}

// adam is a second moment, half of it never touched, here and there.
func adam(n int) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	p := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		if g := r.NormFloat64() * 1e-4; r.IntN(2) == 0 {
			binary.LittleEndian.PutUint32(p[i:], math.Float32bits(float32(g*g)))
		}
	}
	return p
}

// rows are a moment of an embedding of 384 numbers, of which one row in four was touched.
func rows(n int) []byte {
	p := codectest.Weights(n, 4)
	for i := range p {
		if i/(4*384)%4 != 0 {
			p[i] = 0
		}
	}
	return p
}

// ids are tokens of a vocabulary of 30000, the rare ones rarer.
func ids(n int) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	var p []byte
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, uint64(r.ExpFloat64()*3000)%30000)
	}
	return p[:n]
}

// ramp is a table that says the same in every row.
func ramp(n int) []byte {
	var p []byte
	for i := 0; len(p) < n; i++ {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(math.Sin(float64(i%64)))))
	}
	return p[:n]
}

func TestWhatIsTakenForNumbers(t *testing.T) {
	const n = cas.ChunkSize
	f32 := Hint{"F32", 4}
	for _, c := range []struct {
		name   string
		raw    []byte
		hint   Hint
		id     byte
		lo, hi float64 // %
	}{
		{"fp32", codectest.Weights(n, 4), f32, Planes, 78, 88},
		{"bf16", codectest.Weights(n, 2), Hint{"BF16", 2}, Planes, 60, 74},
		{"fp64", doubles(n), Hint{"F64", 8}, Planes, 85, 95},
		{"complex", codectest.Weights(n, 4), Hint{"C64", 8}, Planes, 78, 88},
		{"adam", adam(n), f32, Planes, 40, 55},
		{"rows", rows(n), f32, Planes, 18, 22},
		{"middles", middles(n), f32, Planes, 9, 10},
		{"token ids", ids(n), Hint{"I64", 8}, Planes, 10, 30},
		{"bf16 as fp32", widened(n), f32, Planes, 30, 37},
		{"zeros", make([]byte, n), f32, Planes, 0, 0.1},
		{"random", codectest.Random(n), f32, Raw, 100, 100},
		{"random bytes", codectest.Random(n), Hint{"U8", 1}, Raw, 100, 100},
		{"the same rows", ramp(n), f32, Zstd, 0, 5},
		{"text", inputs()["text"], Hint{"U8", 1}, Zstd, 0, 5},
		{"fp32 as bytes", codectest.Weights(n, 4), Hint{"F8_E4M3", 1}, Planes, 90, 96},
		{"less than a table", codectest.Weights(100, 4), f32, Raw, 100, 100},
	} {
		id, stored := Encode(nil, c.raw, c.hint)
		size := 100 * float64(len(stored)) / float64(len(c.raw))
		if id != c.id || size < c.lo || size > c.hi {
			t.Errorf("%s: codec %d, %.1f %%; want codec %d, %v to %v %%", c.name, id, size, c.id, c.lo, c.hi)
		}
		if got, err := Decode(nil, id, stored, len(c.raw)); err != nil || !bytes.Equal(got, c.raw) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// widened is bf16 stored as fp32.
func widened(n int) []byte {
	p := codectest.Weights(n, 4)
	for i := 0; i+4 <= n; i += 4 {
		p[i], p[i+1] = 0, 0
	}
	return p
}

// What is cut short at every length: slabs of few elements, tails, more than one slab.
func TestPlanesLengths(t *testing.T) {
	all := codectest.Weights(2*slabBytes+1000, 4)
	var lengths []int
	for n := range 300 {
		lengths = append(lengths, n)
	}
	for n := -9; n <= 9; n++ {
		lengths = append(lengths, slabBytes/2+n, slabBytes+n, 2*slabBytes+n)
	}
	for _, h := range hints {
		for _, n := range lengths {
			stored := encodePlanes(nil, all[:n], h)
			got, err := Decode(nil, Planes, stored, n)
			if err != nil || !bytes.Equal(got, all[:n]) {
				t.Fatalf("%v, %d bytes: %v", h, n, err)
			}
		}
	}
}

// chunk draws bytes such as chunks have, and such as they do not.
func chunk(t *rapid.T) []byte {
	n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 3*slabBytes)).Draw(t, "length")
	var p []byte
	for len(p) < n {
		k := rapid.IntRange(1, n).Draw(t, "part")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			p = append(p, codectest.Random(k)...)
		case 1:
			p = append(p, codectest.Weights(k, 4)...)
		case 2:
			p = append(p, adam(k)...)
		case 3:
			p = append(p, rows(k)...)
		case 4:
			p = append(p, bytes.Repeat([]byte{rapid.Byte().Draw(t, "value")}, k)...)
		case 5:
			p = append(p, rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "bytes")...)
		case 6:
			p = append(p, middles(k)...)
		}
	}
	return p[:n]
}

func TestAnyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := chunk(t)
		h := rapid.OneOf(rapid.SampledFrom(hints), rapid.Custom(func(t *rapid.T) Hint {
			return Hint{rapid.String().Draw(t, "dtype"), rapid.IntRange(-1, 17).Draw(t, "elem")}
		})).Draw(t, "hint")
		pre := []byte("kept")
		id, stored := Encode(bytes.Clone(pre), raw, h)
		got, err := Decode(bytes.Clone(pre), id, stored[len(pre):], len(raw))
		if err != nil || !bytes.Equal(got[len(pre):], raw) || !bytes.HasPrefix(got, pre) ||
			!bytes.HasPrefix(stored, pre) {
			t.Fatalf("codec %d: %v", id, err)
		}
		stored = encodePlanes(nil, raw, h) // whether it pays or not
		if got, err = Decode(nil, Planes, stored, len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("planes: %v", err)
		}
	})
}

// Damage is noticed or changes values; it never reaches past the bytes that were asked for.
func TestDamagedPlanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := chunk(t)
		stored := encodePlanes(nil, raw, rapid.SampledFrom(hints).Draw(t, "hint"))
		for range rapid.IntRange(0, 5).Draw(t, "flips") {
			at := rapid.OneOf(rapid.IntRange(0, len(stored)-1),
				rapid.IntRange(0, min(len(stored), 200)-1)).Draw(t, "at")
			stored[at] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		}
		stored = stored[:rapid.OneOf(rapid.Just(len(stored)), rapid.IntRange(0, len(stored))).Draw(t, "cut")]
		n := max(0, rapid.OneOf(rapid.Just(len(raw)), rapid.IntRange(0, len(raw)+20)).Draw(t, "rawLen"))
		const guard = 64
		buf := bytes.Repeat([]byte{0xee}, n+2*guard)
		out, err := Decode(buf[guard:guard], Planes, stored, n)
		if err == nil && len(out) != n || err != nil && len(out) != 0 ||
			err != nil && !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		want := bytes.Repeat([]byte{0xee}, guard)
		if !bytes.Equal(buf[:guard], want) || !bytes.Equal(buf[guard+n:], want) {
			t.Fatal("something else was written to")
		}
	})
}

func TestPlanesRefuse(t *testing.T) {
	sparse := append(make([]byte, 90), codectest.Random(38)...) // 128 bytes, one plane
	good := encodePlanes(nil, sparse, Hint{})
	if good[5] != partSparse {
		t.Fatalf("% x", good)
	}
	coded := encodePlanes(nil, codectest.Skewed(5000, 1), Hint{"U8", 1})
	if coded[1] != rans.LeastLanes {
		t.Fatalf("% x", coded)
	}
	none := []byte{0, 0, 0, 0} // no stream
	head := func(w byte, parts ...byte) []byte { return append(append([]byte{w}, none...), parts...) }
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
		{"cut head", []byte{2, 0, 0, 0}, 2},
		{"no part", head(1), 1},
		{"unknown code", head(1, 9, 'a'), 1},
		{"a whole part, nothing being sorted", head(1, partWhole|partRaw, 'a'), 1},
		{"raw, short", head(1, partRaw, 'a'), 2},
		{"raw, long", head(1, partRaw, 'a', 'b'), 1},
		{"const, empty", head(1, partConst), 2},
		{"const, long", head(1, partConst, 'a', 'b'), 2},
		{"rans, no stream", head(1, partRans, 0, 0, 0, 0), 2},
		{"states, no stream", []byte{1, 16, 0, 0, 0, partRaw, 'a'}, 1},
		{"a stream, no states", append([]byte{1, 0, 64, 0, 0}, make([]byte, 64)...), 1},
		{"7 states", append([]byte{1, 7, 28, 0, 0}, make([]byte, 28)...), 1},
		{"a state of zero", append([]byte{1, 16, 64, 0, 0}, make([]byte, 66)...), 1},
		{"a stream past the end", []byte{1, 16, 64, 0, 0, 1, 2}, 1},
		{"a stream of another length", coded, 4999},
		{"sparse, empty", head(1, partSparse), 8},
		{"sparse within sparse", head(1, partSparse, partSparse, partRaw, 1, partRaw, 1, partRaw, 'a'), 8},
		{"sparse, bits past the end", head(1, partSparse, partRaw, 0x80, partRaw, 'a'), 7},
		{"again, nothing before", head(2, partAgain, partRaw, 'a', 'b'), 4},
		{"again within sparse", head(1, partSparse, partAgain, partRaw, 1, partRaw, 'a'), 8},
		{"again, too few", head(2, partSparse, partRaw, 3, partRaw, 'a', 'b', partAgain, partRaw, 'c'), 16},
		{"again, too many", head(2, partSparse, partRaw, 1, partRaw, 'a', partAgain, partRaw, 'b', 'c'), 16},
		{"again, sparse", head(2, partSparse, partRaw, 1, partRaw, 'a', partAgain, partSparse, partRaw, 1,
			partRaw, 'b'), 16},
		{"sparse, too few", head(1, partSparse, partRaw, 3, partRaw, 'a'), 8},
		{"sparse, too many", head(1, partSparse, partRaw, 1, partRaw, 'a', 'b'), 8},
		{"tail, short", []byte{4, 'a', 'b'}, 3},
		{"tail, long", []byte{4, 'a', 'b', 'c', 'd'}, 3},
		{"of another length", good, len(sparse) - 1},
		{"cut", good[:len(good)-1], len(sparse)},
		{"more behind", append(bytes.Clone(good), 0), len(sparse)},
	} {
		out, err := Decode([]byte("kept"), Planes, c.stored, c.rawLen)
		if !errors.Is(err, cas.ErrCorrupt) || string(out) != "kept" {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
	if _, err := Decode(nil, Planes, good, cas.MaxChunk+1); !errors.Is(err, cas.ErrTooLarge) {
		t.Error(err)
	}
}

// What has zeros in common stores once where they are.
func TestPlanesAgain(t *testing.T) {
	got, err := Decode(nil, Planes, append([]byte{2, 0, 0, 0, 0}, partSparse, partRaw, 0x11, partRaw, 'a',
		'b', partAgain, partRaw, 0, 'd'), 16)
	if want := "a\x00\x00\x00\x00\x00\x00\x00b" + "d\x00\x00\x00\x00\x00\x00"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	raw := adam(cas.ChunkSize)
	codectest.Levels(func(how string) {
		stored := encodePlanes(nil, raw, Hint{"F32", 4})
		if got, err := Decode(nil, Planes, stored, len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Error(how, err)
		}
		// Half are zero: a bit each says which. Of the others three planes are random, or nearly.
		if most := len(raw)/32 + len(raw)/2*29/32; len(stored) > most {
			t.Errorf("%s: %d bytes, want %d at most", how, len(stored), most)
		}
	})
}

// everyPart makes n elements of 4 bytes and a tail: planes that are random, constant, skewed and sparse.
func everyPart(n int) []byte {
	raw := make([]byte, 4*n+3)
	r := rand.New(rand.NewPCG(9, 10))
	for i := range n {
		p := raw[4*i:]
		p[0], p[1], p[2] = byte(r.Uint32()), 0x42, byte(100+3*r.NormFloat64())
		if i%16 < 6 {
			p[3] = byte(i)
		}
	}
	copy(raw[4*n:], "end")
	return raw
}

// What the files hold must decode for ever; what is encoded may change with the choice of parts, and the
// files with it.
func TestGoldenPlanes(t *testing.T) {
	raw := everyPart(512)
	stored := encodePlanes(nil, raw, Hint{"I32", 4})
	d := dump{raw: raw, stored: stored}
	d.planes()
	d.compare(t, "planes", func(stored []byte) ([]byte, error) {
		return Decode(nil, Planes, stored, len(raw))
	})
}
