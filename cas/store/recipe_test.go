package store

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/damage"
	"ckptfs/cas/delta"
	"ckptfs/cas/recipe"
	"ckptfs/cas/segment"
)

// computed is the line of tensors that have a piece of each of 1 to 16 others.
const computed = 999

// piece is how many bytes it has of each.
const piece = 300

// recipeBases are the tensors that a version of computed has pieces of. Some are roundings, of low rank, or
// columns, and thus bases of all numbers.
func recipeBases(v int) (ids [][2]int) {
	n := []int{1, 2, 3, 4, 5, 8, 16, 6, 1, 2, 9, 12}[v%12]
	lines := []int{0, 1, halves, 2, adapted}
	for k := range n {
		ids = append(ids, [2]int{lines[(v+k)%len(lines)], (v + k) % 12})
	}
	return ids
}

var computedVersions sync.Map // by number; making one takes as long as its bases take

func computedVersion(v int) []byte {
	if p, ok := computedVersions.Load(v); ok {
		return bytes.Clone(p.([]byte))
	}
	var p []byte
	for k, id := range recipeBases(v) {
		p = append(p, version(id[0], id[1])[13*k:][:piece]...)
	}
	computedVersions.Store(v, bytes.Clone(p))
	return p
}

// recipeOf says how a version of computed is computed.
func recipeOf(v int) *cas.Recipe {
	rel, at := &cas.Recipe{}, 0
	take := recipe.Take{Type: recipe.Bytes1}
	for k, id := range recipeBases(v) {
		base := version(id[0], id[1])
		rel.Bases = append(rel.Bases, cas.Sum(base))
		take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
			Stretches: []recipe.Stretch{{First: at + 13*k, Len: piece}}})
		at += len(base)
	}
	rel.Program = recipe.Program{take}.Append(nil)
	return rel
}

// putBases puts what a version of computed has pieces of, each as it is put otherwise.
func putBases(t testing.TB, b *Batch, v int) {
	t.Helper()
	for _, id := range recipeBases(v) {
		if _, _, err := putVersion(b, id[0], id[1], id[1]-1); err != nil {
			t.Error(err)
		}
	}
}

// aRecipe puts a version of computed, and fails unless it is stored as a recipe.
func aRecipe(t testing.TB, b *Batch, v int) {
	t.Helper()
	if fresh, id, err := putVersion(b, computed, v, v-1); !fresh || id != codec.Recipe || err != nil {
		t.Fatalf("version %d: fresh %v, codec %d, %v", v, fresh, id, err)
	}
}

// What is computed of 1 to 16 others keeps these as long as it stays, and is nothing's base.
func TestRecipe(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 4 << 10})
	for v := range 12 {
		b := s.Begin()
		putBases(t, b, v)
		commit(t, b)
		b = s.Begin()
		aRecipe(t, b, v)
		commit(t, b)
	}
	check := func(s *Store, versions ...int) {
		t.Helper()
		for _, v := range versions {
			h := cas.Sum(version(computed, v))
			got := numberOf(t, s, h)
			if got.Number != segment.RecipeNumber || !slices.Equal(got.Hashes(), recipeOf(v).Bases) {
				t.Errorf("version %d: %+v", v, got)
			}
			loc, _ := s.locateNow(false, h)
			if n := len(s.reader.leads(h, loc)); n > delta.MostLed || n < len(got.Hashes()) {
				t.Errorf("version %d leads back to %d", v, n)
			}
			done := s.Expect([]cas.Hash{h}, false)
			wantGet(t, s, version(computed, v))
			done()
		}
	}
	check(s, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	if len(s.pins.count)+len(s.pins.needs) > 0 {
		t.Errorf("still pinned: %v %v", s.pins.count, s.pins.needs)
	}
	// It is held, and no version of it is a difference from it.
	b := s.Begin()
	if fresh, _, err := putVersion(b, computed, 6, -1); fresh || err != nil {
		t.Error(fresh, err)
	}
	raw := append(version(computed, 6)[1:], 7)
	if _, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, codec.Hint{},
		cas.Sum(version(computed, 6))); delta || err != nil {
		t.Error(delta, err)
	}
	of := &cas.Recipe{Bases: []cas.Hash{cas.Sum(version(computed, 5))},
		Program: recipe.Program{recipe.Run(recipe.Bytes1, 0, 1000)}.Append(nil)}
	raw = version(computed, 5)[:1000]
	if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{},
		cas.Related{Recipe: of}); id == codec.Recipe || err != nil {
		t.Error(id, err)
	}
	commit(t, b)
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{computed, 6}: true, {computed, 3}: true}))
	check(s, 6, 3)
	sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{computed, 3}: true}))
	check(s, 3)
	s.Close()
	y := newIndex()
	s = open(t, m, y, Options{NewIndex: func(error) (Locator, error) {
		y = newIndex()
		return y, nil
	}})
	check(s, 3)
	if err := s.renew(s.indexer.generation(), cas.ErrCorrupt); err != nil {
		t.Fatal(err)
	}
	check(s, 3)
	sweepNow(t, s, SweepOptions{}, marking())
	sweepNow(t, s, SweepOptions{}, marking())
	if len(y.m) > 0 {
		t.Errorf("%d left", len(y.m))
	}
}

