package bring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
)

// sameStored holds that two stores have the records of a file in the same encoding.
func sameStored(t *testing.T, from, to *store.Store, f *remotetest.Saved) {
	t.Helper()
	var all [2]map[cas.Hash]segment.Record
	for i, s := range []*store.Store{from, to} {
		src := local.Begin(s)
		defer src.Close()
		c, err := src.Closure(f.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = map[cas.Hash]segment.Record{}
		for _, r := range c.Records {
			r.Off = 0
			all[i][r.Hash] = r.Record
		}
	}
	for h, r := range all[0] {
		if all[1][h] != r {
			t.Errorf("%s is stored as %+v, was %+v", h.Short(), all[1][h], r)
		}
	}
}

// What is brought can be read from the local store alone, in whatever order its records lie.
func TestBring(t *testing.T) {
	for _, c := range []struct {
		name     string
		each     int
		version  int
		shuffle  bool
		computed bool
	}{
		{"alone", 1000, 0, false, false}, {"deltas", 1000, 7, false, false},
		{"small objects", 5, 7, false, false}, {"shuffled", 1000, 7, true, false},
		{"shuffled, small", 3, 6, true, false}, {"recipes", 1000, 0, false, true},
		{"recipes of deltas", 5, 1, false, true}, {"recipes, shuffled", 3, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := remotetest.NewStore(t)
			var f *remotetest.Saved
			for v := range c.version + 1 {
				f = blob.Save(t, from, v, f)
			}
			if c.computed {
				f = blob.Compute(t, from, f)
			}
			var shuffle func(int, func(i, j int))
			if c.shuffle {
				shuffle = rand.New(rand.NewPCG(1, 2)).Shuffle
			}
			p, plan := publish(t, from, f.Manifest, c.each, shuffle)
			if (len(plan.Bases) > 0) != (c.version > 0 || c.computed) {
				t.Fatalf("%d bases", len(plan.Bases))
			}
			b := &counting{Mem: &bucket.Mem{}}
			e := p.entry(t, b.Mem, plan)
			to := remotetest.NewStore(t)
			got, err := bringTo(t, to, b, nil, e)
			if err != nil || !bytes.Equal(got, f.Content) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(f.Content), err)
			}
			sameStored(t, from, to, f)
			b.gets = 0
			if _, err := bringTo(t, to, b, nil, e); err != nil || b.gets > 0 {
				t.Errorf("again: %d requests, %v", b.gets, err)
			}
		})
	}
}

// What the local store has is not fetched, and a delta's base that is local serves.
func TestHeld(t *testing.T) {
	from, to := remotetest.NewStore(t), remotetest.NewStore(t)
	var f [6]*remotetest.Saved
	for v := range f {
		var prev *remotetest.Saved
		if v > 0 {
			prev = f[v-1]
		}
		f[v] = blob.Save(t, from, v, prev)
	}
	b := &counting{Mem: &bucket.Mem{}}
	p, plan := publish(t, from, f[4].Manifest, 1000, nil)
	if _, err := bringTo(t, to, b, nil, p.entry(t, b.Mem, plan)); err != nil {
		t.Fatal(err)
	}
	b.Mem, b.gets = &bucket.Mem{}, 0
	p, plan = publish(t, from, f[5].Manifest, 1000, nil)
	e := p.entry(t, b.Mem, plan)
	batch := to.Begin()
	defer batch.Release()
	var put atomic.Int64
	x := &Bringer{Reader: &fetch.Reader{Bucket: b}, Store: to, Progress: func(n, _ int64) { put.Add(n) }}
	err := x.File(t.Context(), batch, e)
	if err == nil {
		err = batch.Commit()
	}
	if own := int64(len(f[5].Hashes)); err != nil || b.gets > 3 || put.Load() != own {
		t.Errorf("%d requests, %d records, want %d; %v", b.gets, put.Load(), own, err)
	}
	sameStored(t, from, to, f[5])
}

