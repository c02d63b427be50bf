package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

var fp32 = codec.Hint{DType: "F32", Elem: 4}

// halves is the line of tensors in half precision: the rounding of those of lines 0 and 1.
const halves = 3

var bf16 = codec.Hint{DType: "BF16", Elem: 2}

// version is version v of a tensor of 256 elements that is being trained.
func version(line, v int) []byte {
	switch line {
	case adapted:
		return adaptedVersion(v)
	case columned:
		return columnsOf(v)
	case computed:
		return computedVersion(v)
	case halves:
		base := append(version(0, v), version(1, v)...)
		p, err := codec.DecodeAgainst(nil, codec.Rounded, []byte{1}, base, len(base)/2)
		if err != nil {
			panic(err)
		}
		return p
	}
	r := rand.New(rand.NewPCG(uint64(line), 77))
	x := make([]float64, 256)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	for range v {
		for i := range x {
			x[i] *= 1 + 3e-5*r.NormFloat64()
		}
	}
	var p []byte
	for _, f := range x {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(f)))
	}
	return p
}

// evolve puts a version against the one before it.
func evolve(t testing.TB, b *Batch, line, v int) (fresh, delta bool) {
	t.Helper()
	fresh, id, err := putVersion(b, line, v, v-1)
	if err != nil {
		t.Fatal(err)
	}
	return fresh, fresh && codec.NeedsBase(id)
}

// putVersion puts a version against another one, if there is such.
func putVersion(b *Batch, line, v, prev int) (fresh bool, id byte, err error) {
	raw := version(line, v)
	hint, rel := relatedTo(line, v, prev)
	return b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel)
}

func relatedTo(line, v, prev int) (hint codec.Hint, rel cas.Related) {
	if prev >= 0 {
		rel.Prev = cas.Sum(version(line, prev))
	}
	if line == adapted {
		raw := columnsOf(v)
		rel.Prev, rel.Columns = cas.Sum(version(0, v)),
			&cas.Columns{Hash: cas.Sum(raw), Raw: raw, Cols: adaptedCols}
	}
	if line == computed {
		rel.Recipe = recipeOf(v)
		return codec.Hint{}, rel
	}
	if line != halves {
		return fp32, rel
	}
	rel.Masters = [2]cas.Hash{cas.Sum(version(0, v)), cas.Sum(version(1, v))}
	return bf16, rel
}

// numberOf is the number of a record and its base.
func numberOf(t testing.TB, s *Store, h cas.Hash) segment.Base {
	t.Helper()
	loc, err := s.locateNow(false, h)
	if err != nil || loc.Segment == 0 {
		t.Fatal(loc, err)
	}
	b, _, err := s.reader.baseOf(h, loc)
	if err != nil {
		t.Fatal(err)
	}
	if (b.Number > 0) != loc.Delta {
		t.Fatal(b, loc)
	}
	return b
}

func TestDeltaNumbers(t *testing.T) {
	const n = 11
	for _, together := range []bool{true, false} {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 4 << 10})
		b := s.Begin()
		for v := range n {
			fresh, delta := evolve(t, b, 1, v)
			if !fresh || delta != (v%8 != 0) {
				t.Fatalf("version %d: fresh %v, delta %v", v, fresh, delta)
			}
			if !together {
				commit(t, b)
				b = s.Begin()
			}
		}
		commit(t, b)
		check := func(s *Store) {
			t.Helper()
			for v := range n {
				i := uint8(v % 8)
				got := numberOf(t, s, cas.Sum(version(1, v)))
				if got.Number != i || i > 0 && got.Hash != cas.Sum(version(1, v/8*8+int(i&(i-1)))) {
					t.Errorf("version %d has number %d, base %s", v, got.Number, got.Hash.Short())
				}
				wantGet(t, s, version(1, v))
			}
		}
		check(s)
		if len(s.pins.count)+len(s.pins.needs) > 0 {
			t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
		}
		if st := s.Stats(); st.Chunks.Stored > st.Chunks.Raw*7/10 {
			t.Errorf("%+v", st.Chunks)
		}
		b = s.Begin()
		for v := range n {
			if fresh, _ := evolve(t, b, 1, v); fresh {
				t.Errorf("version %d is not held", v)
			}
		}
		commit(t, b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		y := newIndex()
		check(open(t, m, y, Options{}))
		if !maps.Equal(x.m, y.m) {
			t.Error("another index when it is built from the segments")
		}
	}
}

