package dry

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/recipe"
	"ckptfs/cas/segment"
)

// TestGone: what came from a file is read from that, and is gone with it; what did not stays.
func TestGone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	file := make([]byte, 200_000)
	for i := range file {
		file[i] = byte(r.Uint32() & 15)
	}
	s := newStore(t, func(n uint32) (io.ReaderAt, error) {
		if n != 7 {
			t.Errorf("file %d is opened", n)
		}
		return bytes.NewReader(file), nil
	})
	b := s.Begin(7, func(off int64, n int) (int64, bool) { return off + 1000, true })
	put := func(raw []byte, rel cas.Related) cas.Hash {
		t.Helper()
		h := cas.Sum(raw)
		if fresh, _, err := b.PutRelated(cas.Chunk, h, raw, codec.Hint{}, rel); !fresh || err != nil {
			t.Errorf("put: %v, %v", fresh, err)
		}
		return h
	}
	in := put(file[3000:103_000], cas.Related{InFile: true, Off: 2000})
	apart := put([]byte("apart"), cas.Related{})
	for _, want := range [][]byte{file[3000:103_000], []byte("apart")} {
		if got, err := s.Get(cas.Sum(want), []byte("x")); err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%d bytes come back, %v", len(got)-1, err)
		}
	}
	held := make([]bool, 3)
	if err := b.PutHeld(cas.Chunk, []cas.Hash{in, {}, apart}, held); err != nil || !held[0] || held[1] ||
		!held[2] {
		t.Errorf("held: %v, %v", held, err)
	}
	took := b.Tally()
	if took.Of[Equal].Raw != 100_005 || took.Of[Alone].Raw != 100_005 || took.Stored() < 40_000 ||
		took.Stored() > 60_000 || len(took.From) != 0 {
		t.Errorf("%+v", took)
	}
	next := bytes.Clone(file[3000:103_000])
	next[5]++
	put(next, cas.Related{Prev: in})
	if took := b.Tally(); took.Of[Delta].Raw != 100_000 || took.Of[Delta].Stored > 10_000 {
		t.Errorf("a version that hardly changed: %+v", took)
	}
	file[5000]++
	if _, err := s.Get(in, nil); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the file has changed: %v", err)
	}
	next[6]++
	put(next, cas.Related{Prev: in})
	if took := b.Tally(); took.Of[Delta].Raw != 100_000 || took.Of[Alone].Raw != 200_005 {
		t.Errorf("a version of what is gone: %+v", took)
	}
}

// newStore is a store that has nothing yet, of files that open opens.
func newStore(t *testing.T, open func(n uint32) (io.ReaderAt, error)) *Store {
	t.Helper()
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	s, err := New(dir, open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestRecipe: what can be computed of what is there takes what a store would store of it.
func TestRecipe(t *testing.T) {
	s := newStore(t, nil)
	b := s.Begin(7, nil)
	put := func(raw []byte, rel cas.Related) (id byte) {
		t.Helper()
		fresh, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}, rel)
		if !fresh || err != nil {
			t.Errorf("put: %v, %v", fresh, err)
		}
		return id
	}
	rel := &cas.Recipe{}
	var raw []byte
	r := rand.NewChaCha8([32]byte{5})
	take := recipe.Take{Type: recipe.Bytes1}
	for i := range segment.MaxRecipeBases + 1 {
		base := make([]byte, 1000)
		_, _ = r.Read(base)
		put(base, cas.Related{})
		rel.Bases = append(rel.Bases, cas.Sum(base))
		take.Groups = append(take.Groups,
			recipe.Group{Repeat: 1, Stretches: []recipe.Stretch{{First: 1000*i + 5, Len: 900}}})
		raw = append(raw, base[5:905]...)
	}
	of := func(n int) (*cas.Recipe, []byte) {
		take := recipe.Take{Type: recipe.Bytes1, Groups: take.Groups[:n]}
		return &cas.Recipe{Bases: rel.Bases[:n], Program: recipe.Program{take}.Append(nil)}, raw[:900*n]
	}
	all, whole := of(segment.MaxRecipeBases)
	if id := put(whole, cas.Related{Recipe: all}); id != codec.Recipe {
		t.Errorf("codec %d", id)
	}
	var at [2]cas.Location
	if err := s.Locate([]cas.Hash{cas.Sum(whole), rel.Bases[0]}, at[:]); err != nil ||
		at[0].Codec != codec.Recipe || at[1].Segment == 0 || at[1].Codec == codec.Recipe {
		t.Errorf("%+v, %v", at, err)
	}
	took := b.Tally().Of[Recipe]
	if took.Raw != int64(len(whole)) || took.Stored > 2000 {
		t.Errorf("%+v", took)
	}
	more, longer := of(segment.MaxRecipeBases + 1)
	if id := put(longer, cas.Related{Recipe: more}); id == codec.Recipe {
		t.Error("of one base more")
	}
	on := &cas.Recipe{Bases: []cas.Hash{cas.Sum(whole)},
		Program: recipe.Program{recipe.Run(recipe.Bytes1, 0, 3000)}.Append(nil)}
	if id := put(whole[:3000], cas.Related{Recipe: on}); id == codec.Recipe {
		t.Error("of a recipe")
	}
}

