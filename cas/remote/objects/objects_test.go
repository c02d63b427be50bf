package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// places is what is known, in memory.
type places struct {
	known     map[cas.Hash]objects.Place
	condemned map[record.ID]bool
}

func (p *places) Find(hashes []cas.Hash, at []objects.Place) error {
	for i, h := range hashes {
		at[i] = p.known[h]
	}
	return nil
}

func (p *places) Condemned(ids []record.ID, gone []bool) error {
	for i, id := range ids {
		gone[i] = p.condemned[id]
	}
	return nil
}

// rig packs into a bucket.
type rig struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	b      bucket.Mem
	store  *objectstest.Store
	places places
	rand   *rand.ChaCha8
	put    []*objects.Object // of the last pack
}

func newRig(t interface {
	Helper()
	Fatalf(string, ...any)
}) *rig {
	return &rig{t: t, store: objectstest.New(1), rand: rand.NewChaCha8([32]byte{}),
		places: places{known: map[cas.Hash]objects.Place{}, condemned: map[record.ID]bool{}}}
}

func (r *rig) packer() *objects.Packer {
	r.put = nil
	return objects.New(objects.Options{Source: r.store, Places: &r.places, Random: r.rand,
		Put: func(o *objects.Object) error {
			body := o.Body(r.store, func(err error) { r.t.Fatalf("%v", err) })
			if _, err := r.b.Put(context.Background(), o.Key(), body, bucket.Cond{Absent: true}); err != nil {
				return err
			}
			r.put = append(r.put, o)
			for _, at := range o.Records() {
				r.places.known[at.Hash] = objects.Place{Object: o.Object, Placed: at}
			}
			return nil
		}})
}

// pack packs files, and reads them back.
func (r *rig) pack(manifests ...cas.Hash) []objects.Filed {
	r.t.Helper()
	p := r.packer()
	for _, m := range manifests {
		if err := p.Add(m, nil); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	filed, err := p.Finish(func([]objects.Filed) ([][]byte, error) { return [][]byte{[]byte("commit")}, nil })
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	for i, m := range manifests {
		r.read(m, filed[i])
	}
	return filed
}

func (r *rig) read(m cas.Hash, f objects.Filed) {
	r.t.Helper()
	file := &record.File{Size: 1, Manifest: m, Plan: f.Plan, Deps: f.Deps}
	if err := r.store.Read(context.Background(), &r.b, file); err != nil {
		r.t.Fatalf("%v", err)
	}
	for _, id := range f.Deps {
		if r.places.condemned[id] {
			r.t.Fatalf("relies on %s, which is condemned", id)
		}
	}
}

// Files that share what they consist of, stored one against another, packed, forgotten, condemned and
// recoded, can be read by their plans, whose bases are in them.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		var chunks, lists, files []cas.Hash
		draw := func(from []cas.Hash, n int, name string) []cas.Hash {
			if len(from) == 0 {
				return nil
			}
			return rapid.SliceOfN(rapid.SampledFrom(from), 0, n).Draw(t, name)
		}
		sizes := rapid.SampledFrom([]int{1, 700, 32<<10 - 1, 32 << 10, 40_000})
		size := func() int { return sizes.Draw(t, "size") }
		t.Repeat(map[string]func(*rapid.T){
			"chunk": func(*rapid.T) { chunks = append(chunks, r.store.Alone(cas.Chunk, size())) },
			"delta": func(t *rapid.T) {
				bases := draw(chunks, 2, "bases")
				if len(bases) == 0 || slices.ContainsFunc(bases, r.store.Full) {
					t.Skip()
				}
				chunks = append(chunks, r.store.Delta(cas.Chunk, size(), bases...))
			},
			"recipe": func(t *rapid.T) {
				seen := map[cas.Hash]bool{}
				drawn := draw(chunks, segment.MaxRecipeBases, "bases")
				bases := slices.DeleteFunc(drawn, func(h cas.Hash) bool {
					again := seen[h] || r.store.Number(h) >= segment.RecipeNumber
					seen[h] = true
					return again
				})
				if len(bases) < 3 {
					t.Skip()
				}
				chunks = append(chunks, r.store.Delta(cas.Chunk, size(), bases...))
			},
			"recode": func(t *rapid.T) {
				if len(chunks) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(chunks)-1).Draw(t, "chunk")
				// Only such before it, so that there are no circles; and its number may not rise, for others.
				base := draw(chunks[:i], 1, "base")
				if len(base) > 0 && r.store.Number(base[0])+1 > r.store.Number(chunks[i]) {
					t.Skip()
				}
				r.store.Recode(chunks[i], size(), base...)
			},
			"list": func(*rapid.T) { lists = append(lists, r.store.Alone(cas.List, 900)) },
			"list against another": func(t *rapid.T) {
				base := draw(lists, 1, "base")
				if len(base) == 0 || r.store.Full(base[0]) {
					t.Skip()
				}
				lists = append(lists, r.store.Delta(cas.List, 90, base...))
			},
			"file": func(t *rapid.T) {
				seen := slices.Compact(slices.SortedFunc(slices.Values(draw(lists, 3, "lists")), compare))
				files = append(files, r.store.File(seen, append(draw(chunks, 9, "chunks"),
					draw(lists, 1, "chunk with the bytes of a list")...)))
			},
			"pack": func(t *rapid.T) { r.pack(draw(files, 3, "files")...) },
			"condemn": func(t *rapid.T) {
				for _, info := range r.list() {
					if rapid.Bool().Draw(t, "condemned") {
						_, id, _ := record.ParseObject(info)
						r.places.condemned[id] = true
					}
				}
			},
			"forget": func(*rapid.T) {
				if rapid.Bool().Draw(t, "all") {
					clear(r.places.known)
				}
			},
		})
		r.pack(files...)
		n := len(r.list())
		if r.pack(files...); len(r.list()) != n {
			t.Fatalf("packed again, %d objects more", len(r.list())-n)
		}
	})
}