// What does not pay is stored alone, and text against text.
func TestDeltaChoice(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	defer b.Release()
	text := []byte(strings.Repeat("a line of a document that grows; ", 10) + fmt.Sprint(rand.Perm(300)))
	longer := append(bytes.Clone(text), "and one more line"...)
	put(t, b, cas.Manifest, text)
	for name, c := range map[string]struct {
		raw, base []byte
		hint      codec.Hint
		want      bool
	}{
		"unrelated":     {version(1, 0), version(2, 0), fp32, false},
		"other length":  {version(1, 1)[:800], version(1, 0), fp32, false},
		"not held":      {version(1, 2), version(9, 9), fp32, false},
		"text":          {longer, text, codec.Hint{}, true},
		"of itself":     {version(3, 0), version(3, 0), fp32, false},
		"long and like": {tall(5, 1), tall(5, 0), fp32, true},
		"long":          {tall(6, 0), tall(7, 0), fp32, false},
		"too long":      {bytes.Repeat(tall(8, 1), 5), bytes.Repeat(tall(8, 0), 5), fp32, false},
	} {
		if name != "not held" && name != "of itself" {
			put(t, b, cas.Chunk, c.base)
		}
		_, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(c.raw), c.raw, c.hint, cas.Sum(c.base))
		if err != nil || delta != c.want {
			t.Errorf("%s: delta %v, %v", name, delta, err)
		}
		wantGet(t, s, c.raw)
	}
}

// tall is a chunk of 256 KiB.
func tall(line, v int) []byte {
	var p []byte
	for i := range 256 {
		p = append(p, version(1000*line+i, v)...)
	}
	return p
}

// While a batch that has put a delta is open its bases stay, also those of one that was held already.
func TestDeltaPins(t *testing.T) {
	for _, twice := range []bool{false, true} {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 2 << 10})
		b := s.Begin()
		for v := range 8 {
			evolve(t, b, 1, v)
		}
		if twice {
			commit(t, b)
			b = s.Begin()
			if fresh, _ := evolve(t, b, 1, 7); fresh {
				t.Error("not held")
			}
		} else {
			c := s.Begin() // put by another, on its way or not
			evolve(t, c, 1, 7)
			b.Release()
			b = c
		}
		for range 2 {
			sweepNow(t, s, SweepOptions{}, marking())
			wantGet(t, s, version(1, 7))
		}
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 7}: true}))
		b.Release()
		if len(s.pins.count)+len(s.pins.needs) > 0 {
			t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
		}
		wantGet(t, s, version(1, 7))
		sweepNow(t, s, SweepOptions{}, marking())
		if len(x.m) > 0 {
			t.Errorf("%d left", len(x.m))
		}
	}
}

// Expect looks for bases in the background, and Close waits for it.
func TestDeltaExpect(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1 << 10})
	b := s.Begin()
	var hashes []cas.Hash
	for v := range 8 {
		evolve(t, b, 1, v)
		hashes = append(hashes, cas.Sum(version(1, v)))
	}
	commit(t, b)
	for range 20 {
		s.Expect(hashes, false)
		wantGet(t, s, version(1, 7))
	}
	s.Expect(hashes, false)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.Expect(hashes, false)
}

// What a batch released, and another put again while it was on its way to the index, keeps its base.
func TestDeltaTakenOverPins(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	a := s.Begin()
	evolve(t, a, 1, 0)
	commit(t, a)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	a = s.Begin()
	if _, delta := evolve(t, a, 1, 1); !delta {
		t.Fatal("no delta")
	}
	a.Release()
	b := s.Begin()
	if fresh, _ := evolve(t, b, 1, 1); fresh {
		t.Fatal("not on its way")
	}
	for range 2 {
		sweepNow(t, s, SweepOptions{}, marking())
		wantGet(t, s, version(1, 1))
	}
	commit(t, b)
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 1}: true}))
	wantGet(t, s, version(1, 1))
	sweepNow(t, s, SweepOptions{}, marking())
	if len(x.m) > 0 {
		t.Errorf("%d left", len(x.m))
	}
}