// What is no recipe, or does not pay, is stored otherwise.
func TestRecipeChoice(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	defer b.Release()
	putBases(t, b, 6)
	good := recipeOf(6)
	raw := version(computed, 6)
	zeros := make([]byte, 2000)
	put(t, b, cas.Chunk, zeros)
	of := func(program []byte, bases ...cas.Hash) *cas.Recipe {
		return &cas.Recipe{Bases: bases, Program: program}
	}
	for name, c := range map[string]struct {
		raw  []byte
		rel  *cas.Recipe
		want bool
	}{
		"no base":       {raw[:3000], of(good.Program), false},
		"a base twice":  {raw[:3000], of(nil, good.Bases[0], good.Bases[0]), false},
		"17 bases":      {raw[:3001], of(nil, append(good.Bases[:16:16], cas.Sum(zeros))...), false},
		"a zero":        {raw[:3002], of(nil, good.Bases[0], cas.Hash{}), false},
		"not held":      {raw[:3003], of(nil, cas.Sum(raw)), false},
		"another":       {version(2, 11), good, false},
		"no program":    {raw[:3004], of([]byte{1, 99}, good.Bases...), false},
		"little gained": {zeros[:1000], of(nil, cas.Sum(zeros)), false},
		"itself":        {zeros[:1500], of(nil, cas.Sum(zeros[:1500])), false},
		"good":          {raw, good, true},
	} {
		if c.rel.Program == nil {
			c.rel.Program = recipe.Program{recipe.Run(recipe.Bytes1, 0, len(c.raw))}.Append(nil)
		}
		_, id, err := b.PutRelated(cas.Chunk, cas.Sum(c.raw), c.raw, codec.Hint{}, cas.Related{Recipe: c.rel})
		if err != nil || (id == codec.Recipe) != c.want {
			t.Errorf("%s: codec %d, %v", name, id, err)
		}
		wantGet(t, s, c.raw)
	}
}

// TestVersionOfRecipe: nothing is written against what is computed, but a version of it against what that is
// computed of, of the same length, wherever in the line this is.
func TestVersionOfRecipe(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	b := s.Begin()
	const at, line = 2, 1
	for v := range at + 1 {
		if _, _, err := putVersion(b, line, v, v-1); err != nil {
			t.Fatal(err)
		}
	}
	parent := version(line, at)
	short := parent[:len(parent)/2]
	if _, err := b.Put(cas.Chunk, cas.Sum(short), short, codec.Hint{}); err != nil {
		t.Fatal(err)
	}
	swapped := append(bytes.Clone(parent[2:]), parent[:2]...)
	n := len(parent)
	take := recipe.Take{Type: recipe.Bytes1, Groups: []recipe.Group{{Repeat: 1,
		Stretches: []recipe.Stretch{{First: len(short) + 2, Len: n - 2}, {First: len(short), Len: 2}}}}}
	of := &cas.Recipe{Bases: []cas.Hash{cas.Sum(short), cas.Sum(parent)},
		Program: recipe.Program{take}.Append(nil)}
	if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(swapped), swapped, codec.Hint{},
		cas.Related{Recipe: of}); id != codec.Recipe || err != nil {
		t.Fatal(id, err)
	}
	next := bytes.Clone(parent)
	next[7]++
	h := cas.Sum(next)
	if _, _, err := b.PutAgainst(cas.Chunk, h, next, codec.Hint{}, cas.Sum(swapped)); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
	if got, want := numberOf(t, s, h), uint8(at+1); got.Number != want {
		t.Errorf("number %d, want %d", got.Number, want)
	}
	wantGet(t, s, next)
	// What is computed of a chunk is no reason to write this against itself.
	c, err := s.Compact(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	b = s.Begin()
	rel := cas.Related{Prev: cas.Sum(swapped)}
	if _, err := c.Recode(b, cas.Sum(parent), codec.Hint{}, rel, nil); err != nil {
		t.Error(err)
	}
	commit(t, b)
	for _, raw := range [][]byte{parent, swapped, next} {
		wantGet(t, s, raw)
	}
}