func compare(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) }

func (r *rig) list() (keys []string) {
	for info, err := range r.b.List(context.Background(), "", "") {
		if err != nil {
			r.t.Fatalf("%v", err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func (r *rig) bytes(o *objects.Object) []byte {
	p, _, err := bucket.Read(context.Background(), &r.b, o.Key(), record.MaxObject, "")
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return p
}

// An object is a segment that a scan reads as its footer says, each of its records tied to its place.
func TestSegment(t *testing.T) {
	r := newRig(t)
	r.pack(r.store.Simple(3, 40_001), r.store.Simple(3, 77))
	if len(r.put) != 2 {
		t.Fatalf("%d objects", len(r.put))
	}
	for _, o := range r.put {
		p := r.bytes(o)
		at, id := bytes.NewReader(p), segment.ID{Store: o.ID, Number: 1}
		if o.Len != int64(len(p)) {
			t.Errorf("%d bytes, want %d", len(p), o.Len)
		}
		f, err := segment.ReadFooter(at, o.Len, id)
		if err != nil {
			t.Fatal(err)
		}
		var listed []segment.Record
		if err := f.Each(at, func(rec *segment.Record) error {
			listed = append(listed, *rec)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		s := segment.NewScanner(at, o.Len, id, 0)
		for i := 0; s.Next(); i++ {
			have, want := s.Record(), listed[i]
			if s.Gap() || have.Off != want.Off || have.Hash != want.Hash || have.Kind != want.Kind ||
				have.Codec != want.Codec || have.Raw != want.Raw || o.Records()[i].Hash != have.Hash ||
				o.Records()[i].CRC != have.CRC {
				t.Errorf("record %d: %+v, listed %+v", i, have, want)
			}
		}
		if s.Err() != nil || s.Tail() != f.Start() || len(listed) != len(o.Records()) {
			t.Errorf("%v, to %d of %d", s.Err(), s.Tail(), f.Start())
		}
	}
}

// A body gives the same bytes each time, also in the smallest reads, and its checksum is theirs.
func TestBody(t *testing.T) {
	r := newRig(t)
	r.pack(r.store.Simple(4, 33_003))
	for _, o := range r.put {
		body := o.Body(r.store, func(err error) { t.Error(err) })
		for _, size := range []int{1, 7, 1 << 20} {
			f, err := body.Open()
			if err != nil {
				t.Fatal(err)
			}
			var p bytes.Buffer
			if _, err := io.CopyBuffer(&p, struct{ io.Reader }{f}, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p.Bytes(), r.bytes(o)) || !body.Immutable ||
				crc32.Checksum(p.Bytes(), crc32.MakeTable(crc32.Castagnoli)) != body.CRC32C {
				t.Errorf("in reads of %d: other bytes", size)
			}
			if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF || f.Close() != nil {
				t.Error(n, err)
			}
		}
	}
}

// An error of the store ends the body, each time that it is read, and says what was not read.
func TestBodyFails(t *testing.T) {
	r := newRig(t)
	m := r.store.Simple(4, 33_003)
	r.pack(m)
	h, broken := r.store.Chunks(m)[2], errors.New("broken")
	r.store.Lose(h, broken)
	var told error
	body := r.put[0].Body(r.store, func(err error) { told = err })
	for range 2 {
		f, _ := body.Open()
		n, err := io.Copy(io.Discard, f)
		var lost *objects.LostError
		if !errors.Is(err, broken) || !errors.As(told, &lost) || lost.Hash != h || n == 0 {
			t.Error(n, err, told)
		}
		told = nil
	}
}

// The length of the meta object is in plans that lie in it: it comes out right where it takes a byte more in
// them. And a second packing finds the same plans.
func TestPlanLength(t *testing.T) {
	for _, limit := range []int{8 << 10, 1 << 20} { // whose double takes a byte more
		past := 0
		for size := limit - 8_000; size < limit-600; size += 8 {
			if limit > 1<<16 && size%64 != 0 {
				continue
			}
			r := newRig(t)
			var chunks []cas.Hash
			for left := size; left > 0; left -= 30_000 {
				chunks = append(chunks, r.store.Alone(cas.Chunk, min(left, 30_000)))
			}
			files := []cas.Hash{r.store.File(nil, chunks), r.store.File(nil, chunks[:1])}
			filed := r.pack(files...)
			if len(r.put) != 1 {
				t.Fatalf("%d objects", len(r.put))
			}
			if r.put[0].Len >= int64(limit) {
				past++
			}
			if again := r.pack(files...); len(r.put) > 0 || fmt.Sprint(again) != fmt.Sprint(filed) {
				t.Fatalf("%d bytes: packed again", size)
			}
		}
		if past == 0 {
			t.Errorf("%d is not reached", limit)
		}
	}
}

// Objects are as long as they may be and no longer, and what a reader needs first lies first.
func TestFull(t *testing.T) {
	r := newRig(t)
	var chunks []cas.Hash
	for range 260 {
		chunks = append(chunks, r.store.Alone(cas.Chunk, 500_000))
	}
	delta := r.store.Delta(cas.Chunk, 25_000, chunks[259])
	r.pack(r.store.File([]cas.Hash{r.store.Alone(cas.List, 9_000)}, append([]cas.Hash{delta}, chunks...)))
	if len(r.put) != 3 {
		t.Fatalf("%d objects", len(r.put))
	}
	var order []cas.Hash
	for _, o := range r.put[:2] {
		if o.Len > record.MaxObject || o.Len < record.MaxObject-600_000 && o == r.put[0] {
			t.Errorf("%d bytes", o.Len)
		}
		for _, at := range o.Records() {
			order = append(order, at.Hash)
		}
	}
	if want := append([]cas.Hash{chunks[259]}, chunks[:259]...); !slices.Equal(order, want) {
		t.Error("another order")
	}
}

// What is removed at different times lies in different objects: large files, and what is stored against
// other records. Many small files lie in few objects.
func TestApart(t *testing.T) {
	r := newRig(t)
	alone := func(n, size int) (chunks []cas.Hash) {
		for range n {
			chunks = append(chunks, r.store.Alone(cas.Chunk, size))
		}
		return chunks
	}
	against := func(bases []cas.Hash, size int) (chunks []cas.Hash) {
		for _, b := range bases {
			chunks = append(chunks, r.store.Delta(cas.Chunk, size, b))
		}
		return chunks
	}
	base := alone(40, 100_000)
	r.pack(r.store.File(nil, base))
	for _, c := range []struct {
		name  string
		files [][]cas.Hash
		want  []int // records of each data object
	}{
		{"two large files", [][]cas.Hash{alone(12, 100_000), alone(20, 100_000)}, []int{12, 20}},
		{"a small file behind a large one", [][]cas.Hash{alone(30, 1<<20), alone(1, 100_000)}, []int{30, 1}},
		{"small files", [][]cas.Hash{alone(5, 100_000), alone(5, 100_000), alone(5, 100_000)}, []int{15}},
		{"many small files", slices.Collect(slices.Chunk(alone(1000, 100_000), 1)), []int{670, 330}},
		{"small beside the whole", [][]cas.Hash{alone(60, 1<<20), alone(2, 1<<20), alone(1, 1<<20)},
			[]int{60, 3}},
		{"kinds", [][]cas.Hash{slices.Concat(alone(12, 100_000), against(base, 40_000))}, []int{12, 40}},
		{"few of each kind", [][]cas.Hash{slices.Concat(alone(5, 40_000), against(base[:5], 40_000))},
			[]int{10}},
	} {
		var files []cas.Hash
		for _, chunks := range c.files {
			files = append(files, r.store.File(nil, chunks))
		}
		r.pack(files...)
		var got []int
		for _, o := range r.put {
			if o.Class == record.ClassData {
				got = append(got, len(o.Records()))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: objects of %v records, want %v", c.name, got, c.want)
		}
	}
}

// A step of files of one size takes few objects more than one of a single file.
func TestShards(t *testing.T) {
	r := newRig(t)
	var files []cas.Hash
	for range 64 {
		files = append(files, r.store.Simple(8, 500_000))
	}
	if r.pack(files...); len(r.put) > 4+24 {
		t.Errorf("%d objects of 256 MB", len(r.put))
	}
}

// Plans that do not all fit behind the last meta object lie in another one, all of them.
func TestPlansElsewhere(t *testing.T) {
	r := newRig(t)
	// What is left for plans of some 7,000 bytes each.
	left := int64(record.MaxObject - 20_000 - segment.FileHeaderSize)
	left -= segment.FooterSize(9) + 9*segment.Size(300) // the manifests
	var chunks []cas.Hash
	for n := segment.Size(31_000) + 56; left > n+2_000; left -= n {
		chunks = append(chunks, r.store.Alone(cas.Chunk, 31_000))
	}
	chunks = append(chunks, r.store.Alone(cas.Chunk, int(left)/8*8-56-segment.RecordHeaderSize))
	var files []cas.Hash
	for i := range 9 {
		files = append(files, r.store.File(nil, append(chunks[i:len(chunks):len(chunks)], chunks[:i]...)))
	}
	filed := r.pack(files...)
	if len(r.put) != 2 || filed[0].Plan.Object != r.put[1].ID || len(filed[0].Deps) != 2 ||
		record.MaxObject-r.put[0].Len < 19_900 || record.MaxObject-r.put[0].Len > 20_100 {
		t.Errorf("%d objects, of %d bytes, %+v", len(r.put), r.put[0].Len, filed[0])
	}
	if last := r.put[1].Records(); len(last) != 10 || last[9].Kind != cas.Commit {
		t.Errorf("%+v", last)
	}
}

// What is there is relied on exactly where a reader can decode it, with bases that are there or put.
func TestRelied(t *testing.T) {
	type world struct {
		*rig
		base, other, delta, next cas.Hash // next is stored against delta, that against base
	}
	for _, c := range []struct {
		name   string
		change func(w *world)
		file   func(w *world) []cas.Hash
		put    int // records, but for the manifest
		bases  int // in the plan
	}{
		{"all", func(w *world) {}, func(w *world) []cas.Hash { return []cas.Hash{w.delta} }, 0, 1},
		{"a chain", func(w *world) {}, func(w *world) []cas.Hash { return []cas.Hash{w.next} }, 0, 2},
		{"a base that is a chunk", func(w *world) {},
			func(w *world) []cas.Hash { return []cas.Hash{w.next, w.base} }, 0, 1},
		{"another base here", func(w *world) { w.store.Recode(w.delta, 40_000, w.other) },
			func(w *world) []cas.Hash { return []cas.Hash{w.delta} }, 3, 2},
		{"alone here", func(w *world) { w.store.Recode(w.delta, 40_000) },
			func(w *world) []cas.Hash { return []cas.Hash{w.delta} }, 1, 0},
		{"alone there", func(w *world) { w.store.Recode(w.base, 40_000, w.other) },
			func(w *world) []cas.Hash { return []cas.Hash{w.base} }, 0, 0},
		{"a base alone there", func(w *world) {
			w.store.Recode(w.base, 40_000, w.other)
			w.store.Recode(w.delta, 40_000, w.base)
		}, func(w *world) []cas.Hash { return []cas.Hash{w.delta} }, 1, 1},
		{"a base alone there, of what is condemned", func(w *world) {
			w.store.Recode(w.base, 40_000, w.other)
			w.places.condemn(w.delta)
		}, func(w *world) []cas.Hash { return []cas.Hash{w.delta} }, 1, 1},
		{"of another kind there", func(w *world) {
			at := w.places.known[w.base]
			at.Kind = cas.List
			w.places.known[w.base] = at
		}, func(w *world) []cas.Hash { return []cas.Hash{w.base} }, 1, 0},
	} {
		w := &world{rig: newRig(t)}
		w.base = w.store.Alone(cas.Chunk, 40_000)
		w.pack(w.store.File(nil, []cas.Hash{w.base}))
		w.delta = w.store.Delta(cas.Chunk, 40_000, w.base)
		w.next = w.store.Delta(cas.Chunk, 40_000, w.delta)
		w.pack(w.store.File(nil, []cas.Hash{w.next}))
		w.other = w.store.Delta(cas.Chunk, 40_000, w.store.Alone(cas.Chunk, 40_000))
		c.change(w)
		f := w.pack(w.store.File(nil, c.file(w)))
		put := 0
		for _, o := range w.put {
			for _, at := range o.Records() {
				if at.Kind == cas.Chunk {
					put++
				}
			}
		}
		if plan := w.plan(f[0]); put != c.put || len(plan.Bases) != c.bases {
			t.Errorf("%s: %d put, want %d; %d bases, want %d", c.name, put, c.put, len(plan.Bases), c.bases)
		}
	}
}

// Manifests and lists lie right before the plans, behind all chunks.
func TestBesidePlans(t *testing.T) {
	r := newRig(t)
	base := r.store.Alone(cas.List, 900)
	first := r.store.File([]cas.Hash{base}, []cas.Hash{r.store.Alone(cas.Chunk, 700)})
	list := r.store.Delta(cas.List, 90, base)
	second := r.store.File([]cas.Hash{list}, []cas.Hash{r.store.Alone(cas.Chunk, 700)}, first)
	r.pack(second, first)
	var kinds []cas.Kind
	for _, at := range r.put[0].Records() {
		kinds = append(kinds, at.Kind)
	}
	want := []cas.Kind{cas.Chunk, cas.Chunk, cas.Manifest, cas.Manifest, cas.List, cas.List, cas.Plan,
		cas.Plan, cas.Commit}
	if len(r.put) != 1 || !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
}

// condemn condemns the object that has a record.
func (p *places) condemn(h cas.Hash) { p.condemned[p.known[h].Object.ID] = true }

func (r *rig) plan(f objects.Filed) *record.Plan {
	r.t.Helper()
	key := record.ClassMeta.Key(f.Plan.Object)
	p, _, err := bucket.Read(context.Background(), &r.b, key, record.MaxObject, "")
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	at := f.Plan.Off + segment.RecordHeaderSize
	plan, err := record.DecodePlan(p[at : at+int64(f.Plan.Stored)])
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return plan
}

// A file that is added twice has one plan.
func TestTwice(t *testing.T) {
	r := newRig(t)
	m := r.store.Simple(2, 40_000)
	if f := r.pack(m, m); fmt.Sprint(f[0]) != fmt.Sprint(f[1]) {
		t.Errorf("%+v", f)
	}
}

// Parts of graphs lie in meta objects, and these are deps.
func TestGraph(t *testing.T) {
	r := newRig(t)
	m, part := r.store.Simple(1, 40_000), r.store.Alone(cas.Event, 50_000)
	for i, want := range []int{2, 0, 2} {
		if i == 2 {
			m = r.store.Simple(1, 40_000)
		}
		p := r.packer()
		if err := p.Add(m, []cas.Hash{part}); err != nil {
			t.Fatal(err)
		}
		filed, err := p.Finish(func([]objects.Filed) ([][]byte, error) { return nil, nil })
		if err != nil || len(r.put) != want {
			t.Fatalf("%d: %v, %d objects", i, err, len(r.put))
		}
		g := filed[0].Graph[0]
		if class := r.places.known[part].Object.Class; class != record.ClassMeta || g.Hash != part ||
			g.Object != r.places.known[part].Object.ID || !slices.Contains(filed[0].Deps, g.Object) ||
			i == 2 && len(filed[0].Deps) != 3 {
			t.Errorf("%c: %+v", class, filed[0])
		}
		r.read(m, filed[0])
	}
	p := r.packer()
	chunk := r.store.Alone(cas.Chunk, 40_000)
	for _, bad := range []cas.Hash{{9}, r.store.Delta(cas.Event, 90, chunk)} {
		var lost *objects.LostError
		if err := p.Add(m, []cas.Hash{bad}); !errors.As(err, &lost) || lost.Hash != bad {
			t.Error(err)
		}
	}
}

// A packer takes memory for headers, and not for what they are of.
func TestMemory(t *testing.T) {
	r := newRig(t)
	var chunks []cas.Hash
	for range 100 {
		chunks = append(chunks, r.store.Alone(cas.Chunk, 1<<20))
	}
	m := r.store.File(nil, chunks)
	p := objects.New(objects.Options{Source: r.store, Places: &r.places, Random: r.rand,
		Put: func(o *objects.Object) error {
			f, err := o.Body(r.store, func(error) {}).Open()
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, struct{ io.Reader }{f})
			if n != o.Len {
				t.Errorf("%d bytes, want %d", n, o.Len)
			}
			return err
		}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := p.Add(m, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Finish(func([]objects.Filed) ([][]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// Two objects, each with a payload at a time.
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d bytes of memory for 100 MB", took)
	}
}
