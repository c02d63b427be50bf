package cache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Spans are a set of numbers.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		var p spans
		var set [size]bool
		at := rapid.Int64Range(0, size)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := span{at.Draw(t, "from"), at.Draw(t, "to")}
				var fresh int64
				for i := s.from; i < s.to; i++ {
					if !set[i] {
						set[i], fresh = true, fresh+1
					}
				}
				if got := p.add(s); got != fresh {
					t.Fatalf("%v: %d are new, want %d", s, got, fresh)
				}
			},
			"": func(t *rapid.T) {
				var n int64
				for i := range p {
					if p[i].from >= p[i].to || i > 0 && p[i].from <= p[i-1].to {
						t.Fatalf("%v", p)
					}
				}
				for _, in := range set {
					if in {
						n++
					}
				}
				s := span{at.Draw(t, "from"), at.Draw(t, "to")}
				all := true
				for i := s.from; i < s.to; i++ {
					all = all && set[i]
				}
				if s.from < s.to && p.has(s) != all || p.bytes() != n {
					t.Fatalf("%v has %v: %v, want %v; %d bytes, want %d", p, s, !all, all, p.bytes(), n)
				}
			},
		})
	})
}

// counting counts what is asked of a bucket.
type counting struct {
	*bucket.Mem
	mu   sync.Mutex
	gets int
}

func (c *counting) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	c.mu.Lock()
	c.gets++
	c.mu.Unlock()
	return c.Mem.Get(ctx, key, off, n, unless)
}

const objectSize = 300_000

func content(id byte) []byte {
	p := make([]byte, objectSize)
	rand.NewChaCha8([32]byte{id}).Read(p)
	return p
}

func keyOf(id byte) string { return record.ClassData.Key(record.ID{id, 7}) }