// deepBases puts n tensors of which each leads back to three others, all different.
func deepBases(t testing.TB, s *Store, n int) (rel *cas.Recipe, raw []byte) {
	t.Helper()
	rel, take, at := &cas.Recipe{}, recipe.Take{Type: recipe.Bytes1}, 0
	for k := range n {
		b := s.Begin()
		for v := range 8 {
			evolve(t, b, 100+k, v)
		}
		commit(t, b)
		base := version(100+k, 7)
		if got := numberOf(t, s, cas.Sum(base)).Number; got != 7 {
			t.Fatal(got)
		}
		rel.Bases = append(rel.Bases, cas.Sum(base))
		take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
			Stretches: []recipe.Stretch{{First: at, Len: 700}}})
		raw = append(raw, base[:700]...)
		at += len(base)
	}
	rel.Program = recipe.Program{take}.Append(nil)
	return rel, raw
}

// A recipe leads back to 40 others at most, whoever stores it.
func TestRecipeDepth(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{})
	rel, raw := deepBases(t, s, 11)
	for n, want := range map[int]bool{10: true, 11: false} {
		take := recipe.Take{Type: recipe.Bytes1}
		for k := range n {
			take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
				Stretches: []recipe.Stretch{{First: 1024 * k, Len: 700}}})
		}
		part := &cas.Recipe{Bases: rel.Bases[:n], Program: recipe.Program{take}.Append(nil)}
		b := s.Begin()
		_, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw[:700*n]), raw[:700*n], codec.Hint{},
			cas.Related{Recipe: part})
		if err != nil || (id == codec.Recipe) != want {
			t.Errorf("%d bases: codec %d, %v", n, id, err)
		}
		commit(t, b)
		wantGet(t, s, raw[:700*n])
	}
}

// A compaction makes no base of a recipe lead back to more than the recipe may.
func TestRecipeCompactedBases(t *testing.T) {
	for _, n := range []int{9, 16} {
		s := open(t, newMem(), newIndex(), Options{SegmentSize: 8 << 10})
		rel, take := &cas.Recipe{}, recipe.Take{Type: recipe.Bytes1}
		var raw []byte
		var ids [][2]int
		for k := range n {
			for v := range 8 {
				alone(t, s, [2]int{100 + k, v})
				ids = append(ids, [2]int{100 + k, v})
			}
			base := version(100+k, 7)
			rel.Bases = append(rel.Bases, cas.Sum(base))
			take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
				Stretches: []recipe.Stretch{{First: 1024 * k, Len: 700}}})
			raw = append(raw, base[:700]...)
		}
		rel.Program = recipe.Program{take}.Append(nil)
		b := s.Begin()
		if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{},
			cas.Related{Recipe: rel}); id != codec.Recipe || err != nil {
			t.Fatal(id, err)
		}
		commit(t, b)
		for range 3 {
			if _, err := recode(t.Context(), s, ids, stepBefore, nil); err != nil {
				t.Fatal(err)
			}
		}
		loc, _ := s.locateNow(false, cas.Sum(raw))
		led := len(s.reader.leads(cas.Sum(raw), loc))
		t.Logf("%d bases lead back to %d", n, led)
		if led > delta.MostLed || n == 9 && led <= n {
			t.Errorf("%d bases lead back to %d", n, led)
		}
		wantGet(t, s, raw)
	}
}