// TestChooses: what a store says of chunks is said here, too: which of them need others, and what the version
// of a chunk that is computed is stored against.
func TestChooses(t *testing.T) {
	s := newStore(t, nil)
	b := s.Begin(7, nil)
	r := rand.NewChaCha8([32]byte{6})
	random := func(n int) []byte {
		p := make([]byte, n)
		_, _ = r.Read(p)
		return p
	}
	put := func(raw []byte, rel cas.Related) byte {
		t.Helper()
		_, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}, rel)
		if err != nil {
			t.Error(err)
		}
		return id
	}
	codecOf := func(raw []byte) byte {
		t.Helper()
		var at [1]cas.Location
		if err := s.Locate([]cas.Hash{cas.Sum(raw)}, at[:]); err != nil || at[0].Segment == 0 {
			t.Error(at, err)
		}
		return at[0].Codec
	}
	short, key := random(100), random(50_000)
	put(short, cas.Related{})
	put(key, cas.Related{})
	version := bytes.Clone(key)
	version[100]++
	if !codec.NeedsBase(put(version, cas.Related{Prev: cas.Sum(key)})) {
		t.Fatal("a version is stored alone")
	}
	if codec.NeedsBase(codecOf(key)) || !codec.NeedsBase(codecOf(version)) {
		t.Errorf("a key is of codec %d, and its version of %d", codecOf(key), codecOf(version))
	}
	if by := codecOf(version); by == codec.Recipe || by == codec.Rounded {
		t.Errorf("a delta is of codec %d", by)
	}
	// The first base that is as long is not the first.
	made := append(bytes.Clone(short), key[100:]...)
	take := recipe.Take{Type: recipe.Bytes1, Groups: []recipe.Group{{Repeat: 1,
		Stretches: []recipe.Stretch{{First: 0, Len: 100}, {First: 200, Len: len(key) - 100}}}}}
	rel := &cas.Recipe{Bases: []cas.Hash{cas.Sum(short), cas.Sum(key)},
		Program: recipe.Program{take}.Append(nil)}
	if id := put(made, cas.Related{Recipe: rel}); id != codec.Recipe {
		t.Fatalf("codec %d", id)
	}
	for _, alike := range []bool{false, true} {
		to := cas.Related{Prev: cas.Sum(made), Alike: alike}
		if base, ok := s.Against(to); !ok || base != cas.Sum(key) {
			t.Errorf("alike %v: what comes after a recipe is stored against %s, %v", alike, base.Short(), ok)
		}
		next := bytes.Clone(version)
		if next[200]++; alike {
			next[300]++
		}
		if !codec.NeedsBase(put(next, to)) {
			t.Errorf("alike %v: what comes after a recipe is stored alone", alike)
		}
	}
}
