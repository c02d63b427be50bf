package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/segment"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

var remote = record.ID{9}

// rig is a remote with writers of files that are manifests and nothing else.
type rig struct {
	testing.TB
	bucket.Mem
	b       bucket.Bucket // Mem, or what is before it
	writers map[string]*writer.Writer
	files   map[cas.Hash][]byte
}

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, writers: map[string]*writer.Writer{}, files: map[cas.Hash][]byte{}}
	r.b = &r.Mem
	return r
}

// digest is that of an object of a number.
func digest(n int) cas.Hash { return cas.Sum(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

// Closure is objects.Source's: the manifest alone.
func (r *rig) Closure(h cas.Hash) (*objects.Closure, error) {
	rec, err := r.Record(h)
	doc, derr := manifest.Decode(r.files[h])
	if err = errors.Join(err, derr); err != nil {
		return nil, err
	}
	records := []objects.Record{{Record: rec}}
	return &objects.Closure{Size: doc.Size, Records: records}, nil
}

func (r *rig) Record(h cas.Hash) (segment.Record, error) {
	p := r.files[h]
	return segment.Record{Kind: cas.Manifest, Codec: codec.Raw, Raw: uint32(len(p)), Stored: uint32(len(p)),
		Hash: h, XXH3: cas.SumXXH3(p), CRC: bucket.Bytes(p).CRC32C}, nil
}

func (r *rig) Payload(rec *segment.Record, p []byte) error {
	copy(p, r.files[rec.Hash])
	return nil
}

// push publishes a file of objects, each of a size in KiB, and says where its plan is.
func (r *rig) push(who, path string, sizes map[int]int64) record.Ref {
	r.Helper()
	doc := &manifest.Manifest{Format: "blob"}
	for n := range 1 << 16 {
		size := sizes[n] << 10
		if size == 0 {
			continue
		}
		doc.Extents = append(doc.Extents, manifest.Extent{Len: size, Object: int32(len(doc.Objects))})
		doc.Regions = append(doc.Regions, formats.Region{Off: doc.Size, Len: size, Kind: formats.Blob})
		doc.Objects = append(doc.Objects, manifest.Object{Digest: digest(n), Len: size, List: true})
		doc.Size += size
	}
	p, err := doc.Encode()
	if err != nil {
		r.Fatal(err)
	}
	h := cas.Sum(p)
	r.files[h] = p
	return r.commit(who, record.Entry{Path: path, File: &record.File{Size: doc.Size, Manifest: h}}).File.Plan
}

func (r *rig) commit(who string, e record.Entry) record.Entry {
	r.Helper()
	if r.writers[who] == nil {
		w := record.Writer(fmt.Sprintf("%s.%08x", who, len(r.writers)))
		r.writers[who] = writer.New(writer.Options{Bucket: &r.Mem, Remote: remote, State: &writer.Mem{},
			Now: time.Now, Random: rand.NewChaCha8([32]byte{byte(len(r.writers))}), Parallel: 1,
			Register: func(ctx context.Context) (record.Writer, error) {
				_, err := r.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
				return w, err
			}})
	}
	res, err := r.writers[who].Push(r.Context(), r, writer.Changes{Entries: []record.Entry{e}})
	if err != nil || len(res.Failed) > 0 {
		r.Fatal(res.Failed, err)
	}
	return res.Head.Find(e.Path)[0]
}

func (r *rig) remove(who, path string) {
	r.commit(who, record.Entry{Path: path, Kind: record.KindTombstone})
}

func (r *rig) make() Made {
	r.Helper()
	made, err := r.tryMake()
	if err != nil {
		r.Fatal(err)
	}
	return made
}

func (r *rig) tryMake() (Made, error) {
	return Make(r.Context(), r.b,
		Options{Remote: remote, Now: time.Now, Random: rand.NewChaCha8([32]byte{99})})
}

// find says which of the objects the index has, by a fresh reader.
func (r *rig) find(n ...int) []record.Ref {
	r.Helper()
	x := NewReader(&r.Mem, remote)
	digests := make([]record.Digest, len(n))
	for i := range n {
		digests[i] = record.DigestOf(digest(n[i]))
	}
	err := x.Refresh(r.Context())
	at, ferr := x.Find(r.Context(), digests)
	if err = errors.Join(err, ferr); err != nil {
		r.Fatal(err)
	}
	return at
}

func (r *rig) expect(n int, want record.Ref) {
	r.Helper()
	if at := r.find(n)[0]; at != want {
		r.Errorf("object %d: %+v, want %+v", n, at, want)
	}
}

var none record.Ref

// The index has the large objects of all files, of each the file that was published last, and what is new is
// all that is read again.
func TestMake(t *testing.T) {
	r := newRig(t)
	if made := r.make(); made != (Made{}) {
		t.Errorf("of nothing: %+v", made)
	}
	a := r.push("a", "runs/a/1/x", map[int]int64{1: 300, 2: 256, 3: 255})
	b := r.push("b", "runs/b/1/x", map[int]int64{2: 256, 4: 1 << 20})
	made := r.make()
	if made.Files != 2 || made.Added != 2 || made.Items != 5 || made.Shards != 1 || made.Put == 0 {
		t.Errorf("%+v", made)
	}
	for n, want := range map[int]record.Ref{1: a, 2: b, 3: none, 4: b, 5: none} {
		r.expect(n, want)
	}
	if made := r.make(); made.Added != 0 || made.Put != 0 || made.Items != 5 {
		t.Errorf("again: %+v", made)
	}
	c := r.push("a", "runs/a/2/x", map[int]int64{1: 300, 5: 300})
	if made := r.make(); made.Added != 1 || made.Items != 7 {
		t.Errorf("one more: %+v", made)
	}
	r.expect(1, c)
	r.expect(2, b)
	r.remove("a", "runs/a/2/x")
	if made := r.make(); made.Removed != 3 || made.Items != 4 {
		t.Errorf("one less: %+v", made)
	}
	r.expect(5, none)
	r.expect(4, b)
}

// A reader asks for the head, and then for a directory and a block of each shard that it needs, once.
func TestFind(t *testing.T) {
	r := newRig(t)
	a := r.push("a", "runs/a/1/x", map[int]int64{1: 300, 2: 300, 3: 300})
	r.make()
	gets := 0
	x := NewReader(hooked{Bucket: &r.Mem, get: func(string) { gets++ }}, remote)
	all := []record.Digest{record.DigestOf(digest(1)), record.DigestOf(digest(7)), record.DigestOf(digest(3))}
	for range 3 {
		if err := x.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		at, err := x.Find(t.Context(), all)
		if err != nil || !slices.Equal(at, []record.Ref{a, none, a}) {
			t.Errorf("%+v, %v", at, err)
		}
	}
	if gets != 3+1+3 {
		t.Errorf("%d requests", gets)
	}
}

type hooked struct {
	bucket.Bucket
	get func(key string)
	put func(key string, put doPut) (bucket.Version, error)
}

type doPut func() (bucket.Version, error)

func (h hooked) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if h.get != nil {
		h.get(key)
	}
	return h.Bucket.Get(ctx, key, off, n, unless)
}

func (h hooked) Put(ctx context.Context, key string, b bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	put := func() (bucket.Version, error) { return h.Bucket.Put(ctx, key, b, cond) }
	if h.put == nil {
		return put()
	}
	return h.put(key, put)
}

// The head is stamped while the index is made: all begins again, and nothing that was put before the stamp is
// named.
func TestStampedMeanwhile(t *testing.T) {
	r := newRig(t)
	a := r.push("a", "runs/a/1/x", map[int]int64{1: 300})
	stamped := false
	before := map[string]bool{}
	r.b = hooked{Bucket: &r.Mem, put: func(key string, put doPut) (bucket.Version, error) {
		if key == record.HeadKey(record.IndexWriter) && len(before) > 0 && !stamped {
			stamped = true
			r.condemn(1, record.Key{Class: record.ClassShard, ID: record.ID{1}})
			r.stamp(1)
		}
		if c, _, ok := record.ParseObject(key); ok && c == record.ClassShard && !stamped {
			before[key] = true
		}
		return put()
	}}
	r.make()
	h, _, err := readHead(t.Context(), &r.Mem, remote, "")
	if err != nil || h.Stamp != 1 || h.Index.Made != 0 || len(h.Index.Shards) != 1 ||
		before[record.ClassShard.Key(h.Index.Shards[0].ID)] {
		t.Errorf("%+v, %v", h, err)
	}
	r.expect(1, a)
}

func (r *rig) stamp(n uint32) {
	r.Helper()
	h, _, err := readHead(r.Context(), &r.Mem, remote, "")
	h.Stamp, h.Remote = n, remote
	p, eerr := h.Encode(record.IndexWriter)
	_, perr := r.Put(r.Context(), record.HeadKey(record.IndexWriter), bucket.Bytes(p), bucket.Cond{})
	if err := errors.Join(err, eerr, perr); err != nil {
		r.Fatal(err)
	}
}

// condemn publishes an epoch, which is not decided.
func (r *rig) condemn(n uint32, keys ...record.Key) {
	r.Helper()
	e := &record.Epoch{Remote: remote, Number: n, Collector: "c.00000001", Objects: keys}
	p, err := e.Encode()
	state, serr := (&record.State{Remote: remote, Epoch: n}).Encode()
	if err := errors.Join(err, serr); err != nil {
		r.Fatal(err)
	}
	for key, p := range map[string][]byte{record.EpochKey(n): p, record.StateKey: state} {
		if _, err := r.Put(r.Context(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
			r.Fatal(err)
		}
	}
}

// Answers that were lost: the commit is recognized, and a shard is put under another name.
func TestLostAnswers(t *testing.T) {
	for _, class := range []string{"heads/", "i/"} {
		r := newRig(t)
		a := r.push("a", "runs/a/1/x", map[int]int64{1: 300})
		r.make()
		b := r.push("a", "runs/a/2/x", map[int]int64{2: 300})
		lost := 0
		r.b = hooked{Bucket: &r.Mem, put: func(key string, put doPut) (bucket.Version, error) {
			v, err := put()
			if err == nil && key[:len(class)] == class && lost == 0 {
				lost++
				return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrDoubt}
			}
			return v, err
		}}
		r.make()
		if lost != 1 {
			t.Errorf("%s: %d lost", class, lost)
		}
		r.expect(1, a)
		r.expect(2, b)
	}
}

// A shard that is lost has nothing for a reader, and is made again.
func TestLostShard(t *testing.T) {
	r := newRig(t)
	a := r.push("a", "runs/a/1/x", map[int]int64{1: 300})
	r.make()
	for info, err := range r.List(t.Context(), "i/", "") {
		if err == nil {
			err = r.Delete(t.Context(), []string{info.Key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.expect(1, none)
	if made := r.make(); made.Added != 1 || made.Items != 2 {
		t.Errorf("%+v", made)
	}
	r.expect(1, a)
}

// A file whose plan is gone is passed over, and the others are not.
func TestUnread(t *testing.T) {
	r := newRig(t)
	a := r.push("a", "runs/a/1/x", map[int]int64{1: 300})
	if err := r.Delete(t.Context(), []string{record.ClassMeta.Key(a.Object)}); err != nil {
		t.Fatal(err)
	}
	b := r.push("a", "runs/a/2/x", map[int]int64{2: 300})
	if made := r.make(); made.Added != 2 || made.Unread != 1 {
		t.Errorf("%+v", made)
	}
	r.expect(1, none)
	r.expect(2, b)
}

// A collection leaves the shards that are in use, and takes the others.
func TestCollect(t *testing.T) {
	r := newRig(t)
	r.push("a", "runs/a/1/x", map[int]int64{1: 300})
	r.make()
	b := r.push("a", "runs/a/1/x", map[int]int64{2: 300})
	r.make()
	stats, err := sweep.Collect(t.Context(), &r.Mem, sweep.Options{Remote: remote, Collector: "c.00000001",
		Now: time.Now})
	if err != nil || stats.Deleted < 2 { // the first shard, and the first file
		t.Fatalf("%+v, %v", stats, err)
	}
	r.expect(2, b)
	if made := r.make(); made.Items != 2 {
		t.Errorf("%+v", made)
	}
	h, _, err := readHead(t.Context(), &r.Mem, remote, "")
	if err != nil || h.Index.Made != 1 {
		t.Errorf("made after epoch %d: %v", h.Index.Made, err)
	}
}

// Who knows of epochs up to one knows all that went since the index was made if each is kept, or none came.
func TestCovered(t *testing.T) {
	r := newRig(t)
	r.push("a", "runs/a/1/x", map[int]int64{1: 300})
	r.make()
	key := record.Key{Class: record.ClassData, ID: record.ID{1}}
	for n := range uint32(3) {
		r.condemn(n+1, key)
	}
	check := func(known uint32, want bool) {
		t.Helper()
		x := NewReader(&r.Mem, remote)
		err := x.Refresh(t.Context())
		got, cerr := x.Covered(t.Context(), known)
		if err = errors.Join(err, cerr); err != nil || got != want {
			t.Errorf("known up to %d: %v, %v", known, got, err)
		}
	}
	for known := range uint32(4) {
		check(known, true)
	}
	if err := r.Delete(t.Context(), []string{record.EpochKey(2)}); err != nil {
		t.Fatal(err)
	}
	check(1, true)
	check(2, false)
	check(3, false)
	check(4, false)
}

// More items than a shard has room for.
func TestManyShards(t *testing.T) {
	r := newRig(t)
	m := &making{b: &r.Mem, o: Options{Remote: remote, Now: time.Now, Random: rand.NewChaCha8([32]byte{5})},
		head: &record.Head{}, items: map[record.Digest]record.Ref{}, keepAll: true}
	plan := record.Ref{Object: record.ID{1}, Off: 64, Stored: 100}
	for i := range record.MaxItems + 10 {
		m.items[record.Digest(i)*1000+5] = plan
	}
	if err := m.merge(t.Context()); err != nil || len(m.next.Shards) != 2 {
		t.Fatal(m.next.Shards, err)
	}
	was := m.next.Shards
	m.head.Index, m.next.Shards, m.items = m.next, nil, map[record.Digest]record.Ref{}
	m.items[record.Digest(record.MaxItems)*1000+6] = plan // in the second
	if err := m.merge(t.Context()); err != nil || len(m.next.Shards) != 2 || m.next.Shards[0] != was[0] ||
		m.next.Shards[1].Items != was[1].Items+1 {
		t.Fatal(m.next.Shards, err)
	}
	m.head.Index, m.next.Shards, m.items = m.next, nil, map[record.Digest]record.Ref{0: plan}
	if err := m.merge(t.Context()); err != nil || len(m.next.Shards) != 2 || m.next.Shards[0].First != 0 {
		t.Fatal(m.next.Shards, err)
	}
}