// What was stored before what it can be computed of becomes a recipe, unless something is written against it.
func TestRecipeCompacted(t *testing.T) {
	s := open(t, newMem(), newIndex(), Options{SegmentSize: 4 << 10})
	raw := version(computed, 6)
	b := s.Begin()
	put(t, b, cas.Chunk, raw)
	more := append(bytes.Clone(raw), "and more, as text has it"...)
	if _, delta, err := b.PutAgainst(cas.Chunk, cas.Sum(more), more, codec.Hint{}, cas.Sum(raw)); !delta ||
		err != nil {
		t.Fatal(delta, err)
	}
	raw5 := version(computed, 5)
	put(t, b, cas.Chunk, raw5)
	putBases(t, b, 6)
	putBases(t, b, 5)
	commit(t, b)
	none := func(int) int { return -1 }
	st, err := recode(t.Context(), s, [][2]int{{computed, 6}, {computed, 5}}, none, nil)
	if err != nil || st.Records != 1 || st.After*2 > st.Before {
		t.Errorf("%+v, %v", st, err)
	}
	if a, b := numberOf(t, s, cas.Sum(raw)).Number, numberOf(t, s, cas.Sum(raw5)).Number; a != 0 ||
		b != segment.RecipeNumber {
		t.Error(a, b)
	}
	wantGet(t, s, raw)
	wantGet(t, s, raw5)
	wantGet(t, s, more)
	for i, wanted := range []func(cas.Hash) bool{
		func(cas.Hash) bool { return true }, func(cas.Hash) bool { return false },
	} {
		st, err := recode(t.Context(), s, [][2]int{{computed, 5}}, none, wanted)
		if err != nil || st.Records != int64(i) {
			t.Errorf("again: %+v, %v", st, err)
		}
	}
	if n := numberOf(t, s, cas.Sum(raw5)).Number; n != 0 {
		t.Errorf("apart from its bases it has number %d", n)
	}
	wantGet(t, s, raw5)
}

// forged stores raw as a record of a payload, whatever that says.
func forged(t testing.TB, s *Store, id byte, raw, payload []byte) cas.Hash {
	t.Helper()
	b := s.Begin()
	h := cas.Sum(raw)
	r, err := b.claim(cas.Chunk, h, true)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	buf := append(make([]byte, segment.RecordHeaderSize), payload...)
	if _, err := s.appender.append(r, &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(len(raw)),
		Hash: h, XXH3: cas.SumXXH3(raw)}, buf); err != nil {
		t.Fatal(err)
	}
	commit(t, b)
	return h
}

// aPayload is that of a recipe of bases.
func aPayload(n int, take recipe.Take, bases ...cas.Hash) []byte {
	p := append(append([]byte{}, bases[0][:]...), segment.RecipeNumber, byte(n))
	for _, h := range bases[1:] {
		p = append(p, h[:]...)
	}
	return append(recipe.Program{take}.Append(p), 0) // there are no literals
}

