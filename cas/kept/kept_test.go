package kept_test

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/kept"
	"ckptfs/cas/recipe"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
)

// rig is a store, and what files name of it.
type rig struct {
	t     *testing.T
	s     *store.Store
	named map[cas.Hash][]byte
	rand  *rand.ChaCha8
}

func newRig(t *testing.T) *rig {
	return &rig{t, remotetest.NewStore(t), map[cas.Hash][]byte{}, rand.NewChaCha8([32]byte{1})}
}

func (r *rig) put(raw []byte, rel cas.Related) (h cas.Hash, id byte) {
	r.t.Helper()
	b := r.s.Begin()
	defer b.Release()
	h = cas.Sum(raw)
	_, id, err := b.PutRelated(cas.Chunk, h, raw, codec.Hint{}, rel)
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.named[h] = raw
	return h, id
}

// chunks puts some of random bytes.
func (r *rig) chunks(n, size int) (all []cas.Hash) {
	for range n {
		raw := make([]byte, size)
		_, _ = r.rand.Read(raw)
		h, _ := r.put(raw, cas.Related{})
		all = append(all, h)
	}
	return all
}

// compute puts what has so many bytes of each base.
func (r *rig) compute(n int, bases ...cas.Hash) cas.Hash {
	r.t.Helper()
	take, at := recipe.Take{Type: recipe.Bytes1}, 0
	var raw []byte
	for _, h := range bases {
		p, err := r.s.Get(h, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		from := len(r.named) // a different one each time
		take.Groups = append(take.Groups, recipe.Group{Repeat: 1,
			Stretches: []recipe.Stretch{{First: at + from, Len: n}}})
		raw = append(raw, p[from:][:n]...)
		at += len(p)
	}
	h, id := r.put(raw, cas.Related{Recipe: &cas.Recipe{Bases: bases,
		Program: recipe.Program{take}.Append(nil)}})
	if id != codec.Recipe {
		r.t.Fatalf("codec %d", id)
	}
	return h
}

func (r *rig) remove(hashes ...cas.Hash) {
	for _, h := range hashes {
		delete(r.named, h)
	}
}

func (r *rig) find() (k *kept.Kept, sums kept.Sums) {
	r.t.Helper()
	k, err := kept.Find(r.t.Context(), r.s, nil, func() (func(cas.Hash) bool, error) {
		return func(h cas.Hash) bool { _, ok := r.named[h]; return ok }, nil
	})
	if err == nil {
		sums, err = k.Sums()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return k, sums
}

// What no file names, and is there only for recipes, is told by groups, and whether it pays to store these
// alone.
func TestFind(t *testing.T) {
	r := newRig(t)
	if k, sums := r.find(); !k.Empty() || sums != (kept.Sums{}) {
		t.Errorf("an empty store: %+v", sums)
	}
	a, b := r.chunks(4, 64<<10), r.chunks(3, 64<<10)
	quarter := []cas.Hash{r.compute(8<<10, a[0], a[1]), r.compute(8<<10, a[2], a[3]),
		r.compute(8<<10, a[1], a[2])}
	whole := []cas.Hash{r.compute(60<<10, b[0]), r.compute(60<<10, b[1]), r.compute(60<<10, b[1], b[2])}
	if k, _ := r.find(); !k.Empty() {
		t.Error("files name all of it")
	}
	r.remove(a...)
	k, sums := r.find()
	size := func(n int) int64 { return segment.Size(n) }
	if sums.Held != 4*size(64<<10) || sums.Alone != 3*size(16<<10) || sums.Pays != sums.Alone ||
		sums.Gives <= 0 {
		t.Errorf("%+v", sums)
	}
	for _, h := range quarter {
		if !k.Has(h) || !k.Stays(h) || k.Chosen(h) {
			t.Error("not found")
		}
	}
	for _, h := range append(slices.Clone(whole), a...) {
		if k.Stays(h) {
			t.Error("found")
		}
	}
	// One of a group is named again: the group falls into two, of which one holds less than it takes.
	r.named[a[1]], r.named[a[2]] = nil, nil
	if _, sums := r.find(); sums.Held != 2*size(64<<10) || sums.Alone != 2*size(16<<10) {
		t.Errorf("%+v", sums)
	}
	r.remove(a[1], a[2])
	// What a group takes is no gain where the recipes are as long as what they hold.
	r.remove(b...)
	k, sums = r.find()
	if sums.Held != 7*size(64<<10) || sums.Pays > 5*size(64<<10) {
		t.Errorf("%+v", sums)
	}
	// No more than there is room for is chosen; all of it in the end.
	if some, large, err := k.Choose(1000); some || !large || err != nil {
		t.Error(some, large, err)
	}
	// What was not stored after all is chosen once more.
	if some, _, err := k.Choose(100 << 10); !some || err != nil {
		t.Error(some, err)
	}
	if err := k.Again(); err != nil {
		t.Error(err)
	}
	var chosen []cas.Hash
	for {
		some, large, err := k.Choose(100 << 10)
		if large || err != nil {
			t.Fatal(large, err)
		}
		if !some {
			break
		}
		for h := range r.named {
			if k.Chosen(h) {
				chosen = append(chosen, h)
			}
		}
	}
	if len(chosen) < 3 || len(chosen) > 4 {
		t.Errorf("%d chosen", len(chosen))
	}
	for _, h := range quarter {
		if !slices.Contains(chosen, h) || k.Stays(h) {
			t.Error("not chosen, or not done")
		}
	}
}

// What something else needs, too, is not held for recipes.
func TestNeeded(t *testing.T) {
	r := newRig(t)
	text := bytes.Repeat([]byte("a text that has many lines, of which some change; "), 400)
	_, _ = r.rand.Read(text[:10000])
	base, _ := r.put(text, cas.Related{})
	version := append(bytes.Clone(text), "and one more"...)
	if _, id := r.put(version, cas.Related{Prev: base}); id != codec.Patch {
		t.Fatalf("codec %d", id)
	}
	r.compute(3000, base)
	r.remove(base)
	if k, sums := r.find(); k.Empty() || sums.Held != 0 || sums.Gives != 0 {
		t.Errorf("%+v", sums)
	}
	r.remove(cas.Sum(version))
	if _, sums := r.find(); sums.Held == 0 || sums.Gives <= 0 {
		t.Errorf("%+v", sums)
	}
	// What nobody names is no reason to keep anything.
	r.named = map[cas.Hash][]byte{}
	if k, _ := r.find(); !k.Empty() {
		t.Error("a recipe that no file names")
	}
}

// sweep sweeps what files do not name.
func (r *rig) sweep() error {
	_, err := r.s.Sweep(r.t.Context(), store.SweepOptions{MaxUnused: 0.5},
		func(_ context.Context, m *store.Marking) error {
			for h := range r.named {
				m.Keep(h)
			}
			return nil
		})
	return err
}

// apart is what a prune does: it stores alone what pays, some at a time, and sweeps in between. It returns
// how many were.
func (r *rig) apart() (n int, err error) {
	k, err := kept.Find(r.t.Context(), r.s, nil, func() (func(cas.Hash) bool, error) {
		return func(h cas.Hash) bool { _, ok := r.named[h]; return ok }, nil
	})
	if err != nil {
		return 0, err
	}
	c, err := r.s.Compact(r.t.Context(), false)
	if err != nil {
		return 0, err
	}
	defer c.End()
	for {
		some, _, err := k.Choose(20 << 10)
		if err != nil || !some {
			return n, err
		}
		b := r.s.Begin()
		all := slices.SortedFunc(maps.Keys(r.named),
			func(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) })
		for _, h := range all {
			var ok bool
			if !k.Chosen(h) {
				continue
			}
			if ok, err = c.Recode(b, h, codec.Hint{}, cas.Related{},
				func(was *segment.Base) bool { return was.Number == segment.RecipeNumber }); err != nil {
				break
			}
			if ok {
				n++
			}
		}
		if err == nil {
			err = b.Commit()
		}
		b.Release()
		if err == nil {
			err = c.Retire(r.t.Context())
		}
		if err == nil {
			err = r.sweep()
		}
		if err != nil {
			return n, err
		}
	}
}

// What is chosen and stored apart lets the sweep have what was held for it.
func TestApart(t *testing.T) {
	r := newRig(t)
	a := r.chunks(20, 64<<10)
	for i := range 10 {
		r.compute(4<<10, a[2*i], a[2*i+1])
	}
	r.remove(a...)
	sweep := func() int64 {
		t.Helper()
		if err := r.sweep(); err != nil {
			t.Fatal(err)
		}
		return r.s.Stats().Chunks.Stored
	}
	if n := sweep(); n < 20*64<<10 {
		t.Errorf("%d bytes", n)
	}
	if n, err := r.apart(); err != nil || n != 10 {
		t.Errorf("%d are stored alone, %v", n, err)
	}
	if n := sweep(); n > 10*9<<10 {
		t.Errorf("%d bytes are left", n)
	}
	for h, raw := range r.named {
		if got, err := r.s.Get(h, nil); err != nil || !bytes.Equal(got, raw) {
			t.Error(err)
		}
	}
	if k, _ := r.find(); !k.Empty() {
		t.Error("something is kept")
	}
}
