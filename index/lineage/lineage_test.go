package lineage

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// own is the shares of a model of one-byte tensors with these owners.
func own(owners ...uint64) []Share {
	return Shares(owners, make([]int64, len(owners)))
}

func add(t testing.TB, f *Forest, seq, parent uint64, owners ...uint64) {
	t.Helper()
	m := Model{Seq: seq, Parent: parent, Owned: own(owners...)}
	if parent != 0 {
		m.How = Previous
	}
	if err := f.Add(m); err != nil {
		t.Fatal(err)
	}
}

func mrca(f *Forest, a, b uint64) uint64 {
	m, _ := f.MRCA(a, b)
	return m.Seq
}

func mrco(f *Forest, a, b uint64) uint64 {
	m, _ := f.MRCO(a, b)
	return m
}

// P's own layer is retrained by both children: parents say P, owners say the grandparent.
func TestOwnerMapsMissAncestor(t *testing.T) {
	f := New()
	add(t, f, 1, 0, 1, 1)
	add(t, f, 2, 1, 1, 2)
	add(t, f, 3, 2, 1, 3)
	add(t, f, 4, 2, 1, 4)
	add(t, f, 5, 2, 5, 5) // fully retrained
	if a, b := mrca(f, 3, 4), mrco(f, 3, 4); a != 2 || b != 1 {
		t.Errorf("MRCA %d, MRCO %d, want 2 and 1", a, b)
	}
	if a := mrca(f, 3, 5); a != 2 {
		t.Errorf("MRCA %d, want 2", a)
	}
	if _, ok := f.MRCO(3, 5); ok {
		t.Error("a fully retrained child shares an owner")
	}
}

