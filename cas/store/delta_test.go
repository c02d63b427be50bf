package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

var fp32 = codec.Hint{DType: "F32", Elem: 4}

// halves is the line of tensors in half precision: the rounding of those of lines 0 and 1.
const halves = 3

var bf16 = codec.Hint{DType: "BF16", Elem: 2}

// version is version v of a tensor of 256 elements that is being trained.
func version(line, v int) []byte {
	if line == halves {
		base := append(version(0, v), version(1, v)...)
		p, err := codec.DecodeRounded(nil, []byte{1}, base, len(base)/2)
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
	b, _, err := s.baseOf(h, loc)
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
		if len(s.pins)+len(s.needs) > 0 {
			t.Errorf("still pinned: %v %v", s.pins, s.needs)
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

// keeping is a Mark of versions.
func keeping(ids map[[2]int]bool) Mark {
	return func(_ context.Context, m *Marking) error {
		for id, on := range ids {
			if on {
				m.Keep(cas.Sum(version(id[0], id[1])))
			}
		}
		return nil
	}
}

// Whatever is wanted of a chain is there after a sweep, and what is not can be put again.
func TestDeltaSweep(t *testing.T) {
	const n = 8
	for set := range 1 << n {
		if testing.Short() && set%5 != 0 {
			continue
		}
		maxUnused := []float64{0, 0.5, 1}[set%3]
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 2 << 10})
		want := map[[2]int]bool{}
		for v := range n {
			b := s.Begin()
			evolve(t, b, 1, v)
			commit(t, b)
			want[[2]int{1, v}] = set>>v&1 != 0
		}
		for range 2 {
			sweepNow(t, s, SweepOptions{MaxUnused: maxUnused}, keeping(want))
		}
		needed := map[cas.Hash]bool{}
		for v := range n {
			if want[[2]int{1, v}] {
				for i := v; ; i &= i - 1 {
					needed[cas.Sum(version(1, i))] = true
					if i == 0 {
						break
					}
				}
			}
		}
		check := func(s *Store) {
			t.Helper()
			for v := range n {
				raw := version(1, v)
				has, err := s.Has([]cas.Hash{cas.Sum(raw)})
				if err != nil || has[0] != needed[cas.Sum(raw)] {
					t.Fatalf("set %08b: version %d: held %v, %v", set, v, has, err)
				}
				if has[0] {
					wantGet(t, s, raw)
				}
			}
		}
		check(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, m, newIndex(), Options{})
		check(s)
		b := s.Begin()
		for v := range n {
			evolve(t, b, 1, v)
		}
		commit(t, b)
		for v := range n {
			wantGet(t, s, version(1, v))
		}
	}
}

// A delta too young to go keeps its base, though nothing names either.
func TestDeltaSweepGrace(t *testing.T) {
	m, x := newMem(), newIndex()
	now := time.Unix(1_700_000_000, 0)
	s := open(t, m, x, Options{Now: func() time.Time { return now }})
	for v := range 2 {
		b := s.Begin()
		evolve(t, b, 1, v)
		commit(t, b)
		if err := s.roll(); err != nil {
			t.Fatal(err)
		}
		now = now.Add(20 * time.Hour)
	}
	sweepNow(t, s, SweepOptions{Grace: 24 * time.Hour}, marking())
	wantGet(t, s, version(1, 1))
	now = now.Add(20 * time.Hour)
	sweepNow(t, s, SweepOptions{Grace: 24 * time.Hour}, marking())
	if len(x.m) > 1 { // the base, once its delta went
		t.Errorf("%d left", len(x.m))
	}
}

// A dead delta that is put again while a sweep takes its base, at whatever point, is there afterwards.
func TestDeltaRevivedDuringSweep(t *testing.T) {
	for at := 0; ; at++ {
		m, x := newMem(), newIndex()
		s := open(t, m, x, Options{SegmentSize: 2 << 10})
		for v := range 4 {
			b := s.Begin()
			evolve(t, b, 1, v)
			commit(t, b)
		}
		var sofar atomic.Int64
		var begun atomic.Bool
		done := make(chan struct{})
		x.before = func(op string) {
			if begun.Load() || sofar.Add(1)-1 != int64(at) {
				return
			}
			begun.Store(true)
			b := s.Begin()
			go func() {
				defer close(done)
				evolve(t, b, 1, 3) // number 3, which leads to 2 and 0
				commit(t, b)
			}()
			if op != "Commit" { // under which no other commit goes on
				<-done
			}
		}
		sweepNow(t, s, SweepOptions{MaxUnused: 0.3}, marking())
		if !begun.Load() {
			return
		}
		<-done
		x.before = nil
		wantGet(t, s, version(1, 3))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantGet(t, open(t, m, newIndex(), Options{}), version(1, 3))
	}
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
		if len(s.pins)+len(s.needs) > 0 {
			t.Errorf("still pinned: %v %v", s.pins, s.needs)
		}
		wantGet(t, s, version(1, 7))
		sweepNow(t, s, SweepOptions{}, marking())
		if len(x.m) > 0 {
			t.Errorf("%d left", len(x.m))
		}
	}
}

