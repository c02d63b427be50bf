package writer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

var remoteID = record.ID{1: 7}

// rig is a remote and one who publishes.
type rig struct {
	t     testing.TB
	b     bucket.Bucket
	store *objectstest.Store
	state *Mem
	rand  *random
	w     *Writer
	// chunks of random files.
	chunks []cas.Hash
}

// random gives bytes that a seed decides.
type random struct{ *rand.ChaCha8 }

func newRandom(seed byte) *random { return &random{rand.NewChaCha8([32]byte{seed})} }

func newRig(t testing.TB, b bucket.Bucket, seed byte) *rig {
	r := &rig{t: t, b: b, store: objectstest.New(uint64(seed)), state: &Mem{}, rand: newRandom(seed)}
	r.restart()
	return r
}

// restart is another process with the same state.
func (r *rig) restart() { r.w = New(r.options()) }

func (r *rig) options() Options {
	return Options{Bucket: r.b, Remote: remoteID, State: r.state, Register: register(r.b, r.rand),
		Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, Random: r.rand, Parallel: 1}
}

func register(b bucket.Bucket, random *random) func(context.Context) (record.Writer, error) {
	return func(ctx context.Context) (record.Writer, error) {
		var digits [4]byte
		random.Read(digits[:])
		w := record.Writer(fmt.Sprintf("test.%x", digits))
		_, err := b.Put(ctx, record.HeadKey(w), bucket.Bytes(nil), bucket.Cond{Absent: true})
		return w, err
	}
}

func (r *rig) push(entries ...record.Entry) (Result, error) {
	return r.w.Push(r.t.Context(), r.store, Changes{Entries: entries})
}

func (r *rig) mustPush(entries ...record.Entry) Result {
	r.t.Helper()
	res, err := r.push(entries...)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func fileOf(path string, manifest cas.Hash) record.Entry {
	return record.Entry{Path: path, Kind: record.KindFile, Mode: 0o644, MTime: 5,
		File: &record.File{Size: 1 << 20, Manifest: manifest}}
}

func inline(path, text string) record.Entry {
	return record.Entry{Path: path, Kind: record.KindFile, Mode: 0o600,
		File: &record.File{Size: int64(len(text)), Inline: text}}
}

func tombstone(path string) record.Entry { return record.Entry{Path: path, Kind: record.KindTombstone} }

// names are the entries of a writer by path, as a reader finds them.
func names(t testing.TB, b bucket.Bucket, w record.Writer) (*record.Head, map[string]record.Entry) {
	t.Helper()
	p, _, err := bucket.Read(t.Context(), b, record.HeadKey(w), record.MaxHead, "")
	if err != nil {
		t.Fatal(err)
	}
	h, err := record.DecodeHead(w, p)
	if err != nil {
		t.Fatal(err)
	}
	lists := [][]record.Entry{h.Tail}
	for _, table := range h.Tables {
		p, _, err := bucket.Read(t.Context(), b, record.ClassTable.Key(table.ID), record.MaxObject, "")
		if err != nil {
			t.Fatal(err)
		}
		entries, said, err := record.DecodeTable(w, table.ID, p)
		if err != nil || said != table {
			t.Fatalf("%v: %+v, %+v", err, said, table)
		}
		lists = append(lists, entries)
	}
	all := map[string]record.Entry{}
	for _, list := range lists {
		for _, e := range list {
			if _, ok := all[e.Path]; !ok {
				all[e.Path] = e
			}
		}
	}
	return h, all
}

// check holds that exactly these names are there, and that files can be read.
func (r *rig) check(want ...record.Entry) {
	r.t.Helper()
	_, have := names(r.t, r.b, r.w.id.Writer)
	for _, e := range want {
		h, ok := have[e.Path]
		delete(have, e.Path)
		if !ok || h.Kind != e.Kind {
			r.t.Errorf("%s: %v, %+v", e.Path, ok, h)
			continue
		}
		if e.File == nil {
			continue
		}
		if h.File.Manifest != e.File.Manifest || h.File.Inline != e.File.Inline {
			r.t.Errorf("%s: another file", e.Path)
		}
		if h.File.Manifest.IsZero() {
			continue
		}
		if err := r.store.Read(r.t.Context(), r.b, h.File); err != nil {
			r.t.Errorf("%s: %v", e.Path, err)
		}
	}
	for path := range have {
		r.t.Errorf("%s is there", path)
	}
}

func keys(t testing.TB, b bucket.Bucket, prefix string) (all []bucket.Info) {
	t.Helper()
	for info, err := range b.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info)
	}
	return all
}