func TestAncestors(t *testing.T) {
	f := New()
	add(t, f, 1, 0)
	add(t, f, 2, 1)
	add(t, f, 5, 2)
	add(t, f, 7, 0) // another tree
	add(t, f, 8, 5)
	for _, c := range []struct{ a, b, want uint64 }{{5, 5, 5}, {8, 2, 2}, {2, 8, 2}, {8, 7, 0}, {7, 7, 7},
		{1, 99, 0}, {99, 99, 0}} {
		if got := mrca(f, c.a, c.b); got != c.want {
			t.Errorf("MRCA(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	f.Retire(2, 1)
	if m, ok := f.MRCA(5, 2); !ok || m != (Ancestor{2, 1, Previous, true}) {
		t.Errorf("a retired ancestor: %+v, %v", m, ok)
	}
	for _, c := range []struct {
		depth int
		want  uint64
	}{{0, 1}, {1, 2}, {2, 5}, {3, 8}, {4, 0}, {-1, 0}} {
		if m, ok := f.At(8, c.depth); m.Seq != c.want || ok != (c.want != 0) {
			t.Errorf("depth %d: %+v", c.depth, m)
		}
	}
}

func TestRefused(t *testing.T) {
	f := New()
	add(t, f, 3, 0, 3)
	add(t, f, 5, 3, 3, 5)
	add(t, f, 6, 0, 6)
	for name, c := range map[string]struct {
		m    Model
		want error
	}{
		"number 0":            {Model{}, ErrOrder},
		"number known":        {Model{Seq: 5}, ErrOrder},
		"number before":       {Model{Seq: 4}, ErrOrder},
		"parent unknown":      {Model{Seq: 9, Parent: 4, How: Declared}, ErrParent},
		"itself":              {Model{Seq: 9, Parent: 9, How: Declared}, ErrParent},
		"parent after":        {Model{Seq: 9, Parent: 10, How: Declared}, ErrParent},
		"from nowhere":        {Model{Seq: 9, Parent: 5}, ErrParent},
		"from somewhere":      {Model{Seq: 9, How: Inferred}, ErrParent},
		"merged from unknown": {Model{Seq: 9, MergedFrom: []uint64{4}}, ErrParent},
		"merged from later":   {Model{Seq: 9, MergedFrom: []uint64{10}}, ErrParent},
		"owner not ancestor":  {Model{Seq: 9, Parent: 5, How: Declared, Owned: own(6)}, ErrOwner},
		"owner of a root":     {Model{Seq: 9, Owned: own(3)}, ErrOwner},
		"owner unknown":       {Model{Seq: 9, Parent: 5, How: Declared, Owned: own(4)}, ErrOwner},
		"owner later":         {Model{Seq: 9, Owned: own(10)}, ErrOwner},
		"owners out of order": {Model{Seq: 9, Parent: 5, How: Declared,
			Owned: []Share{{5, 1, 1}, {3, 1, 1}}}, ErrOwner},
		"owner of no tensors":   {Model{Seq: 9, Owned: []Share{{9, 0, 0}}}, ErrOwner},
		"tombstone that owns":   {Model{Seq: 9, RetiredAt: 1, Owned: own(9)}, ErrOwner},
		"owner below the child": {Model{Seq: 9, Parent: 3, How: Declared, Owned: own(5)}, ErrOwner},
	} {
		if err := f.Add(c.m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if n, _ := f.Len(); n != 3 {
		t.Errorf("%d models", n)
	}
}

func TestRetire(t *testing.T) {
	f := New()
	add(t, f, 1, 0, 1)
	add(t, f, 2, 1, 1, 2)
	add(t, f, 3, 2, 1, 2, 3)
	if !f.Retire(2, 77) || f.Retire(2, 88) || f.Retire(9, 1) {
		t.Error("retire")
	}
	if m, _ := f.Get(2); m.RetiredAt != 77 || m.Parent != 1 || m.Owned != nil {
		t.Errorf("tombstone %+v", m)
	}
	f.Retire(1, 78)
	if gone := f.Sweep(); gone != nil {
		t.Errorf("swept %d, of which live 3 descends", gone)
	}
	var chain []string
	for a, s := range f.Chain(3) {
		chain = append(chain, fmt.Sprint(a.Seq, a.Retired, s.Tensors))
	}
	if got := strings.Join(chain, ", "); got != "3 false 1, 2 true 1, 1 true 1" {
		t.Errorf("chain %s", got)
	}
	f.Retire(3, 79)
	if gone := f.Sweep(); !slices.Equal(gone, []uint64{3, 2, 1}) {
		t.Errorf("swept %d", gone)
	}
	add(t, f, 4, 0)
	add(t, f, 5, 4)
	if err := f.Add(Model{Seq: 6, MergedFrom: []uint64{5}}); err != nil {
		t.Fatal(err)
	}
	f.Retire(4, 1)
	f.Retire(5, 1)
	if gone := f.Sweep(); gone != nil {
		t.Errorf("swept %d, of which a live model was merged", gone)
	}
	f.Retire(6, 1)
	if gone := f.Sweep(); !slices.Equal(gone, []uint64{6, 5, 4}) {
		t.Errorf("swept %d", gone)
	}
}

func TestChoose(t *testing.T) {
	f := New()
	add(t, f, 1, 0)
	add(t, f, 2, 0)
	p, refused := f.Choose(5, []Candidate{{2, Previous}, {1, Transfer}, {9, Declared}, {5, Declared}})
	if p != (Candidate{1, Transfer}) || len(refused) != 2 || !errors.Is(refused[0], ErrParent) ||
		!strings.Contains(refused[0].Error(), "parent 9 (declared)") {
		t.Errorf("%+v, %v", p, refused)
	}
	if p, refused := f.Choose(5, nil); p.Seq != 0 || refused != nil {
		t.Errorf("%+v, %v", p, refused)
	}
}

func tensor(name, content string, tie int) Tensor {
	return Tensor{name, Digest("F32", []int64{4}, cas.Sum([]byte(content))), tie}
}

func TestInherit(t *testing.T) {
	parent := &Parent{
		Tensors: []Tensor{tensor("a.w", "1", 0), tensor("a.b", "2", 0), tensor("bn.mean", "3", 0),
			tensor("x", "0", 0), tensor("y", "0", 0)},
		Owners: []uint64{1, 4, 4, 2, 3},
	}
	renamed := *parent
	renamed.Read = map[string]string{"n.w": "a.w", "n.b": "gone", "x": "y", "bn.mean": "a.b"}
	for _, c := range []struct {
		name    string
		parent  *Parent
		tensors []Tensor
		want    []uint64
	}{
		{"a root owns everything", nil, []Tensor{tensor("a.w", "1", 0)}, []uint64{9}},
		{"unchanged keeps its owner, changed is the child's", parent,
			[]Tensor{tensor("a.w", "1", 0), tensor("a.b", "5", 0)}, []uint64{1, 9}},
		{"running statistics of a frozen layer", parent, []Tensor{tensor("bn.mean", "3.1", 0)}, []uint64{9}},
		{"the same bytes under another name", parent, []Tensor{tensor("c.w", "1", 0)}, []uint64{9}},
		{"another shape", parent, []Tensor{{"a.w", Digest("F32", []int64{2, 2}, cas.Sum([]byte("1"))), 0}},
			[]uint64{9}},
		{"another type", parent, []Tensor{{"a.w", Digest("I32", []int64{4}, cas.Sum([]byte("1"))), 0}},
			[]uint64{9}},
		{"by a transfer, under another name", &renamed,
			[]Tensor{tensor("n.w", "1", 0), tensor("n.b", "2", 0), tensor("x", "0", 0)}, []uint64{1, 9, 3}},
		{"trained since, and by its own name", &renamed,
			[]Tensor{tensor("n.w", "1.1", 0), tensor("a.b", "2", 0), tensor("bn.mean", "3", 0)},
			[]uint64{9, 4, 4}},
		{"tied names have the owner that one inherits", parent,
			[]Tensor{tensor("new", "1", 7), tensor("a.w", "1", 7)}, []uint64{1, 1}},
		{"of two owners the earlier", parent, []Tensor{tensor("y", "0", 7), tensor("x", "0", 7)},
			[]uint64{2, 2}},
		{"a view of the storage is no other name", parent,
			[]Tensor{tensor("a.w", "1", 7), tensor("view", "1 in part", 7)}, []uint64{1, 9}},
		{"tied and all new", parent, []Tensor{tensor("p", "8", 7), tensor("q", "8", 7)}, []uint64{9, 9}},
	} {
		if got := Inherit(9, c.tensors, c.parent); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	// Back to a grandparent's value: the child owns it, whichever model had it first.
	grand := []Tensor{tensor("w", "old", 0)}
	p := Inherit(2, []Tensor{tensor("w", "new", 0)}, &Parent{Tensors: grand, Owners: Inherit(1, grand, nil)})
	if got := Inherit(3, grand, &Parent{Tensors: []Tensor{tensor("w", "new", 0)}, Owners: p}); got[0] != 3 {
		t.Errorf("reverted: owner %d", got[0])
	}
}

func TestShares(t *testing.T) {
	got := Shares([]uint64{5, 2, 5, 9}, []int64{1, 10, 100, 1000})
	if want := []Share{{2, 1, 10}, {5, 2, 101}, {9, 1, 1000}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// naive is the forest by the definitions.
type naive map[uint64]*Model

func (n naive) chain(seq uint64) (out []uint64) {
	for ; seq != 0; seq = n[seq].Parent {
		out = append(out, seq)
	}
	return out
}

func (n naive) mrca(a, b uint64) uint64 {
	of := n.chain(b)
	for _, x := range n.chain(a) {
		if slices.Contains(of, x) {
			return x
		}
	}
	return 0
}

func (n naive) owners(seq uint64) map[uint64]bool {
	out := map[uint64]bool{}
	for _, s := range n[seq].Owned {
		out[s.Owner] = true
	}
	return out
}

func (n naive) mrco(a, b uint64) (best uint64) {
	other := n.owners(b)
	for o := range n.owners(a) {
		if other[o] {
			best = max(best, o)
		}
	}
	return best
}

// needed are the live models and the tombstones that have to stay.
func (n naive) needed() map[uint64]bool {
	out := map[uint64]bool{}
	var need func(uint64)
	need = func(seq uint64) {
		if seq == 0 || out[seq] {
			return
		}
		out[seq] = true
		need(n[seq].Parent)
		for _, m := range n[seq].MergedFrom {
			need(m)
		}
	}
	for seq, m := range n {
		if m.RetiredAt == 0 {
			need(seq)
			for o := range n.owners(seq) {
				need(o)
			}
		}
	}
	return out
}

// The forest and the definitions agree, whatever is added, retired, moved and swept; and a forest rebuilt
// from the records is the same.
func TestForestIsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, n := New(), naive{}
		seq := uint64(0)
		var all []uint64
		pick := func(label string) uint64 {
			if len(all) == 0 {
				return 0
			}
			return rapid.SampledFrom(all).Draw(t, label)
		}
		shares := func(self, parent uint64) []Share {
			var owners []uint64
			for _, s := range append(n.chain(parent), self) {
				if rapid.IntRange(0, 2).Draw(t, "owns") == 0 {
					owners = append(owners, s)
				}
			}
			return own(owners...)
		}
		how := func(parent uint64) How {
			if parent == 0 {
				return None
			}
			return How(rapid.IntRange(1, 4).Draw(t, "how"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				seq += uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
				m := Model{Seq: seq}
				if rapid.IntRange(0, 9).Draw(t, "root") > 0 {
					m.Parent = pick("parent")
				}
				m.How = how(m.Parent)
				if s := pick("merge"); s != 0 && rapid.IntRange(0, 5).Draw(t, "merged") == 0 {
					m.MergedFrom = []uint64{s}
				}
				m.Owned = shares(seq, m.Parent)
				if err := f.Add(m); err != nil {
					t.Fatal(err)
				}
				n[seq] = &m
				all = append(all, seq)
			},
			"retire": func(t *rapid.T) {
				if s := pick("which"); s != 0 {
					if got := f.Retire(s, 5); got != (n[s].RetiredAt == 0) {
						t.Fatalf("retire %d: %v", s, got)
					}
					n[s].RetiredAt, n[s].Owned = 5, nil
				}
			},
			"merge": func(t *rapid.T) {
				seq, from := pick("which"), pick("from")
				if seq == 0 {
					return
				}
				if err := f.Merge(seq, []uint64{from}); (err == nil) != (from < seq) {
					t.Fatalf("merge %d from %d: %v", seq, from, err)
				} else if err == nil {
					n[seq].MergedFrom = []uint64{from}
				}
			},
			"reparent": func(t *rapid.T) {
				s, p := pick("which"), pick("parent")
				if s == 0 || p >= s || n[s].RetiredAt != 0 {
					return
				}
				old := *n[s]
				m := old
				m.Parent, m.How, m.Owned = p, how(p), shares(s, p)
				*n[s] = m
				fine := true
				for _, x := range all {
					for o := range n.owners(x) {
						fine = fine && slices.Contains(n.chain(x), o)
					}
				}
				err := f.Reparent(s, p, m.How, m.Owned)
				if fine != (err == nil) || err != nil && !errors.Is(err, ErrOwner) {
					t.Fatalf("reparent %d to %d: %v, want fine: %v", s, p, err, fine)
				}
				if !fine {
					*n[s] = old
				}
			},
			"sweep": func(t *rapid.T) {
				need := n.needed()
				for _, s := range f.Sweep() {
					if need[s] {
						t.Fatalf("%d was swept and is needed", s)
					}
					delete(n, s)
				}
				if len(n) != len(need) {
					t.Fatalf("%d models left, %d needed", len(n), len(need))
				}
				all = slices.Sorted(maps.Keys(n))
			},
			"": func(t *rapid.T) {
				a, b := pick("a"), pick("b")
				if a == 0 {
					return
				}
				if got := mrca(f, a, b); got != n.mrca(a, b) {
					t.Fatalf("MRCA(%d, %d) = %d, want %d", a, b, got, n.mrca(a, b))
				}
				if got := mrco(f, a, b); got != n.mrco(a, b) {
					t.Fatalf("MRCO(%d, %d) = %d, want %d", a, b, got, n.mrco(a, b))
				}
				chain := n.chain(a)
				var links []Ancestor
				var shares []Share
				for x, s := range f.Chain(a) { // nothing else of the forest may be asked meanwhile
					links, shares = append(links, x), append(shares, s)
				}
				for i, x := range links {
					s := shares[i]
					at, _ := f.At(a, len(chain)-1-i)
					var want Share
					for _, o := range n[a].Owned {
						if o.Owner == x.Seq {
							want = o
						}
					}
					want.Owner = x.Seq
					if x.Seq != chain[i] || at != x || s != want || x.Retired != (n[x.Seq].RetiredAt != 0) ||
						x.Depth != len(chain)-1-i {
						t.Fatalf("chain of %d at %d: %+v %+v, by depth %+v", a, i, x, s, at)
					}
				}
				if len(links) != len(chain) {
					t.Fatalf("chain of %d: %d, want %d", a, len(links), len(chain))
				}
				i := 0
				for x, s := range f.Owners(a) {
					for i > 1 && i < len(links)-1 && shares[i].Tensors == 0 {
						i++
					}
					if i == len(links) || x != links[i] || s != shares[i] {
						t.Fatalf("owners of %d at %d: %+v %+v", a, i, x, s)
					}
					i++
				}
				if i != len(links) {
					t.Fatalf("owners of %d end at %d of %d", a, i, len(links))
				}
				if got, _ := f.Get(a); !reflect.DeepEqual(got, *n[a]) {
					t.Fatalf("get %d: %+v, want %+v", a, got, *n[a])
				}
			},
		})
		again := New()
		for _, s := range all {
			p, err := n[s].Encode()
			if err != nil {
				t.Fatal(err)
			}
			m, err := DecodeModel(s, p)
			if err != nil || !reflect.DeepEqual(m, *n[s]) {
				t.Fatalf("record: %+v, %v, want %+v", m, err, *n[s])
			}
			if err := again.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		if len(all) > 0 && (!reflect.DeepEqual(again.links, f.links) ||
			!reflect.DeepEqual(again.info, f.info)) {
			t.Fatalf("rebuilt is another forest")
		}
	})
}