// A base that an fsync lost takes with it what was encoded against it, whoever put that, and wherever it lies.
func TestDeltaFailsWithItsBase(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1 << 10}) // a record each
	a := s.Begin()
	evolve(t, a, 1, 0)
	s.mu.Lock()
	s.full, s.active = append(s.full, s.active), nil // so that the next goes elsewhere, without a flush
	s.mu.Unlock()
	b, c := s.Begin(), s.Begin()
	if _, delta := evolve(t, b, 1, 1); !delta {
		t.Fatal("no delta")
	}
	evolve(t, c, 1, 1)
	first := segment.Path(dir, 1)
	m.Inject(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpSync && op.Name == first {
			return &disk.Fault{Err: errors.New("lost")}
		}
		return nil
	})
	if err := c.Commit(); err == nil {
		t.Error("committed without its base")
	}
	m.Inject(nil)
	if err := b.Commit(); err == nil {
		t.Error("committed without its base")
	}
	if err := a.Commit(); err == nil {
		t.Error("committed and lost")
	}
	d := s.Begin()
	evolve(t, d, 1, 1)
	commit(t, d)
	wantGet(t, s, version(1, 1))
	s.Close()
	s = open(t, m, newIndex(), Options{}) // in which the first one is found again
	d = s.Begin()
	evolve(t, d, 1, 1)
	commit(t, d)
	wantGet(t, s, version(1, 1))
}