// Whatever bytes come instead of the right ones, there is an error that says where, and no wrong byte; or the
// right bytes are had from the origin.
func TestWrongBytes(t *testing.T) {
	from := remotetest.NewStore(t)
	var f *remotetest.Saved
	for v := range 4 {
		f = blob.Save(t, from, v, f)
	}
	b := &counting{Mem: &bucket.Mem{}}
	p, plan := publish(t, from, f.Manifest, 12, nil)
	e := p.entry(t, b.Mem, plan)
	r := rand.New(rand.NewPCG(3, 4))
	failed, tries := 0, 120
	if testing.Short() {
		tries = 30
	}
	for n := range tries {
		i := r.IntN(len(p.infos))
		object, key := p.objects[i], p.infos[i].Class.Key(p.infos[i].ID)
		bit := r.IntN(8 * len(object))
		change := func(k string, off int64, q []byte) []byte {
			if at := int64(bit/8) - off; k == key && at >= 0 && at < int64(len(q)) {
				q[at] ^= 1 << (bit % 8)
			}
			return q
		}
		switch n % 3 {
		case 1: // cut
			change = func(k string, off int64, q []byte) []byte {
				if k == key {
					q = q[:max(0, min(int64(len(q)), int64(bit/8)-off))]
				}
				return q
			}
		case 2: // another object, or another place
			other := p.objects[r.IntN(len(p.objects))]
			change = func(k string, off int64, q []byte) []byte {
				if k == key {
					clear(q)
					copy(q, other[min(int(off), len(other)):])
				}
				return q
			}
		}
		b.change = change
		to := remotetest.NewStore(t)
		got, err := bringTo(t, to, b, nil, e)
		switch {
		case err == nil && !bytes.Equal(got, f.Content):
			t.Fatalf("%d: wrong bytes", n)
		case err != nil:
			failed++
			var at *fetch.Error
			if !errors.As(err, &at) || at.Key != key || !strings.Contains(err.Error(), e.Path) {
				t.Fatalf("%d: of %s: %v", n, key, err)
			}
			if got, err := bringTo(t, to, b, b.Mem, e); err != nil || !bytes.Equal(got, f.Content) {
				t.Fatalf("%d: from the origin: %v", n, err)
			}
		}
	}
	if failed < tries/2 {
		t.Errorf("%d of %d failed", failed, tries)
	}
}