// objects are a bucket of some.
func objects(t testing.TB, n byte) *counting {
	t.Helper()
	c := &counting{Mem: &bucket.Mem{}}
	for id := range n {
		if _, err := c.Put(t.Context(), keyOf(id), bucket.Bytes(content(id)), bucket.Cond{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func open(t testing.TB, folder string, max int64) *Cache {
	t.Helper()
	dir, err := disk.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	room := func() (int64, int64, error) { return 1 << 40, 1 << 39, nil }
	c, err := Open(dir, Options{Max: max, Disk: room})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reads holds a range against what the object has there.
func reads(t testing.TB, b bucket.Bucket, id byte, off, n int64) {
	t.Helper()
	r, info, err := b.Get(t.Context(), keyOf(id), off, n, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || info.Size != objectSize || !bytes.Equal(got, content(id)[off:][:n]) {
		t.Fatalf("object %d, %d at %d: %d bytes of %d, %v", id, n, off, len(got), info.Size, err)
	}
}

// What was read once is read here, also by the next process; what was not is not.
func TestKeeps(t *testing.T) {
	m, folder := objects(t, 2), t.TempDir()
	b := open(t, folder, 1<<30).Bucket(m)
	for range 2 {
		reads(t, b, 0, 100_000, 50_000)
		reads(t, b, 0, 150_000, 20_000)
		reads(t, b, 0, 110_000, 55_000) // of both
	}
	if m.gets != 2 {
		t.Errorf("%d requests, want 2", m.gets)
	}
	c := open(t, folder, 1<<30)
	b = c.Bucket(m)
	reads(t, b, 0, 100_000, 70_000)
	if m.gets != 2 {
		t.Errorf("the next process made %d requests", m.gets-2)
	}
	reads(t, b, 0, 90_000, 20_000)
	reads(t, b, 1, 100_000, 10)
	if s := c.Stats(); m.gets != 4 || s.Hits != 1 || s.Misses != 2 || s.Objects != 2 {
		t.Errorf("%d requests, want 4; %+v", m.gets, s)
	}
}

// What is read past the cache is written over what it has.
func TestPast(t *testing.T) {
	m, folder := objects(t, 1), t.TempDir()
	c := open(t, folder, 1<<30)
	b := c.Bucket(m)
	reads(t, b, 0, 0, objectSize)
	file := filepath.Join(folder, fileOf(record.ID{0, 7}))
	if err := os.WriteFile(file, make([]byte, objectSize), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _, err := b.Get(t.Context(), keyOf(0), 1000, 10, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(r); !bytes.Equal(got, make([]byte, 10)) {
		t.Errorf("%x; the file was changed", got)
	}
	r.Close()
	reads(t, c.Past(m), 0, 0, objectSize)
	reads(t, b, 0, 0, objectSize)
	if m.gets != 2 {
		t.Errorf("%d requests, want 2", m.gets)
	}
}

// The object that was used longest ago goes first; what a reader has open stays readable.
func TestBound(t *testing.T) {
	m, folder := objects(t, 5), t.TempDir()
	c := open(t, folder, 3*objectSize)
	b := c.Bucket(m)
	for id := range byte(3) {
		reads(t, b, id, 0, objectSize)
	}
	reader, _, err := b.Get(t.Context(), keyOf(1), 0, objectSize, "")
	if err != nil {
		t.Fatal(err)
	}
	reads(t, b, 0, 0, objectSize)
	reads(t, b, 3, 0, objectSize) // 2 goes: 1 was opened, 0 was read since
	reads(t, b, 4, 0, objectSize) // 1 goes
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, content(1)) {
		t.Errorf("%d bytes of what was open, %v", len(got), err)
	}
	reader.Close()
	for id, here := range []bool{true, false, false, true, true} {
		if got := c.Has(record.ID{byte(id), 7}, 0, objectSize); got != here {
			t.Errorf("object %d: %v", id, got)
		}
		_, err := os.Stat(filepath.Join(folder, fileOf(record.ID{byte(id), 7})))
		if (err == nil) != here {
			t.Errorf("object %d: %v", id, err)
		}
	}
	if s := c.Stats(); s.Bytes != 3*objectSize || s.Objects != 3 {
		t.Errorf("%+v", s)
	}
	if n := c.Free(1); n != objectSize || c.Has(record.ID{0, 7}, 0, 1) {
		t.Errorf("%d bytes freed", n)
	}
	if c = open(t, folder, objectSize); c.Stats().Objects != 1 {
		t.Errorf("%+v", c.Stats())
	}
	if n := c.Free(1 << 40); n != objectSize || c.Stats().Bytes != 0 {
		t.Errorf("%d bytes freed, %+v", n, c.Stats())
	}
}

// What the local store has is not kept twice, unless the cache has more of the object.
func TestStored(t *testing.T) {
	m := objects(t, 2)
	c := open(t, t.TempDir(), 1<<30)
	b := c.Bucket(m)
	reads(t, b, 0, 0, objectSize)
	reads(t, b, 1, 0, objectSize)
	c.Stored(record.ID{0, 7}, objectSize-20_000)
	c.Stored(record.ID{1, 7}, 20_000)
	c.Stored(record.ID{2, 7}, 20_000)
	if c.Has(record.ID{0, 7}, 0, 1) || !c.Has(record.ID{1, 7}, 0, objectSize) ||
		c.Stats().Bytes != objectSize {
		t.Errorf("%+v", c.Stats())
	}
}

// Where the disk runs full there is room for other things.
func TestFullDisk(t *testing.T) {
	m, folder := objects(t, 4), t.TempDir()
	c := open(t, folder, 1<<30)
	b := c.Bucket(m)
	const size = 100 * objectSize
	free := int64(size)
	c.disk = func() (int64, int64, error) { return size, free, nil }
	for id := range byte(4) {
		if id == 2 {
			free = size/freeShare - objectSize - 1
		}
		reads(t, b, id, 0, objectSize)
	}
	if s := c.Stats(); s.Objects != 0 {
		t.Errorf("%+v", s)
	}
	free = size
	reads(t, b, 1, 0, objectSize)
	if s := c.Stats(); s.Objects != 1 {
		t.Errorf("%+v", s)
	}
}

// What does not belong there goes, and what others removed is read again.
func TestStrange(t *testing.T) {
	m, folder := objects(t, 1), t.TempDir()
	for _, name := range []string{"aa", "bb/cc"} {
		name = filepath.Join(folder, name)
		if os.MkdirAll(filepath.Dir(name), 0o700) != nil || os.WriteFile(name, []byte("x"), 0o600) != nil {
			t.Fatal(name)
		}
	}
	c := open(t, folder, 1<<30)
	for _, name := range []string{"aa", "bb/cc"} {
		if _, err := os.Stat(filepath.Join(folder, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := c.Bucket(m)
	reads(t, b, 0, 0, 1000)
	if err := os.RemoveAll(filepath.Join(folder, "00")); err != nil {
		t.Fatal(err)
	}
	reads(t, b, 0, 0, 1000)
	reads(t, b, 0, 0, 1000)
	if m.gets != 2 {
		t.Errorf("%d requests, want 2", m.gets)
	}
	if err := os.Truncate(filepath.Join(folder, fileOf(record.ID{0, 7})), 500); err != nil {
		t.Fatal(err)
	}
	r, info, err := b.Get(t.Context(), keyOf(0), 0, 1000, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || len(got) != 500 || info.Size != objectSize {
		t.Errorf("%d bytes, %v", len(got), err) // who reads it finds out, and asks past the cache
	}
	r.Close()
	_, _, err = b.Get(t.Context(), record.ClassData.Key(record.ID{9}), 0, 5, "")
	if !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
}

// What is not an object of records, or asked for otherwise, is not kept.
func TestPassesOver(t *testing.T) {
	m, folder := objects(t, 1), t.TempDir()
	b := open(t, folder, 1<<30).Bucket(m)
	for _, key := range []string{"hint", record.HeadKey("a.00000000"), record.ClassTable.Key(record.ID{1})} {
		if _, err := b.Put(t.Context(), key, bucket.Bytes([]byte("something")), bucket.Cond{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, _, err := bucket.Read(t.Context(), b, key, 100, "")
			if err != nil || string(got) != "something" {
				t.Error(key, err)
			}
		}
	}
	if _, info, err := b.Get(t.Context(), keyOf(0), 0, 0, ""); err != nil || info.Version == "" {
		t.Errorf("%+v, %v", info, err)
	}
	if m.gets != 7 {
		t.Errorf("%d requests, want 7", m.gets)
	}
	names, err := os.ReadDir(folder)
	if err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// Many who read, evict and free at once read right bytes, or such as anybody can tell from them.
func TestAtOnce(t *testing.T) {
	const ids = 6
	m, folder := objects(t, ids), t.TempDir()
	c := open(t, folder, 2*objectSize)
	b, past := c.Bucket(m), c.Past(m)
	var want [ids][]byte
	for id := range byte(ids) {
		want[id] = content(id)
	}
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 200 {
				id, off := r.IntN(ids), r.Int64N(objectSize-1)
				n, from := 1+r.Int64N(objectSize-off-1), b
				switch r.IntN(20) {
				case 0:
					c.Free(objectSize)
				case 1:
					from = past
				}
				body, _, err := from.Get(t.Context(), keyOf(byte(id)), off, n, "")
				if err != nil {
					t.Error(err)
					continue
				}
				got, err := io.ReadAll(body)
				body.Close()
				for i := range got {
					if got[i] != want[id][off+int64(i)] && got[i] != 0 {
						t.Errorf("object %d at %d: a wrong byte", id, off+int64(i))
						break
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c.trim()
	if s := c.Stats(); s.Bytes > 2*objectSize || s.Bytes < 0 {
		t.Errorf("%+v", s)
	}
}