// forge writes records as they come into a new segment.
func forge(t testing.TB, m *disk.Mem, n uint32, id byte, recs map[cas.Hash][]byte, raw int) {
	t.Helper()
	w, err := segment.Create(m, dir, segment.ID{Store: storeID, Number: n}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for h, payload := range recs {
		buf := append(make([]byte, segment.RecordHeaderSize), payload...)
		slot, err := w.Reserve(len(payload))
		if err != nil {
			t.Fatal(err)
		}
		rec := &segment.Record{Kind: cas.Chunk, Codec: id, Raw: uint32(raw), Hash: h}
		err = w.Write(slot, rec, buf)
		w.Finish(slot, rec, err)
	}
	if _, err := w.Seal(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// Circles, chains that are too long, numbers out of order: nothing of that is followed, and all of it may be swept.
func TestDeltaHostile(t *testing.T) {
	name := func(i int) cas.Hash { return cas.Sum(fmt.Append(nil, i)) }
	payload := func(base, number int) []byte {
		p := make([]byte, 100)
		segment.Base{Hash: name(base), Number: uint8(number)}.Put(p)
		return append(p[:segment.BaseSize], 1, 4, 0)
	}
	for what, recs := range map[string]map[cas.Hash][]byte{
		"itself":       {name(1): payload(1, 3)},
		"circle":       {name(1): payload(2, 3), name(2): payload(1, 3)},
		"upwards":      {name(1): payload(2, 2), name(2): payload(3, 4), name(3): payload(4, 5)},
		"lost":         {name(1): payload(9, 1)},
		"number 0":     {name(1): payload(2, 0)},
		"number 8":     {name(1): payload(2, 8)},
		"number 255":   {name(1): payload(2, 255)},
		"short":        {name(1): payload(2, 1)[:20]},
		"only a base":  {name(1): payload(2, 1)[:33], name(2): payload(3, 1)},
		"long chain":   {name(1): payload(2, 7), name(2): payload(3, 6), name(3): payload(4, 5), name(4): payload(5, 4), name(5): payload(6, 3), name(6): payload(7, 2), name(7): payload(8, 1)},
		"nothing left": {name(1): payload(1, 1)},
		"rounded":      {name(1): append(payload(2, 8)[:segment.BaseSize], 1, 1)},
		"of itself":    {name(1): append(payload(1, 8)[:segment.BaseSize], 1, 1)},
		"no second":    {name(1): append(payload(2, 8)[:segment.BaseSize], 2, 1)},
		"zero second":  {name(1): append(payload(2, 8)[:segment.BaseSize], append([]byte{2}, make([]byte, 33)...)...)},
		"three bases":  {name(1): append(payload(2, 8)[:segment.BaseSize], append([]byte{3}, make([]byte, 65)...)...)},
	} {
		for i, raw := range []int{1024, cas.MaxChunk, 1024, cas.MaxChunk} {
			m := newMem()
			open(t, m, newIndex(), Options{}).Close()
			forge(t, m, 1, []byte{codec.Delta, codec.Rounded}[i/2], recs, raw)
			s := open(t, m, newIndex(), Options{})
			_, err := s.Get(name(1), nil)
			if !errors.Is(err, cas.ErrCorrupt) && !(raw == cas.MaxChunk && errors.Is(err, cas.ErrTooLarge)) {
				t.Errorf("%s: %v", what, err)
			}
			b := s.Begin()
			if _, _, err := b.PutAgainst(cas.Chunk, cas.Sum(version(1, 0)), version(1, 0), fp32, name(1)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			commit(t, b)
			wantGet(t, s, version(1, 0))
			var found []Finding
			if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f Finding) { found = append(found, f) }}); err != nil || len(found) == 0 {
				t.Errorf("%s: %v, %v", what, err, found)
			}
			sweepNow(t, s, SweepOptions{}, func(_ context.Context, m *Marking) error { m.Keep(name(1)); return nil })
			sweepNow(t, s, SweepOptions{}, marking())
			s.Close()
		}
	}
}

// A base that is damaged damages what is written against it, until it is put again.
func TestDeltaBaseDamaged(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 4 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	bad := cas.Sum(version(1, 2)) // the base of 3
	f, err := m.OpenFile(segment.Path(dir, 1), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("XXXX"), x.m[bad].Off+segment.RecordHeaderSize+40); err != nil {
		t.Fatal(err)
	}
	found := map[cas.Hash]Problem{}
	if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f Finding) { found[f.Hash] = f.Problem }}); err != nil {
		t.Fatal(err)
	}
	if want := map[cas.Hash]Problem{bad: BadChunk, cas.Sum(version(1, 3)): BadBase}; !maps.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
	_, err = s.Get(cas.Sum(version(1, 3)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	wantGet(t, s, version(1, 1))
	b = s.Begin()
	if fresh, delta := evolve(t, b, 1, 2); !fresh || delta {
		t.Error("not stored afresh, whole:", fresh, delta)
	}
	commit(t, b)
	for v := range 4 {
		wantGet(t, s, version(1, v))
	}
}

// Salvage keeps a delta whose base is lost, and its base may come back.
func TestDeltaSalvage(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 1 << 10})
	for v := range 2 {
		b := s.Begin()
		evolve(t, b, 1, v)
		commit(t, b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	base := x.m[cas.Sum(version(1, 0))]
	f, err := m.OpenFile(segment.Path(dir, base.Segment), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("XXXX"), base.Off+segment.RecordHeaderSize+40); err != nil {
		t.Fatal(err)
	}
	st, err := Salvage(m, dir, storeID, SalvageOptions{Aside: "/store/lost", Now: time.Now})
	if err != nil || len(st.Moved) != 1 || st.Moved[0].Lost != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	s = open(t, m, newIndex(), Options{})
	_, err = s.Get(cas.Sum(version(1, 1)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b := s.Begin()
	evolve(t, b, 1, 0)
	commit(t, b)
	wantGet(t, s, version(1, 1))
}

// Puts, names that go, sweeps, starts with and without the index: what has a name can be read.
func TestDeltaModel(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	var recoded int64
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, x := newMem(), newIndex()
		now := time.Unix(1_700_000_000, 0)
		opt := Options{SegmentSize: 1 << (10 + r.IntN(4)), Now: func() time.Time { return now }}
		s := open(t, m, x, opt)
		named := map[[2]int]bool{}
		held := map[*Batch][][2]int{}
		var log []string
		for range 120 {
			now = now.Add(time.Duration(r.IntN(100)) * time.Minute)
			what := ""
			switch k := r.IntN(20); {
			case k < 9: // a save
				b := s.Begin()
				var ids [][2]int
				for range 1 + r.IntN(4) {
					id := [2]int{r.IntN(4), r.IntN(12)}
					evolve(t, b, id[0], id[1])
					ids = append(ids, id)
				}
				what = fmt.Sprint("save ", ids)
				if r.IntN(4) == 0 {
					held[b] = ids
					what += " later"
					break
				}
				if r.IntN(5) == 0 {
					what += " given up"
					b.Release()
					break
				}
				commit(t, b)
				for _, id := range ids {
					named[id] = true
				}
			case k < 11: // the end of an earlier one
				for b, ids := range held {
					commit(t, b)
					for _, id := range ids {
						named[id] = true
					}
					delete(held, b)
					what = fmt.Sprint("end ", ids)
					break
				}
			case k < 15:
				for id := range named {
					if r.IntN(3) == 0 {
						delete(named, id)
						what += fmt.Sprint(" rm ", id)
					}
				}
			case k < 18:
				o := SweepOptions{MaxUnused: float64(r.IntN(3)) / 2, Grace: time.Duration(r.IntN(3)) * time.Hour}
				ctx, cancel := context.WithCancel(t.Context())
				cut := r.IntN(6) - 2
				o.Progress = func(SweepStats) {
					if cut--; cut == -1 {
						cancel()
					}
				}
				_, err := s.Sweep(ctx, o, keeping(named))
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				what = fmt.Sprintf("sweep %+v %v", o, err)
			case k < 19:
				var ids [][2]int
				for range 1 + r.IntN(12) {
					ids = append(ids, [2]int{r.IntN(4), r.IntN(12)})
				}
				back := 1 + r.IntN(3)
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					x.before = func(string) { cancel() } // nothing is retired, as a rule
				}
				st, err := recode(ctx, s, ids, func(v int) int { return v - back }, func(h cas.Hash) bool { return h[0]&1 != 0 })
				x.before = nil
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				recoded += st.Records
				what = fmt.Sprintf("compact %v by %d: %+v %v", ids, back, st, err)
			default:
				for b := range held {
					b.Release()
				}
				clear(held)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if what = "start"; r.IntN(2) == 0 {
					x, what = newIndex(), "start without index"
				}
				s = open(t, m, x, opt)
			}
			log = append(log, what)
			for id := range named {
				raw := version(id[0], id[1])
				if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
					t.Fatalf("seed %d: %v: %v\n%s", seed, id, err, strings.Join(log, "\n"))
				}
			}
		}
		if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f Finding) {
			if !f.Problem.Harmless() {
				t.Errorf("seed %d: %s", seed, f)
			}
		}}); err != nil {
			t.Fatal(err)
		}
		for b := range held {
			b.Release()
		}
		sweepNow(t, s, SweepOptions{}, marking())
		sweepNow(t, s, SweepOptions{}, marking())
		if len(x.m)+len(s.pins)+len(s.needs) > 0 {
			t.Errorf("seed %d: %d records, %d pins left", seed, len(x.m), len(s.pins))
		}
		s.Close()
	}
	if recoded == 0 {
		t.Error("no compaction did anything")
	}
}