// A plan that lies is an error, and no record comes from it that is not what its hash names.
func TestPlanLies(t *testing.T) {
	from := remotetest.NewStore(t)
	var f, before *remotetest.Saved
	for v := range 4 {
		before, f = f, blob.Save(t, from, v, f)
	}
	for name, lie := range map[string]func(p *record.Plan){
		"another file":  func(p *record.Plan) { p.Manifest = before.Manifest },
		"size":          func(p *record.Plan) { p.Size++ },
		"manifest":      func(p *record.Plan) { p.Record.Place = p.Chunks[0] },
		"manifest raw":  func(p *record.Plan) { p.Record.Raw++ },
		"a list":        func(p *record.Plan) { p.Lists[0], p.Lists[1] = p.Lists[1], p.Lists[0] },
		"few lists":     func(p *record.Plan) { p.Lists = p.Lists[1:] },
		"no last list":  func(p *record.Plan) { p.Lists = p.Lists[:len(p.Lists)-1] },
		"list raw":      func(p *record.Plan) { p.Lists[2].Raw = 16<<20 - 1 },
		"few chunks":    func(p *record.Plan) { p.Chunks = p.Chunks[:len(p.Chunks)-1] },
		"many chunks":   func(p *record.Plan) { p.Chunks = append(p.Chunks, p.Chunks[0]) },
		"swapped":       func(p *record.Plan) { p.Chunks[3], p.Chunks[9] = p.Chunks[9], p.Chunks[3] },
		"twice":         func(p *record.Plan) { p.Chunks[3] = p.Chunks[9] },
		"length":        func(p *record.Plan) { p.Chunks[5].Stored -= 8 },
		"long":          func(p *record.Plan) { p.Chunks[5].Stored += 8 },
		"offset":        func(p *record.Plan) { p.Chunks[5].Off += 8 },
		"no bases":      func(p *record.Plan) { p.Bases = nil },
		"a base's hash": func(p *record.Plan) { p.Bases[7].Hash[0]++ },
		"a base's raw":  func(p *record.Plan) { p.Bases[7].Raw++ },
		"a base's kind": func(p *record.Plan) { p.Bases[7].Kind = cas.List },
	} {
		t.Run(name, func(t *testing.T) {
			b := &counting{Mem: &bucket.Mem{}}
			p, plan := publish(t, from, f.Manifest, 1000, nil)
			lie(plan)
			e := p.entry(t, b.Mem, plan)
			e.File.Manifest, e.File.Size = f.Manifest, int64(len(f.Content))
			to := remotetest.NewStore(t)
			got, err := bringTo(t, to, b, nil, e)
			harmless := name == "a list" && err == nil && bytes.Equal(got, f.Content)
			if !harmless && !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%v", err)
			}
			st, err := to.Check(context.Background(), store.CheckOptions{ReadData: true})
			if err != nil || st.Findings > 0 {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

// An entry that lies is an error.
func TestEntryLies(t *testing.T) {
	from := remotetest.NewStore(t)
	f := blob.Save(t, from, 0, nil)
	honest := func(*record.Plan) {}
	for name, c := range map[string]struct {
		plan  func(p *record.Plan)
		entry func(f *record.File)
	}{
		"size":         {func(p *record.Plan) { p.Size++ }, func(*record.File) {}},
		"manifest":     {func(p *record.Plan) { p.Manifest[0]++ }, func(*record.File) {}},
		"objects":      {honest, func(f *record.File) { f.Deps = f.Deps[1:] }},
		"plan":         {honest, func(f *record.File) { f.Plan.Off += 8 }},
		"another plan": {honest, func(f *record.File) { f.Manifest[5]++ }},
	} {
		b := &bucket.Mem{}
		p, plan := publish(t, from, f.Manifest, 1000, nil)
		c.plan(plan)
		e := p.entry(t, b, plan) // says what the plan does
		c.entry(e.File)
		if _, err := bringTo(t, remotetest.NewStore(t), b, nil, e); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A record whose checksums are right and whose content is another's is not put.
func TestForged(t *testing.T) {
	from := remotetest.NewStore(t)
	f := blob.Save(t, from, 0, nil)
	forge := func(change func(r *segment.Record, payload []byte) []byte) error {
		b := &bucket.Mem{}
		p, plan := publish(t, from, f.Manifest, 1000, nil)
		at := plan.Chunks[4]
		object := p.objects[0][at.Off:]
		rec, err := segment.ParseRecord(object, segment.ID{Store: p.infos[0].ID, Number: 1}, at.Off)
		if err != nil {
			t.Fatal(err)
		}
		payload := change(&rec, slices.Clone(object[segment.RecordHeaderSize:][:rec.Stored]))
		rec.Stored, rec.CRC = uint32(len(payload)), bucket.Bytes(payload).CRC32C
		p.begin(record.ClassData)
		plan.Chunks[4] = p.add(rec, payload)
		p.end()
		plan.Objects = p.infos
		got, err := bringTo(t, remotetest.NewStore(t), b, nil, p.entry(t, b, plan))
		if err == nil && !bytes.Equal(got, f.Content) {
			t.Error("wrong bytes")
		}
		return err
	}
	if err := forge(func(_ *segment.Record, p []byte) []byte { return p }); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(r *segment.Record, payload []byte) []byte{
		"content": func(r *segment.Record, p []byte) []byte {
			raw := blob.Chunk(1, 1, 1)
			r.Codec, r.XXH3 = codec.Raw, cas.SumXXH3(raw)
			return raw
		},
		"XXH3":  func(r *segment.Record, p []byte) []byte { r.XXH3[0]++; return p },
		"codec": func(r *segment.Record, p []byte) []byte { r.Codec = codec.Raw; return p },
		"delta": func(r *segment.Record, p []byte) []byte { r.Codec = codec.Delta; return p },
	} {
		if err := forge(change); !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), "chunk ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := forge(func(r *segment.Record, p []byte) []byte { r.Codec = 99; return p })
	if !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a codec of a later version: %v", err)
	}
}

// What there is no room for to wait is fetched again.
func TestNoRoomToWait(t *testing.T) {
	defer func(n int) { maxWaiting = n }(maxWaiting)
	maxWaiting = 2 << 10
	from := remotetest.NewStore(t)
	var f *remotetest.Saved
	for v := range 8 {
		f = blob.Save(t, from, v, f)
	}
	b := &counting{Mem: &bucket.Mem{}}
	p, plan := publish(t, from, f.Manifest, 1000, func(n int, swap func(i, j int)) {
		for i := range n / 2 { // bases come last
			swap(i, n-1-i)
		}
	})
	to := remotetest.NewStore(t)
	got, err := bringTo(t, to, b, nil, p.entry(t, b.Mem, plan))
	if err != nil || !bytes.Equal(got, f.Content) || b.gets < 4 || b.gets > 20 {
		t.Fatalf("%d bytes, %d requests, %v", len(got), b.gets, err)
	}
	sameStored(t, from, to, f)
}

// A base that seemed to be there and is damaged is fetched.
func TestLocalBaseDamaged(t *testing.T) {
	from, m := remotetest.NewStore(t), disk.NewMem()
	to := remotetest.NewStoreOn(t, m)
	f := blob.Save(t, from, 0, nil)
	blob.Save(t, to, 0, nil)
	f = blob.Save(t, from, 1, f)
	b := &counting{Mem: &bucket.Mem{}}
	p, plan := publish(t, from, f.Manifest, 1000, nil)
	if len(plan.Bases) != blob.Tensors*blob.Chunks {
		t.Fatalf("%d bases", len(plan.Bases))
	}
	damageChunks(t, m)
	got, err := bringTo(t, to, b, nil, p.entry(t, b.Mem, plan))
	if err != nil || !bytes.Equal(got, f.Content) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// What another batch is just putting is not relied on: it may be taken back.
func TestPendingElsewhere(t *testing.T) {
	from, to := remotetest.NewStore(t), remotetest.NewStore(t)
	f := blob.Save(t, from, 0, nil)
	b := &bucket.Mem{}
	p, plan := publish(t, from, f.Manifest, 1000, nil)
	e := p.entry(t, b, plan)
	other := to.Begin()
	defer other.Release()
	for c := range blob.Chunks {
		raw := blob.Chunk(0, c, 0)
		if _, err := other.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
			t.Fatal(err)
		}
	}
	batch := to.Begin()
	defer batch.Release()
	x := &Bringer{Reader: &fetch.Reader{Bucket: b}, Store: to}
	if err := x.File(t.Context(), batch, e); err != nil {
		t.Fatal(err)
	}
	other.TakeBack()
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, h := range f.Hashes {
		if _, err := to.Get(h, nil); err != nil {
			t.Error(err)
		}
	}
}

// damageChunks flips a bit of every payload in the first segment but manifests and lists.
func damageChunks(t *testing.T, m *disk.Mem) {
	t.Helper()
	r, err := segment.Open(m, "/store/segments", segment.ID{Store: [16]byte{1}, Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := m.OpenFile(segment.Path("/store/segments", 1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s, err := r.Scan(0)
	if err != nil {
		t.Fatal(err)
	}
	var offs []int64
	for s.Next() {
		if rec := s.Record(); !s.Gap() && rec.Kind == cas.Chunk {
			offs = append(offs, rec.Off+segment.RecordHeaderSize+int64(rec.Stored)/2)
		}
	}
	for _, off := range offs {
		var p [1]byte
		if _, err := w.ReadAt(p[:], off); err != nil {
			t.Fatal(err)
		}
		p[0] ^= 1
		if _, err := w.WriteAt(p[:], off); err != nil {
			t.Fatal(err)
		}
	}
	if len(offs) == 0 {
		t.Fatal("no chunk")
	}
}
