package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote"
	"ckptfs/cas/remote/audit"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
)

var remoteID = record.ID{1}

// published is a remote with two files, one of which is stored against the other, a small one and a table.
func published(t testing.TB) *bucket.Mem {
	t.Helper()
	mem := &bucket.Mem{}
	local := objectstest.New(1)
	w := writer.New(writer.Options{Bucket: mem, Remote: remoteID, State: &writer.Mem{}, Now: time.Now,
		Parallel: 1,
		Random:   rand.NewChaCha8([32]byte{1}), Register: func(ctx context.Context) (record.Writer, error) {
			return remote.Register(ctx, mem, "alice")
		}})
	push := func(entries ...record.Entry) {
		t.Helper()
		res, err := w.Push(t.Context(), local, writer.Changes{Entries: entries})
		if err != nil || len(res.Failed) > 0 {
			t.Fatal(res.Failed, err)
		}
	}
	file := func(path string, chunks ...cas.Hash) record.Entry {
		manifest := local.File(nil, chunks)
		c, err := local.Closure(manifest)
		if err != nil {
			t.Fatal(err)
		}
		return record.Entry{Path: path, Mode: 0o644, File: &record.File{Size: c.Size, Manifest: manifest}}
	}
	base := local.Alone(cas.Chunk, 40<<10)
	push(file("runs/a/1", base), record.Entry{Path: "runs/a/1.json", File: &record.File{Size: 2,
		Inline: "{}"}})
	push(file("runs/a/2", base, local.Delta(cas.Chunk, 100, base)))
	long := strings.Repeat("x", 64<<10)
	push(record.Entry{Path: "runs/b", Kind: record.KindFolder, Attrs: []record.Attr{{Name: "user.a",
		Value: long},
		{Name: "user.b", Value: long}}})
	return mem
}

func keys(b bucket.Bucket) (all []string) {
	for info := range b.List(context.Background(), "", "") {
		all = append(all, info.Key)
	}
	return all
}

func run(t testing.TB, b bucket.Bucket, data bool) *audit.Report {
	t.Helper()
	rep, err := audit.Run(t.Context(), b, audit.Options{Remote: remoteID, ReadData: data})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestSound(t *testing.T) {
	mem := published(t)
	rep := run(t, mem, true)
	if len(rep.Problems) > 0 || rep.Files != 2 || rep.Heads != 1 || rep.Entries != 4 || rep.Objects < 3 ||
		rep.Records < 5 || rep.ReadData != rep.Bytes {
		t.Errorf("%+v", rep)
	}
}

func put(t testing.TB, b bucket.Bucket, key string, p []byte) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, b bucket.Bucket, key string) []byte {
	t.Helper()
	p, _, err := bucket.Read(t.Context(), b, key, record.MaxObject, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each object that is gone, cut, another's, or has one bit turned is told, by its key and with files that
// need it.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, key := range keys(published(t)) {
		if key == record.HintKey {
			continue
		}
		for name, harm := range map[string]func(t *testing.T, b *bucket.Mem, p []byte){
			"gone": func(t *testing.T, b *bucket.Mem, _ []byte) { b.Delete(t.Context(), []string{key}) },
			"cut":  func(t *testing.T, b *bucket.Mem, p []byte) { put(t, b, key, p[:len(p)-1]) },
			"empty": func(t *testing.T, b *bucket.Mem, p []byte) {
				put(t, b, key, nil)
			},
			"another": func(t *testing.T, b *bucket.Mem, p []byte) {
				for _, other := range keys(b) {
					if q := read(t, b, other); other[0] == key[0] && !bytes.Equal(p, q) {
						put(t, b, key, q)
						return
					}
				}
				put(t, b, key, bytes.Repeat([]byte{7}, len(p)))
			},
			"a bit": func(t *testing.T, b *bucket.Mem, p []byte) {
				q := slices.Clone(p)
				at := 0
				for at < min(64, len(q)-1) ||
					q[at] == 0 { // neither the file header nor what is behind a payload
					at = r.IntN(len(q))
				}
				q[at] ^= 1 << r.IntN(8)
				put(t, b, key, q)
			},
		} {
			t.Run(key[:1]+" "+name, func(t *testing.T) {
				mem := published(t)
				here := key
				if strings.HasPrefix(key, record.Heads) { // each remote draws its own
					here = keys(mem)[slices.IndexFunc(keys(mem),
						func(k string) bool { return k[:6] == key[:6] })]
				}
				p := read(t, mem, here)
				key = here
				harm(t, mem, p)
				if strings.HasPrefix(key, record.Heads) && (name == "gone" || name == "empty") {
					return // a head that is not there, or has no commit, is nobody's: package heads tells
				}
				rep := run(t, mem, true)
				_, _, object := record.ParseObject(key)
				i := slices.IndexFunc(rep.Problems, func(p audit.Problem) bool {
					return p.Key[2:] == key[2:] && (len(p.Paths) > 0 || !object || key[0] == 't')
				})
				if i < 0 {
					t.Fatalf("%s: %+v", key, rep.Problems)
				}
			})
		}
	}
}

// Of an object that two files share each record is needed once; what no file needs any more is not.
func TestShare(t *testing.T) {
	mem := published(t)
	rep, err := audit.Run(t.Context(), mem, audit.Options{Remote: remoteID, Share: true})
	if err != nil {
		t.Fatal(err)
	}
	s := rep.Share
	if s == nil || s.Objects != 1 || s.Needed < 40<<10 || s.Needed > s.Bytes || s.Tenths[9].Objects != 1 {
		t.Errorf("%+v", s)
	}
}

// counted counts requests.
type counted struct {
	bucket.Bucket
	gets, lists atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	c.gets.Add(1)
	return c.Bucket.Get(ctx, key, off, n, unless)
}

func (c *counted) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	c.lists.Add(1) // there are less than a page
	return c.Bucket.List(ctx, prefix, after)
}

// A look at a whole remote asks for each head, each file's plan, and each object's footer once.
func TestRequests(t *testing.T) {
	mem := &bucket.Mem{}
	const writers, files = 100, 3
	for i := range writers {
		local := objectstest.New(uint64(i + 1))
		w := writer.New(writer.Options{Bucket: mem, Remote: remoteID, State: &writer.Mem{}, Now: time.Now,
			Parallel: 1, Random: rand.NewChaCha8([32]byte{1, byte(i)}),
			Register: func(ctx context.Context) (record.Writer, error) {
				return remote.Register(ctx, mem, "w")
			}})
		for k := range files {
			manifest := local.File(nil, []cas.Hash{local.Alone(cas.Chunk, 40<<10)})
			c, err := local.Closure(manifest)
			if err != nil {
				t.Fatal(err)
			}
			e := record.Entry{Path: fmt.Sprintf("runs/%d/%d/f", i, k), Mode: 0o644,
				File: &record.File{Size: c.Size, Manifest: manifest}}
			if _, err := w.Push(t.Context(), local, writer.Changes{Entries: []record.Entry{e}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := &counted{Bucket: mem}
	rep, err := audit.Run(t.Context(), b, audit.Options{Remote: remoteID, Share: true})
	if err != nil || rep.Files != writers*files || len(rep.Problems) > 0 {
		t.Fatalf("%d files, %d problems, %v", rep.Files, len(rep.Problems), err)
	}
	want := writers + rep.Files + rep.Objects
	if b.gets.Load() != want || b.lists.Load() != 3 {
		t.Errorf("%d GETs, want %d for %d heads, %d files, %d objects; %d LISTs", b.gets.Load(), want, writers,
			rep.Files, rep.Objects, b.lists.Load())
	}
}