// For every n: the machine crashes after operation n of saves and sweeps. What has a name can be read, and all of it put
// again.
func TestDeltaCrash(t *testing.T) {
	small := Options{SegmentSize: 2 << 10, ReplayBatch: 4}
	run := func(s *Store) (named map[[2]int]bool) {
		named = map[[2]int]bool{}
		save := func(ids ...[2]int) {
			b := s.Begin()
			defer b.Release()
			for _, id := range ids {
				raw := version(id[0], id[1])
				if _, _, err := b.PutAgainst(cas.Chunk, cas.Sum(raw), raw, fp32, cas.Sum(version(id[0], max(id[1]-1, 0)))); err != nil {
					return
				}
			}
			if b.Commit() == nil {
				for _, id := range ids {
					named[id] = true
				}
			}
		}
		sweep := func() {
			_, _ = s.Sweep(context.Background(), SweepOptions{MaxUnused: 0.4}, keeping(named))
		}
		save([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0})
		save([2]int{0, 1}, [2]int{1, 1}, [2]int{0, 2}, [2]int{0, 3})
		delete(named, [2]int{0, 0})
		delete(named, [2]int{1, 0})
		delete(named, [2]int{0, 2})
		sweep()
		save([2]int{1, 2}, [2]int{2, 1})
		delete(named, [2]int{0, 3})
		delete(named, [2]int{2, 0})
		sweep()
		save([2]int{0, 3}, [2]int{0, 4})
		delete(named, [2]int{0, 1})
		sweep()
		return named
	}
	whole := map[[2]int]bool{{1, 1}: true, {1, 2}: true, {2, 1}: true, {0, 3}: true, {0, 4}: true}
	crashAnywhere(t, small, run, whole)
}