func TestPush(t *testing.T) {
	r := newRig(t, &bucket.Mem{}, 1)
	a, b := r.store.Simple(3, 40_000), r.store.Simple(2, 1_000)
	first := r.mustPush(fileOf("runs/a/1/model.pt", a), inline("runs/a/1/config.json", "{}"))
	r.check(fileOf("runs/a/1/model.pt", a), inline("runs/a/1/config.json", "{}"))
	if first.Sequence != 1 || first.Version != 1 || first.Objects != 2 || len(first.Failed) > 0 {
		t.Errorf("%+v", first)
	}
	second := r.mustPush(fileOf("runs/a/2/model.pt", b), fileOf("runs/a/2/same.pt", a))
	r.check(fileOf("runs/a/1/model.pt", a), inline("runs/a/1/config.json", "{}"),
		fileOf("runs/a/2/model.pt", b), fileOf("runs/a/2/same.pt", a))
	if second.Sequence != 2 || second.Version != 2 || second.Objects != 1 {
		t.Errorf("%+v", second)
	}
	if d, m := keys(t, r.b, "d/"), keys(t, r.b, "m/"); len(d) != 1 || len(m) != 2 {
		t.Errorf("%v, %v", d, m)
	}
	r.mustPush(tombstone("runs/a/1/model.pt"))
	r.check(tombstone("runs/a/1/model.pt"), inline("runs/a/1/config.json", "{}"),
		fileOf("runs/a/2/model.pt", b), fileOf("runs/a/2/same.pt", a))
	none := r.mustPush()
	if !none.Commit.IsZero() {
		t.Errorf("%+v", none)
	}
}

// A push makes no request that it needs not.
func TestRequests(t *testing.T) {
	f := &faulty{Bucket: &bucket.Mem{}}
	r := newRig(t, f, 1)
	r.mustPush(full("0")...)
	f.log = nil
	r.mustPush(fileOf("runs/a/1", r.store.Simple(3, 40_000)))
	var ops []string
	for _, request := range f.log {
		op, _, _ := strings.Cut(request, "/")
		ops = append(ops, op)
	}
	if want := []string{"put d", "put m", "get gc", "put heads", "put hint"}; !slices.Equal(ops, want) {
		t.Errorf("%q", ops)
	}
}

// What a push put is a segment as any, and its last records are the plans and the commit record.
func TestCommitRecord(t *testing.T) {
	r := newRig(t, &bucket.Mem{}, 1)
	res := r.mustPush(fileOf("runs/a/1/model.pt", r.store.Simple(3, 4_000)), tombstone("runs/a/0"))
	info := keys(t, r.b, "m/")[0]
	p, _, err := bucket.Read(t.Context(), r.b, info.Key, record.MaxObject, "")
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := record.ParseObject(info.Key)
	recs := recordsOf(t, p, id)
	last := recs[len(recs)-1]
	if len(recs) != 7 || recs[5].Kind != cas.Plan || last.Kind != cas.Commit {
		t.Fatalf("%+v", recs)
	}
	at := last.Off + segment.RecordHeaderSize
	c, err := record.DecodeCommit(p[at : at+int64(last.Stored)])
	if err != nil {
		t.Fatal(err)
	}
	h, _ := names(t, r.b, res.Writer)
	if c.Writer != res.Writer || c.ID != res.Commit || c.Sequence != 1 || fmt.Sprint(c.Entries[0]) !=
		fmt.Sprint(h.Tail[0]) || len(c.Entries) != 2 || c.Entries[1].File.Plan != h.Tail[1].File.Plan {
		t.Errorf("%+v, want %+v", c, h.Tail)
	}
}

func recordsOf(t testing.TB, p []byte, id record.ID) (recs []segment.Record) {
	t.Helper()
	f, err := segment.ReadFooter(byteReader(p), int64(len(p)), segment.ID{Store: id, Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Each(byteReader(p), func(r *segment.Record) error {
		recs = append(recs, *r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return recs
}

type byteReader []byte

func (b byteReader) ReadAt(p []byte, off int64) (int, error) {
	if off > int64(len(b)) {
		return 0, errors.New("behind the end")
	}
	return copy(p, b[off:]), nil
}
