package record

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func exampleKeys() []Key {
	return []Key{{ClassData, id(0x11)}, {ClassData, id(0x33)}, {ClassMeta, id(0x22)}, {ClassTable, id(0x91)}}
}

func exampleEpoch() *Epoch {
	return &Epoch{Remote: id(1), Number: 42, Time: 1_800_000_000_000_000_000, Collector: me,
		Objects: exampleKeys()}
}

func exampleAging() *Aging {
	a := &Aging{Remote: id(1)}
	for i, k := range exampleKeys() {
		a.Objects = append(a.Objects, Aged{k, 1_800_000_000 - int64(i%2)*86_400})
	}
	return a
}

func goldenCollections(t *testing.T) {
	state, err := (&State{Remote: id(1), Epoch: 42}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "state.hex", annotateState(state))
	condemned, err := exampleEpoch().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "epoch.hex", annotateEpoch(condemned))
	if got, err := DecodeEpoch(42, condemned); err != nil || !reflect.DeepEqual(got, exampleEpoch()) {
		t.Errorf("%+v, %v", got, err)
	}
	aging, err := exampleAging().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "aging.hex", annotateAging(aging))
	if got, err := DecodeAging(aging); err != nil || !reflect.DeepEqual(got, exampleAging()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func (n *notes) collection() {
	n.opening()
	n.note(16, "remote")
}

func (n *notes) keys(more func()) {
	for _, c := range "dimt" {
		for range n.num(string(c) + ":") {
			n.note(16, "  id")
			more()
		}
	}
	n.note(4, "CRC of all before")
}

func annotateState(p []byte) string {
	n := &notes{p: p}
	n.collection()
	n.fixed(4, "epoch")
	n.note(4, "CRC of all before")
	return n.String()
}

func annotateEpoch(p []byte) string {
	n := &notes{p: p}
	n.collection()
	n.fixed(4, "epoch")
	n.fixed(4, "flags")
	n.fixed(8, "time")
	n.str("collector")
	n.keys(func() {})
	return n.String()
}

func annotateAging(p []byte) string {
	n := &notes{p: p}
	n.collection()
	for range n.num("times:") {
		n.zz("  time")
	}
	n.keys(func() { n.num("    of time") })
	return n.String()
}

func stateAgain(p []byte) ([]byte, error) {
	s, err := DecodeState(p)
	if err != nil {
		return nil, err
	}
	return s.Encode()
}

func epochAgain(n uint32) func(p []byte) ([]byte, error) {
	return func(p []byte) ([]byte, error) {
		e, err := DecodeEpoch(n, p)
		if err != nil {
			return nil, err
		}
		return e.Encode()
	}
}

func agingAgain(p []byte) ([]byte, error) {
	a, err := DecodeAging(p)
	if err != nil {
		return nil, err
	}
	return a.Encode()
}

// Nothing is encoded that is not decoded.
func TestCollectionCheck(t *testing.T) {
	keys := exampleKeys()
	for name, change := range map[string]func(e *Epoch){
		"no remote":    func(e *Epoch) { e.Remote = ID{} },
		"epoch 0":      func(e *Epoch) { e.Number = 0 },
		"nobody":       func(e *Epoch) { e.Collector = "" },
		"nothing":      func(e *Epoch) { e.Objects = nil },
		"twice":        func(e *Epoch) { e.Objects = []Key{keys[0], keys[0]} },
		"descending":   func(e *Epoch) { e.Objects = []Key{keys[1], keys[0]} },
		"of no class":  func(e *Epoch) { e.Objects = []Key{{'x', id(1)}} },
		"class before": func(e *Epoch) { e.Objects = []Key{keys[3], keys[2]} },
	} {
		e := exampleEpoch()
		if change(e); !refusesEpoch(e) {
			t.Errorf("%s: encoded", name)
		}
	}
	none := exampleEpoch()
	none.Deleted, none.Objects = true, nil
	if p, err := none.Encode(); err != nil {
		t.Error(err)
	} else if got, err := DecodeEpoch(42, p); err != nil || !reflect.DeepEqual(got, none) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, s := range []State{{Epoch: 1}, {Remote: id(1)}} {
		if _, err := s.Encode(); err == nil {
			t.Errorf("%+v is encoded", s)
		}
	}
	if _, err := (&Aging{}).Encode(); err == nil {
		t.Error("an aging of no remote is encoded")
	}
	many := &Epoch{Remote: id(1), Number: 1, Collector: me, Objects: make([]Key, MaxObject/len(ID{}))}
	for i := range many.Objects {
		many.Objects[i] = Key{ClassData, ID{byte(i >> 16), byte(i >> 8), byte(i)}}
	}
	if _, err := many.Encode(); !errors.Is(err, cas.ErrTooLarge) {
		t.Errorf("%d objects: %v", len(many.Objects), err)
	}
}

func refusesEpoch(e *Epoch) bool {
	_, err := e.Encode()
	return err != nil
}

// What is cut, damaged, of a later version, or another thing's is refused.
func TestCollectionRefused(t *testing.T) {
	e, _ := exampleEpoch().Encode()
	s, _ := (&State{id(1), 42}).Encode()
	a, _ := exampleAging().Encode()
	for _, again := range []func([]byte) ([]byte, error){stateAgain, epochAgain(42), agingAgain} {
		taken := 0
		for _, p := range [][]byte{e, s, a} {
			if _, err := again(p); err == nil {
				taken++
				newer := sum(slices.Replace(slices.Clone(p), 8, 9, 2))
				if _, err := again(newer); !errors.Is(err, cas.ErrNewer) {
					t.Errorf("version 2: %v", err)
				}
				for n := range p {
					if _, err := again(p[:n]); !errors.Is(err, cas.ErrCorrupt) {
						t.Errorf("%d of %d bytes: %v", n, len(p), err)
					}
				}
			} else if !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
		}
		if taken != 1 {
			t.Errorf("%d of 3 are taken", taken)
		}
	}
	if _, err := DecodeEpoch(43, e); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("another epoch: %v", err)
	}
}