// Whatever a store says of recipes, a read ends with the bytes or with an error.
func TestRecipeForged(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	putBases(t, b, 6)
	commit(t, b)
	bases := recipeOf(6).Bases
	text := func(i byte) []byte { return bytes.Repeat([]byte{'a', i}, 500) }
	run := recipe.Run(recipe.Bytes1, 0, 1000)
	one, two := cas.Sum(text(1)), cas.Sum(text(2))
	var bad []cas.Hash
	add := func(i byte, id byte, p []byte) { bad = append(bad, forged(t, s, id, text(i), p)) }
	add(1, codec.Recipe, aPayload(1, run, two)) // a circle of two
	add(2, codec.Recipe, aPayload(1, run, one))
	add(3, codec.Recipe, aPayload(1, run, cas.Sum(text(3)))) // of itself
	add(4, codec.Recipe, aPayload(17, run, append(slices.Clone(bases), one)...))
	add(5, codec.Recipe, aPayload(2, run, bases[0], bases[0]))
	add(6, codec.Recipe, aPayload(2, run, bases[0], cas.Hash{}))
	add(7, codec.Recipe, aPayload(0, run, bases[0]))
	add(8, codec.Recipe, aPayload(1, run, cas.Sum([]byte("not there"))))
	add(9, codec.Recipe, aPayload(1, recipe.Run(recipe.Bytes1, 0, 999), bases[0]))
	add(10, codec.Recipe, aPayload(1, run, bases[0])) // of other bytes
	good := forged(t, s, codec.Recipe, version(1, 6)[:1000], aPayload(1, run, cas.Sum(version(1, 6))))
	wantGet(t, s, version(1, 6)[:1000])
	add(11, codec.Recipe, aPayload(1, run, good)) // number 9 of number 9
	against := func(h cas.Hash, number byte) []byte {
		return append(append(append([]byte{}, h[:]...), number), "a difference"...)
	}
	add(12, codec.Delta, against(good, 7)) // a delta of number 9
	add(13, codec.Delta, against(bases[0], 9))
	// The contents of bases are too long, each or together.
	big := func(i byte, n int) cas.Hash {
		raw := bytes.Repeat([]byte{i}, n)
		b := s.Begin()
		put(t, b, cas.Chunk, raw)
		commit(t, b)
		return cas.Sum(raw)
	}
	add(14, codec.Recipe, aPayload(1, run, big(1, segment.MaxBased+1)))
	add(15, codec.Recipe, aPayload(5, run, big(2, segment.MaxBased), big(3, segment.MaxBased),
		big(4, segment.MaxBased), big(5, segment.MaxBased), bases[0]))
	for range 2 {
		for i, h := range bad {
			if got, err := s.Get(h, nil); err == nil || len(got) > 0 ||
				!errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrTooLarge) {
				t.Errorf("%d: %d bytes, %v", i+1, len(got), err)
			}
			s.Expect([]cas.Hash{h}, false)()
			loc, _ := s.locateNow(false, h)
			_, _ = s.Bases(h, loc)
		}
		wantGet(t, s, version(1, 6)[:1000])
		found := map[cas.Hash]bool{}
		if _, err := s.Check(t.Context(), CheckOptions{ReadData: true,
			Found: func(f damage.Finding) { found[f.Hash] = true }}); err != nil {
			t.Fatal(err)
		}
		for i, h := range bad {
			if !found[h] {
				t.Errorf("%d: not found", i+1)
			}
		}
		if found[good] {
			t.Error("the good one is found")
		}
		c, err := s.Compact(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		b := s.Begin()
		for _, h := range append(bad, bases...) {
			if _, err := c.Recode(b, h, fp32, cas.Related{Prev: cas.Sum(version(0, 5)), Recipe: recipeOf(5)},
				nil); err != nil {
				t.Error(err)
			}
		}
		commit(t, b)
		c.End()
		sweepNow(t, s, SweepOptions{}, func(_ context.Context, k *Marking) error {
			for _, h := range append(bad, good) {
				k.Keep(h)
			}
			return nil
		})
		s.Close()
		s = open(t, m, newIndex(), Options{})
	}
}

// A base that rots damages all that is computed of it, which a check tells; what is saved again is whole.
func TestRecipeBaseDamaged(t *testing.T) {
	for _, gone := range []bool{false, true} {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{})
		b := s.Begin()
		putBases(t, b, 6)
		putBases(t, b, 4)
		commit(t, b)
		b = s.Begin()
		aRecipe(t, b, 6)
		aRecipe(t, b, 4)
		commit(t, b)
		s.Close()
		s = open(t, m, x, Options{})
		bases := recipeBases(6)
		id := bases[slices.IndexFunc(bases, func(id [2]int) bool {
			return id[0] == 2 && !slices.Contains(recipeBases(4), id) &&
				numberOf(t, s, cas.Sum(version(2, id[1]))).Number == 0
		})]
		bad := cas.Sum(version(id[0], id[1]))
		if gone {
			x.mu.Lock()
			delete(x.m, bad)
			x.mu.Unlock()
		} else {
			at := x.m[bad]
			patch(t, m, segment.Path(dir, at.Segment), at.Off+segment.RecordHeaderSize+40, 'X', 'X')
		}
		found := map[cas.Hash]damage.Finding{}
		if _, err := s.Check(t.Context(), CheckOptions{ReadData: true,
			Found: func(f damage.Finding) { found[f.Hash] = f }}); err != nil {
			t.Fatal(err)
		}
		six := cas.Sum(version(computed, 6))
		if f := found[six]; f.Problem != damage.BadBase || !strings.Contains(f.String(), bad.Short()) {
			t.Errorf("gone %v: %v", gone, f)
		}
		if _, ok := found[cas.Sum(version(computed, 4))]; ok {
			t.Error("what does not need it is found")
		}
		_, err := s.Get(six, nil)
		wantErr(t, err, cas.ErrCorrupt)
		wantGet(t, s, version(computed, 4))
		b = s.Begin()
		if fresh, id, err := putVersion(b, computed, 6, -1); !fresh || codec.NeedsBase(id) || err != nil {
			t.Error(fresh, id, err)
		}
		commit(t, b)
		wantGet(t, s, version(computed, 6))
	}
}

