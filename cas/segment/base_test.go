package segment

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

// What names bases reads back as what it was, and nothing else is taken for it.
func TestBase(t *testing.T) {
	one, two := cas.Sum([]byte("one")), cas.Sum([]byte("two"))
	var many []cas.Hash
	for i := range MaxRecipeBases {
		many = append(many, cas.Sum([]byte{byte(i)}))
	}
	for name, c := range map[string]struct {
		codec byte
		base  Base
		size  int
	}{
		"delta":           {codec.Delta, Base{Hash: one, Number: 7}, BaseSize},
		"text":            {codec.Patch, Base{Hash: one, Number: 1}, BaseSize},
		"of low rank":     {codec.LowRank, Base{Hash: one, Second: two, Number: 1}, LowRankSize},
		"by itself":       {codec.LowRank, Base{Hash: one, Second: one, Number: 7}, LowRankSize},
		"rounded":         {codec.Rounded, Base{Hash: one, Number: RoundedNumber}, BaseSize + 1},
		"rounded, of two": {codec.Rounded, Base{Hash: one, Second: two, Number: RoundedNumber}, 66},
		"recipe": {codec.Recipe, Base{Hash: one, Others: []cas.Hash{}, Number: RecipeNumber},
			BaseSize + 1},
		"recipe, of two": {codec.Recipe, Base{Hash: one, Others: []cas.Hash{two}, Number: RecipeNumber}, 66},
		"recipe, of most": {codec.Recipe, Base{Hash: many[0], Others: many[1:], Number: RecipeNumber},
			MaxBaseSize},
	} {
		p := make([]byte, c.base.Size())
		c.base.Put(p)
		got, err := ParseBase(c.codec, append(p, "what the codec made"...))
		if !reflect.DeepEqual(got, c.base) || err != nil || len(p) != c.size {
			t.Errorf("%s: %+v, %v, %d bytes", name, got, err, len(p))
		}
		want := 1 + len(c.base.Others)
		if !c.base.Second.IsZero() {
			want = 2
		}
		if n := len(c.base.Hashes()); n != want {
			t.Errorf("%s: %d bases", name, n)
		}
		for n := range p {
			if _, err := ParseBase(c.codec, p[:n]); !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%s, cut to %d bytes: %v", name, n, err)
			}
		}
	}
	for name, bases := range map[string][]cas.Hash{
		"none":     {},
		"too many": append(slices.Clone(many), one),
		"twice":    {one, two, one},
		"zero":     {one, {}, two},
	} {
		if _, ok := Recipe(bases); ok {
			t.Errorf("%s: a recipe", name)
		}
		p := append(make([]byte, 0, 1<<10), one[:]...)
		p = append(p, RecipeNumber, byte(len(bases)))
		for i, h := range bases {
			if i == 0 {
				copy(p, h[:])
			} else {
				p = append(p, h[:]...)
			}
		}
		if _, err := ParseBase(codec.Recipe, append(p, "a program"...)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for id, number := range map[byte]byte{codec.Recipe: RoundedNumber, codec.Rounded: RecipeNumber,
		codec.Delta: RecipeNumber, codec.LowRank: RecipeNumber} {
		p := append(append(slices.Clone(one[:]), number, 1), two[:]...)
		if _, err := ParseBase(id, p); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("codec %d of number %d: %v", id, number, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ids := []byte{codec.Delta, codec.Patch, codec.LowRank, codec.Rounded, codec.Recipe}
		id := rapid.SampledFrom(ids).Draw(t, "codec")
		p := rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "p")
		parsed(t, id, p)
	})
}

// parsed holds that what is taken for the name of bases is what Put makes of them.
func parsed(t interface{ Fatalf(string, ...any) }, id byte, p []byte) {
	b, err := ParseBase(id, p)
	if err != nil {
		return
	}
	q := make([]byte, b.Size())
	b.Put(q)
	if string(q) != string(p[:len(q)]) || len(b.Hashes()) == 0 || len(q) > MaxBaseSize ||
		b.Number >= AnyNumber {
		t.Fatalf("% x becomes % x", p, q)
	}
}

func FuzzParseBase(f *testing.F) {
	var many []cas.Hash
	for i := range MaxRecipeBases {
		many = append(many, cas.Sum([]byte{byte(i)}))
		b, _ := Recipe(many)
		p := make([]byte, b.Size())
		b.Put(p)
		f.Add(codec.Recipe, append(p, 1))
	}
	two := Base{Hash: many[0], Second: many[1], Number: RoundedNumber}
	p := make([]byte, two.Size())
	two.Put(p)
	f.Add(codec.Rounded, p)
	two.Number = 3
	two.Put(p)
	f.Add(codec.LowRank, p)
	f.Add(codec.Delta, p[:BaseSize])
	f.Fuzz(func(t *testing.T, id byte, p []byte) {
		if codec.NeedsBase(id) {
			parsed(t, id, p)
		}
	})
}