func drawKeys(t *rapid.T) []Key {
	keys := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Key {
		return Key{rapid.SampledFrom(classes).Draw(t, "class"), drawID(t)}
	}), 1, 8, func(k Key) Key { return k }).Draw(t, "keys")
	slices.SortFunc(keys, Key.Compare)
	return keys
}

func TestCollections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Epoch{Remote: drawID(t), Number: rapid.Uint32Min(1).Draw(t, "epoch"),
			Deleted: rapid.Bool().Draw(t, "deleted"), Time: rapid.Int64().Draw(t, "time"),
			Collector: drawOwn(t), Objects: drawKeys(t)}
		a := &Aging{Remote: e.Remote}
		for _, k := range e.Objects {
			if !e.Has(k) || e.Has(Key{'x', k.ID}) {
				t.Fatalf("%s: is not found", k)
			}
			a.Objects = append(a.Objects, Aged{k, rapid.Int64Range(-3, 3).Draw(t, "since")})
		}
		p, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeEpoch(e.Number, p); err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v, %v", got, err)
		}
		checkAgain(t, mutate(t, p), epochAgain(e.Number))
		if p, err = a.Encode(); err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeAging(p); err != nil || !reflect.DeepEqual(got, a) {
			t.Fatalf("%+v, %v", got, err)
		}
		checkAgain(t, sum(mutate(t, p)), agingAgain)
	})
}

// Each of the collector's objects, with a checksum that fits.
func FuzzCollection(f *testing.F) {
	s, _ := (&State{id(1), 42}).Encode()
	e, _ := exampleEpoch().Encode()
	a, _ := exampleAging().Encode()
	for _, p := range [][]byte{s, e, a} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		p = sum(append([]byte(nil), p...))
		bounded(t, len(p), 100, 1<<16, func() {
			checkAgain(t, p, stateAgain)
			checkAgain(t, p, epochAgain(42))
			checkAgain(t, p, agingAgain)
		})
	})
}