// An index that lost a record says nothing of the versions that were stored against it: it is not stored against one of them, and no pin goes in a circle.
func TestDeltaCircle(t *testing.T) {
	x := newIndex()
	s := open(t, newMem(), x, Options{})
	b := s.Begin()
	for v := range 3 {
		evolve(t, b, 0, v)
	}
	commit(t, b)
	x.mu.Lock()
	delete(x.m, cas.Sum(version(0, 0)))
	x.mu.Unlock()
	b = s.Begin()
	fresh, id, err := putVersion(b, 0, 0, 2)
	if !fresh || codec.NeedsBase(id) || err != nil {
		t.Fatal(fresh, id, err)
	}
	commit(t, b)
	for v := range 3 {
		wantGet(t, s, version(0, v))
	}
	if len(s.pins)+len(s.needs) > 0 {
		t.Errorf("still pinned: %v %v", s.pins, s.needs)
	}
}

// crashAnywhere crashes the disk after each operation of run, which returns what versions are named, and mounts what that left, with the index and
// without: what was named reads back, and run makes the whole of it again.
func crashAnywhere(t *testing.T, opt Options, run func(*Store) map[[2]int]bool, whole map[[2]int]bool) {
	t.Helper()
	for n := 0; ; n++ {
		m, x := newMem(), newIndex()
		m.Inject(disk.CrashAfter(n))
		x.fail = func() error {
			if m.Ops() > n {
				return disk.ErrCrashed
			}
			return nil
		}
		var named map[[2]int]bool
		s, err := Open(m, dir, storeID, x, opt)
		if err == nil {
			named = run(s)
			err = s.Close()
		}
		over := m.Ops() <= n
		if over && (err != nil || !maps.Equal(named, whole)) {
			t.Fatalf("without a crash: %v, %v", named, err)
		}
		for seed := range uint64(3) {
			if testing.Short() && !over && (n+int(seed))%3 != 0 {
				continue
			}
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(uint64(n), seed))
			}
			c := m.CrashClone(rng)
			for i, y := range []*memIndex{x.clone(), newIndex()} {
				d := c.CrashClone(nil)
				what := fmt.Sprintf("crash after %d, seed %d, index lost %v", n, seed, i == 1)
				s, err := Open(d, dir, storeID, y, opt)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				read := func(ids map[[2]int]bool) {
					t.Helper()
					for id := range ids {
						raw := version(id[0], id[1])
						if got, err := s.Get(cas.Sum(raw), nil); err != nil || !bytes.Equal(got, raw) {
							t.Fatalf("%s: %v: %v\n%s", what, id, err, d)
						}
					}
				}
				read(named)
				if _, err := s.Check(t.Context(), CheckOptions{ReadData: true, Found: func(f Finding) {
					if !f.Problem.Harmless() {
						t.Errorf("%s: %s", what, f)
					}
				}}); err != nil {
					t.Fatal(err)
				}
				if again := run(s); !maps.Equal(again, whole) {
					t.Fatalf("%s: then %v", what, again)
				}
				read(whole)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = Open(d, dir, storeID, newIndex(), opt); err != nil {
					t.Fatal(err)
				}
				read(whole)
				s.Close()
			}
		}
		if over {
			t.Logf("%d operations", n)
			return
		}
	}
}

