package record

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

func planAgain(b []byte) ([]byte, error) {
	p, err := DecodePlan(b)
	if err != nil {
		return nil, err
	}
	return p.Encode()
}

// Whatever is wrong with a plan, neither end takes it.
func TestPlanCheck(t *testing.T) {
	for name, spoil := range map[string]func(p *Plan){
		"no manifest":         func(p *Plan) { p.Manifest = cas.Hash{} },
		"size":                func(p *Plan) { p.Size = -1 },
		"an object twice":     func(p *Plan) { p.Objects[1].ID = p.Objects[0].ID },
		"objects descend":     func(p *Plan) { p.Objects[1].ID = id(0x10) },
		"an object's length":  func(p *Plan) { p.Objects[2].Len = MaxObject + 1 },
		"an object too short": func(p *Plan) { p.Objects[1].Len = 295 },
		"an object unused":    func(p *Plan) { p.Bases, p.Against = p.Bases[:2], nil },
		"against, too few":    func(p *Plan) { p.Against = p.Against[:5] },
		"against no record":   func(p *Plan) { p.Against[0][0] = 7 },
		"against itself":      func(p *Plan) { p.Against[1][0] = 2 },
		"against a later one": func(p *Plan) { p.Against[3] = Against{5} },
		"against none":        func(p *Plan) { p.Against[2] = Against{0} },
		"against too many": func(p *Plan) {
			p.Against[0] = slices.Repeat(Against{4}, segment.MaxRecipeBases+1)
		},
		"no object":              func(p *Plan) { p.Record.Object = 3 },
		"manifest, offset":       func(p *Plan) { p.Record.Off = 56 },
		"manifest, no bytes":     func(p *Plan) { p.Record.Stored = 0 },
		"manifest, raw":          func(p *Plan) { p.Record.Raw = 0 },
		"manifest, raw too long": func(p *Plan) { p.Record.Raw = cas.MaxChunk + 1 },
		"list, raw":              func(p *Plan) { p.Lists[1].Raw = 0 },
		"list, offset":           func(p *Plan) { p.Lists[0].Off = 4_992 },
		"chunk, past the object": func(p *Plan) { p.Chunks[2].Off = 899_920 },
		"chunk, stored":          func(p *Plan) { p.Chunks[2] = Place{2, cas.MaxChunk + 1, 64} },
		"chunk, object":          func(p *Plan) { p.Chunks[0].Object = 1 << 31 },
		"base, raw":              func(p *Plan) { p.Bases[1].Raw = segment.MaxBased + 1 },
		"base, no raw":           func(p *Plan) { p.Bases[1].Raw = 0 },
		"base twice":             func(p *Plan) { p.Bases[1].Hash = p.Bases[0].Hash },
		"base, number":           func(p *Plan) { p.Bases[1].Number = segment.RecipeNumber },
		"base, kind":             func(p *Plan) { p.Bases[1].Kind = cas.Event },
		"base, no kind":          func(p *Plan) { p.Bases[1].Kind = 0 },
		"bases overlap":          func(p *Plan) { p.Bases[1].Off = 509_072 },
		"bases descend":          func(p *Plan) { p.Bases[0].Object = 2; p.Bases[0].Off = 1 << 25 },
	} {
		p := examplePlan()
		spoil(p)
		_, encode := p.Encode()
		_, decode := DecodePlan(p.append(nil))
		refused(t, name, encode, decode)
	}
	for name, spoil := range map[string]func(p *Plan){
		"class":           func(p *Plan) { p.Objects[0].Class = ClassTable },
		"odd":             func(p *Plan) { p.Chunks[2].Off++ },
		"negative length": func(p *Plan) { p.Objects[0].Len = -1 },
	} {
		p := examplePlan()
		if spoil(p); p.check() == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

// Bytes that stand for a plan, but are not those that it is encoded to.
func TestPlanOneEncoding(t *testing.T) {
	b, err := examplePlan().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string][2]string{
		// The second chunk goes on; so it must say so.
		"a place in full": {"\x81\x80\x20", "\x80\x80\x20\x00\x00"},
		// The first object's distance, and an offset that comes to the same modulo 2^64.
		"far":          {"\x80\xb5\x18\x01\x10", "\x80\xb5\x18\x01\x90\x80\x80\x80\x80\x80\x80\x80\x40"},
		"a far object": {"\x80\xb5\x18\x01", "\x80\xb5\x18" + string(zz(nil, 1<<32-1))},
		"a far length": {"\xac\x02\x02\x10\x90\x03", "\xac\x02\x02\x10" + string(zz(nil, 200+1<<32))},
		"length":       {"\x91\x4e", "\x91\xce\x00"},
		"far base":     {"\x34\x06\x01\x00", "\x34\x06\x01" + string(zz(nil, 1<<32))},
		"rest":         {"\x01\x05", "\x01\x05\x00"},
	} {
		at := bytes.LastIndex(b, []byte(swap[0]))
		if at < 0 {
			t.Fatalf("%s: % x is not in % x", name, swap[0], b)
		}
		q := append(append(bytes.Clone(b[:at]), swap[1]...), b[at+len(swap[0]):]...)
		if _, err := DecodePlan(q); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range b {
		if _, err := DecodePlan(b[:n]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	b[3]++
	if _, err := DecodePlan(b); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
}

// A plan that is no record any more is too large.
func TestPlanTooLarge(t *testing.T) {
	p := &Plan{Manifest: hash(1), Objects: []Object{{id(1), ClassData, MaxObject}},
		Record: Record{Place{0, 1, 64}, 1}}
	p.Lists = make([]Record, 4<<20)
	for i := range p.Lists {
		p.Lists[i] = Record{Place{0, 1, 64}, 1}
	}
	if _, err := p.Encode(); !errors.Is(err, cas.ErrTooLarge) {
		t.Error(err)
	}
}

func drawPlan(t *rapid.T) *Plan {
	p := &Plan{Manifest: hash(1), Size: rapid.Int64Min(0).Draw(t, "size")}
	n := rapid.IntRange(1, 4).Draw(t, "objects")
	ends := make([]int64, n)
	used := map[uint32]bool{}
	place := func(stored uint32) Place {
		o := rapid.IntRange(0, n-1).Draw(t, "object")
		if rapid.Bool().Draw(t, "gap") {
			ends[o] += rapid.Int64Range(0, 100).Draw(t, "words") * 8
		}
		at := Place{uint32(o), stored, max(ends[o], segment.FileHeaderSize)}
		ends[o] = at.End()
		used[at.Object] = true
		return at
	}
	stored := func() uint32 { return rapid.Uint32Range(1, 1<<18).Draw(t, "stored") }
	record := func() Record {
		return Record{place(stored()), rapid.Uint32Range(1, cas.MaxChunk).Draw(t, "raw")}
	}
	p.Record = record()
	for range rapid.IntRange(0, 5).Draw(t, "lists") {
		p.Lists = append(p.Lists, record())
	}
	for range rapid.IntRange(0, 20).Draw(t, "chunks") {
		p.Chunks = append(p.Chunks, place(stored()))
	}
	for i := range n {
		for k := range rapid.IntRange(0, 3).Draw(t, "bases") {
			at := Place{uint32(i), stored(), max(ends[i], segment.FileHeaderSize)}
			x := Base{Record: Record{at, rapid.Uint32Range(1, segment.MaxBased).Draw(t, "raw")},
				Hash:   id(byte(16*i + k + 1)),
				Number: rapid.Uint8Range(0, segment.RoundedNumber).Draw(t, "number"),
				Kind:   cas.Kind(rapid.Uint8Range(1, 3).Draw(t, "kind"))}
			ends[i] = x.End()
			used[x.Object] = true
			p.Bases = append(p.Bases, x)
		}
	}
	defer func() { drawAgainst(t, p) }()
	for i := range n {
		if !used[uint32(i)] {
			p.Chunks = append(p.Chunks, Place{uint32(i), 9, max(ends[i], segment.FileHeaderSize)})
			ends[i] = p.Chunks[len(p.Chunks)-1].End()
		}
		p.Objects = append(p.Objects, Object{id(byte(i)), ClassData, ends[i]})
		if rapid.Bool().Draw(t, "meta") {
			p.Objects[i].Class = ClassMeta
		}
	}
	return p
}

// drawAgainst draws what records are stored against.
func drawAgainst(t *rapid.T, p *Plan) {
	chunks, records := len(p.Chunks), len(p.Chunks)+len(p.Bases)
	if records == 0 || rapid.Bool().Draw(t, "nothing said") {
		return
	}
	p.Against = make([]Against, records)
	for i := range p.Against {
		for range rapid.IntRange(0, segment.MaxRecipeBases).Draw(t, "against") {
			x := rapid.IntRange(1, records).Draw(t, "record")
			lower := i < chunks || x <= chunks || p.Bases[x-1-chunks].Number < p.Bases[i-chunks].Number
			if x == i+1 || !lower {
				break
			}
			p.Against[i] = append(p.Against[i], uint32(x))
		}
	}
}

// Every plan is what its bytes say, and no other bytes say it.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodePlan(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%v: %+v, want %+v", err, got, p)
		}
		checkAgain(t, mutate(t, b), planAgain)
	})
}