// For every n: the machine crashes after operation n of saves, compactions and sweeps of recipes. What has a
// name can be read, and all of it put again.
func TestRecipeCrash(t *testing.T) {
	small := Options{SegmentSize: 4 << 10, ReplayBatch: 4}
	ctx := context.Background()
	run := func(s *Store) (named map[[2]int]bool) {
		named = map[[2]int]bool{}
		save := func(related bool, ids ...[2]int) {
			b := s.Begin()
			defer b.Release()
			for _, id := range ids {
				raw := version(id[0], id[1])
				hint, rel := relatedTo(id[0], id[1], id[1]-1)
				if !related {
					rel = cas.Related{}
				}
				if _, _, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, hint, rel); err != nil {
					return
				}
			}
			if b.Commit() == nil {
				for _, id := range ids {
					named[id] = true
				}
			}
		}
		sweep := func(gone ...[2]int) {
			for _, id := range gone {
				delete(named, id)
			}
			_, _ = s.Sweep(ctx, SweepOptions{MaxUnused: 0.4}, keeping(named))
		}
		save(true, recipeBases(4)...)
		save(true, [2]int{computed, 4})
		sweep(recipeBases(4)...)
		save(false, [2]int{computed, 3})
		save(true, append(recipeBases(3), [2]int{computed, 9})...)
		_, _ = recode(ctx, s, append(recipeBases(3), [2]int{computed, 3}), stepBefore, nil)
		sweep(append(recipeBases(3), [2]int{computed, 4})...)
		save(true, [2]int{computed, 4})
		_, _ = recode(ctx, s, [][2]int{{computed, 9}}, func(int) int { return -1 },
			func(cas.Hash) bool { return false })
		sweep()
		return named
	}
	whole := map[[2]int]bool{{computed, 3}: true, {computed, 4}: true, {computed, 9}: true}
	crashAnywhere(t, small, 4, run, whole)
}

// Neighbours decode what they have in common once, and what it was decoded to is of no use to a check.
func TestRecipeKeepsBases(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	base := make([]byte, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(base)
	b := s.Begin()
	put(t, b, cas.Chunk, base)
	var parts [][]byte
	for i := range 4 {
		raw := base[i*10000:][:16000]
		rel := &cas.Recipe{Bases: []cas.Hash{cas.Sum(base)},
			Program: recipe.Program{recipe.Run(recipe.Bytes1, i*10000, 16000)}.Append(nil)}
		if _, id, err := b.PutRelated(cas.Chunk, cas.Sum(raw), raw, codec.Hint{},
			cas.Related{Recipe: rel}); id != codec.Recipe || err != nil {
			t.Fatal(id, err)
		}
		parts = append(parts, raw)
	}
	commit(t, b)
	s.Close()
	s = open(t, m, x, Options{})
	var wg sync.WaitGroup
	for _, raw := range parts {
		wg.Go(func() {
			if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n, _ := s.Reads(); n != 5 {
		t.Errorf("%d records read", n)
	}
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	at := x.m[cas.Sum(base)]
	patch(t, m, segment.Path(dir, at.Segment), at.Off+segment.RecordHeaderSize+40, 'X', 'X')
	bad := 0
	if _, err := s.Check(t.Context(), CheckOptions{ReadData: true,
		Found: func(damage.Finding) { bad++ }}); err != nil || bad != 5 {
		t.Error(bad, err)
	}
	wantGet(t, s, parts[0])
}