// Many writers of chains that have much in common, beside sweeps and compactions.
func TestDeltaConcurrent(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{SegmentSize: 8 << 10})
	stop := make(chan struct{})
	swept := make(chan struct{})
	live := make(chan map[[2]int]bool, 1)
	live <- map[[2]int]bool{}
	go func() {
		defer close(swept)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := s.Sweep(context.Background(), SweepOptions{MaxUnused: 0.3}, func(ctx context.Context, k *Marking) error {
				l := <-live
				ids := maps.Clone(l)
				live <- l
				return keeping(ids)(ctx, k)
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	compacted := make(chan struct{})
	go func() {
		defer close(compacted)
		r := rand.New(rand.NewPCG(9, 9))
		for {
			select {
			case <-stop:
				return
			default:
			}
			ids := slices.Concat(line(0, 12), line(1, 12), line(halves, 12))
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			back := 1 + r.IntN(3)
			if _, err := recode(context.Background(), s, ids, func(v int) int { return v - back }, func(h cas.Hash) bool { return h[0]&1 != 0 }); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	done := make(chan struct{})
	const writers = 4
	for g := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(uint64(g), 8))
			for range 60 {
				b := s.Begin()
				id := [2]int{[]int{0, 1, halves}[r.IntN(3)], r.IntN(12)}
				if _, _, err := putVersion(b, id[0], id[1], max(0, id[1]-1+r.IntN(3))); err != nil {
					t.Error(err)
				}
				if err := b.Commit(); err != nil {
					t.Error(err)
				}
				l := <-live
				l[id] = true
				live <- l
				b.Release()
				l = <-live
				for _, old := range slices.Collect(maps.Keys(l)) {
					if r.IntN(4) == 0 {
						delete(l, old)
					}
				}
				live <- l
			}
		}()
	}
	for range writers {
		<-done
	}
	close(stop)
	<-swept
	<-compacted
	named := <-live
	for id := range named {
		wantGet(t, s, version(id[0], id[1]))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, newIndex(), Options{})
	for id := range named {
		wantGet(t, s, version(id[0], id[1]))
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
		s.Expect(hashes)
		wantGet(t, s, version(1, 7))
	}
	s.Expect(hashes)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.Expect(hashes)
}

// What a batch gave up, and another put again while it was on its way to the index, keeps its base.
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

// What was stored afresh since a base of it was damaged, and became a base itself, stays one when the segment of the old
// copy, which is whole, is salvaged into a newer one.
func TestDeltaSalvageOfOldCopies(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 3 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	if err := s.roll(); err != nil {
		t.Fatal(err)
	}
	patch(t, m, segment.Path(dir, 1), x.m[cas.Sum(version(1, 0))].Off+segment.RecordHeaderSize+40, 'X', 'X', 'X', 'X')
	_, err := s.Get(cas.Sum(version(1, 2)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b = s.Begin()
	for _, v := range []int{0, 2} {
		if fresh, delta := evolve(t, b, 1, v); !fresh || delta {
			t.Fatal("not stored afresh, whole:", fresh, delta)
		}
	}
	if _, delta := evolve(t, b, 1, 3); !delta {
		t.Fatal("no delta")
	}
	commit(t, b)
	for v := range 4 {
		wantGet(t, s, version(1, v))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := Salvage(m, dir, storeID, SalvageOptions{Aside: "/store/lost", Now: time.Now})
	if err != nil || len(st.Moved) != 1 || st.Moved[0].Records != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, batch := range []int{1, 100} {
		s = open(t, m, newIndex(), Options{ReplayBatch: batch})
		for v := range 4 {
			wantGet(t, s, version(1, v))
		}
		if batch == 100 {
			sweepNow(t, s, SweepOptions{}, keeping(map[[2]int]bool{{1, 3}: true}))
			wantGet(t, s, version(1, 3))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A base that was lost comes back alone when it is put again as a version of something else: what was written against it can
// be read then.
func TestDeltaLostBaseComesBack(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	for v := range 6 {
		evolve(t, b, 1, v)
	}
	commit(t, b)
	lost := cas.Sum(version(1, 2)) // the base of 3
	delete(x.m, lost)
	_, err := s.Get(cas.Sum(version(1, 3)), nil)
	wantErr(t, err, cas.ErrCorrupt)
	b = s.Begin()
	if _, delta, err := b.PutAgainst(cas.Chunk, lost, version(1, 2), fp32, cas.Sum(version(1, 5))); delta || err != nil {
		t.Error("stored as a delta", err)
	}
	commit(t, b)
	for v := range 6 {
		wantGet(t, s, version(1, v))
	}
}