// A version is stored against one that the version before leads back to, so that none leads back by more than
// three.
func TestNext(t *testing.T) {
	made := map[cas.Hash]Base{}
	of := func(h cas.Hash) (b Base, ok bool) {
		b, ok = made[h]
		return b, ok
	}
	name := func(i int) cas.Hash { return cas.Sum([]byte{byte(i)}) }
	made[name(0)] = Base{}
	for i, want := range []int{1: 0, 2: 0, 3: 2, 4: 0, 5: 4, 6: 4, 7: 6} {
		if i == 0 {
			continue
		}
		next, ok := Next(name(i-1), of)
		if !ok || !reflect.DeepEqual(next, Base{Hash: name(want), Number: uint8(i)}) {
			t.Errorf("version %d: %+v, %v, want against %d", i, next, ok, want)
		}
		made[name(i)] = next
		if key, ok := Key(name(i), of); !ok || key != name(0) {
			t.Errorf("version %d leads back to %s, %v", i, key.Short(), ok)
		}
	}
	if _, ok := Next(name(7), of); ok {
		t.Error("there is an eighth version")
	}
	delete(made, name(4))
	if _, ok := Next(name(5), of); ok {
		t.Error("a base is gone, and is one")
	}
	if _, ok := Key(name(6), of); ok {
		t.Error("a way to the key is gone, and leads there")
	}
	made[name(4)] = Base{Hash: name(5), Number: 5}
	made[name(5)] = Base{Hash: name(4), Number: 5}
	if _, ok := Key(name(5), of); ok {
		t.Error("a circle leads to a key")
	}
	if _, ok := Next(name(5), of); ok {
		t.Error("a circle leads to a base")
	}
}

// What is like another is stored against that one as long as the numbers reach, and else against its base;
// what leads a series, against the key. Nothing leads back by more than three.
func TestAfter(t *testing.T) {
	made := map[cas.Hash]Base{}
	of := func(h cas.Hash) (b Base, ok bool) {
		b, ok = made[h]
		return b, ok
	}
	name := func(i uint8) cas.Hash { return cas.Sum([]byte{i}) }
	made[name(0)] = Base{}
	for i := uint8(1); i <= MaxNumber; i++ {
		made[name(i)] = Base{Hash: name(BaseNumber(i)), Number: i}
	}
	for prev, want := range map[uint8]struct{ base, number uint8 }{
		0: {0, 4}, 1: {0, 4}, 2: {2, 3}, 3: {2, 3}, 4: {4, 6}, 5: {4, 6}, 6: {6, 7}, 7: {6, 7},
	} {
		next, ok := After(&cas.Related{Prev: name(prev), Alike: true}, of)
		if !ok || !reflect.DeepEqual(next, Base{Hash: name(want.base), Number: want.number}) {
			t.Errorf("like %d: %+v, %v", prev, next, ok)
		}
		if BaseNumber(next.Number) != made[next.Hash].Number {
			t.Errorf("like %d: number %d is written against %d", prev, next.Number, made[next.Hash].Number)
		}
		first, ok := After(&cas.Related{Prev: name(prev), Alike: true, Leads: true}, of)
		if !ok || !reflect.DeepEqual(first, Base{Hash: name(0), Number: 1}) {
			t.Errorf("a series after %d: %+v, %v", prev, first, ok)
		}
		version, ok := After(&cas.Related{Prev: name(prev)}, of)
		next, known := Next(name(prev), of)
		if ok != known || !reflect.DeepEqual(version, next) {
			t.Errorf("a version of %d: %+v, %v", prev, version, ok)
		}
	}
	// A compaction had 2 become a 1, against which nothing can be written in its turn.
	made[name(2)] = Base{Hash: name(0), Number: 1}
	if next, ok := After(&cas.Related{Prev: name(3), Alike: true}, of); !ok || next.Number != 4 ||
		next.Hash != name(0) {
		t.Errorf("like a 3 on a 1: %+v, %v", next, ok)
	}
	for number, what := range map[uint8]string{RoundedNumber: "rounded", RecipeNumber: "a recipe"} {
		made[name(50)] = Base{Hash: name(0), Number: number}
		if next, ok := After(&cas.Related{Prev: name(50), Alike: true}, of); ok {
			t.Errorf("against what is %s: %+v", what, next)
		}
	}
	made[name(0)] = Base{Hash: name(1), Number: 3}
	if next, ok := After(&cas.Related{Prev: name(1), Alike: true}, of); ok {
		t.Errorf("in a circle: %+v", next)
	}
	if _, ok := After(&cas.Related{Prev: name(99), Alike: true}, of); ok {
		t.Error("like what is not there")
	}
}
