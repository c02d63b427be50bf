package manifest

import (
	"errors"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
)

func TestObjects(t *testing.T) {
	h := func(n byte) (h cas.Hash) { h[0] = n; return h }
	m := &Manifest{
		Size:    90,
		Objects: []Object{{Digest: h(1), Len: 20}, {Digest: h(2), Len: 40}, {Digest: h(3), Len: 10}},
		Extents: []Extent{{Len: 20, Object: 0}, {Len: 10, Object: -1}, {Len: 40, Object: 1},
			{Len: 10, Object: 1, ObjOff: 30},
			{Len: 10, Object: 2}},
		Regions: []formats.Region{{Off: 0, Len: 20, Kind: formats.Data},
			{Off: 20, Len: 10, Kind: formats.Pad},
			{Off: 30, Len: 40, Kind: formats.Data}, {Off: 70, Len: 10, Kind: formats.Data},
			{Off: 80, Len: 10, Kind: formats.Blob}},
		Tensors: []formats.Tensor{{Region: 0}, {Region: -1}, {Region: 3}},
	}
	// The third tensor is a part of an object, and names nothing.
	if got := m.Digests(); !slices.Equal(got, []cas.Hash{h(1), {}, {}}) {
		t.Errorf("%v", got)
	}
	if got := m.WholeObjects(); len(got) != 3 || got[0] != m.Objects[0] || got[30] != m.Objects[1] ||
		got[80] != m.Objects[2] {
		t.Errorf("%v", got)
	}
	two := h(2)
	if got := m.Hidden(); got != cas.Sum(two[:]) {
		t.Errorf("%v", got)
	}
}

func TestSpans(t *testing.T) {
	list := []Span{{Hash: cas.Sum([]byte("a")), Len: 7}, {Hash: cas.Sum([]byte("b")), Len: 5}}
	p := EncodeList(list)
	get := func(h cas.Hash, _ []byte) ([]byte, error) {
		if h != cas.Sum(p) {
			return nil, cas.ErrNotFound
		}
		return p, nil
	}
	for _, c := range []struct {
		o    Object
		want []Span
	}{
		{Object{Digest: cas.Sum(p), Len: 12, List: true}, list},
		{Object{Digest: list[0].Hash, Len: 7}, list[:1]},
	} {
		if got, err := c.o.Spans(get); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.o, got, err)
		}
	}
	if _, err := (Object{List: true}).Spans(get); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

// Lists and chunks are listed once, in the order of their first names, and a list is read once.
func TestNamed(t *testing.T) {
	a, b, c := Span{cas.Sum([]byte("a")), 7}, Span{cas.Sum([]byte("b")), 5}, Span{cas.Sum([]byte("c")), 3}
	one, two := EncodeList([]Span{b, a}), EncodeList([]Span{c, b})
	lists := map[cas.Hash][]byte{cas.Sum(one): one, cas.Sum(two): two}
	m := &Manifest{Objects: []Object{{Digest: a.Hash, Len: 7}, {Digest: cas.Sum(one), Len: 12, List: true},
		{Digest: cas.Sum(two), Len: 8, List: true}, {Digest: cas.Sum(one), Len: 12, List: true}}}
	if got := m.Lists(); !slices.Equal(got, []cas.Hash{cas.Sum(one), cas.Sum(two)}) {
		t.Errorf("%v", got)
	}
	reads := 0
	got, err := m.Chunks(func(h cas.Hash, _ []byte) ([]byte, error) {
		reads++
		if p := lists[h]; p != nil {
			return p, nil
		}
		return nil, cas.ErrNotFound
	})
	if err != nil || !slices.Equal(got, []Span{a, b, c}) || reads != 2 {
		t.Errorf("%v, %d reads, %v", got, reads, err)
	}
	m.Objects[3].Digest = a.Hash
	m.Objects[0].Digest = b.Hash
	nothing := func(cas.Hash, []byte) ([]byte, error) { return nil, cas.ErrNotFound }
	if _, err := m.Chunks(nothing); err == nil {
		t.Error("a list that is not there")
	}
}
