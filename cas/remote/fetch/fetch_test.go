package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/segment"
)

// object puts an object of records of some lengths.
func object(t testing.TB, b bucket.Bucket, id byte, lengths ...int) (all []Record, payloads [][]byte) {
	t.Helper()
	o := record.Object{ID: record.ID{id}, Class: record.ClassData}
	sid := segment.ID{Store: o.ID, Number: 1}
	p := segment.AppendFileHeader(nil, sid)
	r := rand.NewChaCha8([32]byte{id})
	var recs []segment.Record
	for _, n := range lengths {
		raw := make([]byte, n)
		_, _ = r.Read(raw)
		rec := segment.Record{Kind: cas.Chunk, Raw: uint32(n), Stored: uint32(n), Hash: cas.Sum(raw),
			XXH3: cas.SumXXH3(raw), CRC: bucket.Bytes(raw).CRC32C, Off: int64(len(p))}
		p = segment.AppendRecord(p, sid, &rec, raw)
		recs, payloads = append(recs, rec), append(payloads, raw)
	}
	p = segment.AppendFooter(p, sid, recs, int64(len(p)))
	o.Len = int64(len(p))
	for _, rec := range recs {
		all = append(all, Record{o, rec.Off, rec.Stored})
	}
	if _, err := b.Put(t.Context(), o.Class.Key(o.ID), bucket.Bytes(p), bucket.Cond{}); err != nil {
		t.Fatal(err)
	}
	return all, payloads
}

// asked counts what is asked of a bucket.
type asked struct {
	bucket.Bucket
	mu    sync.Mutex
	gets  int
	bytes int64
	fail  error // of every Get
	flip  bool
}

func (a *asked) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gets++
	if a.fail != nil {
		return nil, bucket.Info{}, &bucket.Error{Op: "get", Key: key, Kind: a.fail}
	}
	r, info, err := a.Bucket.Get(ctx, key, off, n, unless)
	if err != nil {
		return r, info, err
	}
	p, err := io.ReadAll(r)
	a.bytes += int64(len(p))
	if a.flip {
		p[len(p)/2] ^= 4
	}
	return io.NopCloser(bytes.NewReader(p)), info, err
}

func TestEach(t *testing.T) {
	b := &asked{Bucket: &bucket.Mem{}}
	var all []Record
	var payloads [][]byte
	for id := range byte(3) {
		a, p := object(t, b, id, 100, 2<<20, 1, 3000, 5000, 1<<20, 17)
		all, payloads = append(all, a...), append(payloads, p...)
	}
	for _, c := range []struct {
		want []int
		gets int
	}{
		{[]int{0}, 1}, {[]int{0, 2}, 2}, {[]int{2, 3, 4, 6}, 2}, {[]int{3, 10, 17}, 3},
		{[]int{2, 4, 0, 1}, 1},
		{nil, 3}, // all
	} {
		if c.want == nil {
			c.want = rand.New(rand.NewPCG(1, 1)).Perm(len(all))
		}
		var records []Record
		for _, i := range c.want {
			records = append(records, all[i])
		}
		b.gets = 0
		r := &Reader{Bucket: b, Requests: 2}
		var mu sync.Mutex
		got := make([][]byte, len(records))
		err := r.Each(t.Context(), records, func(i int, rec *segment.Record, payload []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if got[i] != nil || rec.Hash != cas.Sum(payload) {
				t.Errorf("record %d", i)
			}
			got[i] = slices.Clone(payload)
			return nil
		})
		if err != nil || b.gets != c.gets {
			t.Errorf("%d: %d requests, want %d; %v", c.want, b.gets, c.gets, err)
		}
		for n, i := range c.want {
			if !bytes.Equal(got[n], payloads[i]) {
				t.Errorf("%d: record %d: %d bytes", c.want, i, len(got[n]))
			}
		}
	}
}

// past is a bucket behind a cache.
type past struct {
	bucket.Bucket
	origin bucket.Bucket
}

func (p past) Past() bucket.Bucket { return p.origin }

// What a cache has wrong the origin has right; what both have wrong is an error that says where it lies.
func TestOrigin(t *testing.T) {
	m := &bucket.Mem{}
	all, payloads := object(t, m, 1, 100, 4000, 100)
	nothing := func(int, *segment.Record, []byte) error { return nil }
	cache, origin := &asked{Bucket: m, flip: true}, &asked{Bucket: m}
	var got int
	r := &Reader{Bucket: past{cache, origin}}
	err := r.Each(t.Context(), all, func(i int, _ *segment.Record, p []byte) error {
		if !bytes.Equal(p, payloads[i]) {
			t.Error("wrong bytes")
		}
		got++
		return nil
	})
	if err != nil || got != 3 || cache.gets != 1 || origin.gets != 1 || origin.bytes > 4100 {
		t.Errorf("%d records; %+v, %+v, %v", got, cache, origin, err)
	}
	for _, kind := range []error{bucket.ErrNotFound, bucket.ErrRange} {
		cache.fail = kind
		if err := r.Each(t.Context(), all, nothing); err != nil {
			t.Errorf("%v at the cache: %v", kind, err)
		}
	}
	cache.fail, cache.gets, origin.gets = bucket.ErrDenied, 0, 0
	if err := r.Each(t.Context(), all, nothing); !errors.Is(err, bucket.ErrDenied) || origin.gets > 0 {
		t.Errorf("%d, %v", origin.gets, err)
	}
	cache.fail, origin.flip = nil, true
	err = r.Each(t.Context(), all, nothing)
	var at *Error
	if !errors.As(err, &at) || at.Off != all[1].Off || at.Key != record.ClassData.Key(record.ID{1}) ||
		!errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	stop := errors.New("stop")
	cache.flip, origin.gets = false, 0
	err = r.Each(t.Context(), all, func(i int, _ *segment.Record, _ []byte) error { return stop })
	if !errors.Is(err, stop) || origin.gets > 0 {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Each(ctx, all, nothing); err == nil {
		t.Error("a context that has ended")
	}
}

// An object of another length, or none that its plan says, is wrong, whatever its records.
func TestAnotherObject(t *testing.T) {
	m := &bucket.Mem{}
	all, _ := object(t, m, 1, 100, 4000)
	for name, change := range map[string]func(r *Record){
		"length": func(r *Record) { r.Object.Len += 8 },
		"id":     func(r *Record) { r.Object.ID[15]++ },
		"class":  func(r *Record) { r.Object.Class = record.ClassMeta },
		"offset": func(r *Record) { r.Off -= 8 },
		"stored": func(r *Record) { r.Stored++ },
		"behind": func(r *Record) { r.Off += 1 << 20 },
	} {
		x := all[1]
		change(&x)
		r := &Reader{Bucket: m}
		err := r.Each(t.Context(), []Record{x}, func(int, *segment.Record, []byte) error {
			t.Errorf("%s: a record", name)
			return nil
		})
		var at *Error
		if !errors.As(err, &at) || at.Off != x.Off {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A model of 16 GB takes at most 1,100 requests: stored alone, as deltas, or with half of its tensors held.
func TestRequests(t *testing.T) {
	const size, chunk = 16_000_000_000, 256 << 10
	for name, c := range map[string]struct {
		stored int              // of a chunk
		want   func(n int) bool // the chunks in their order
	}{
		"raw":           {chunk, func(int) bool { return true }},
		"alone":         {chunk * 2 / 3, func(int) bool { return true }},
		"deltas, bases": {chunk / 3, func(int) bool { return true }},
		"half held":     {chunk, func(n int) bool { return n/32%2 == 0 }}, // tensors of 8 MiB
		"third held":    {chunk, func(n int) bool { return n%3 > 0 }},
	} {
		var all []Record
		var bytes int64
		o := record.Object{Class: record.ClassData, Len: record.MaxObject}
		off := int64(segment.FileHeaderSize)
		for n := range size / chunk {
			if off+segment.Size(c.stored) > record.MaxObject-64<<10 {
				o.ID[0]++
				if o.ID[0] == 0 {
					o.ID[1]++
				}
				off = segment.FileHeaderSize
			}
			if c.want(n) {
				all = append(all, Record{o, off, uint32(c.stored)})
				bytes += segment.Size(c.stored)
			}
			off += segment.Size(c.stored)
		}
		only := make([]int, len(all))
		for i := range only {
			only[i] = i
		}
		ranges := split(all, only, 8)
		var read int64
		for _, rg := range ranges {
			n := all[rg[len(rg)-1]].end() - all[rg[0]].Off
			if read += n; n > record.MaxObject || n > MaxRange && n < record.MaxObject-MaxGap-64<<10 {
				t.Errorf("%s: a request of %d bytes", name, n)
			}
		}
		if len(ranges) > 1100 || float64(read) > 1.55*float64(bytes) {
			t.Errorf("%s: %d requests, %d bytes for %d", name, len(ranges), read, bytes)
		}
		t.Logf("%s: %d requests, %.2f of the bytes", name, len(ranges), float64(read)/float64(bytes))
	}
}

// Few objects are read in ranges, so that several requests are made at a time.
func TestFewObjects(t *testing.T) {
	o := record.Object{Class: record.ClassData, Len: record.MaxObject}
	var all []Record
	var only []int
	for off := int64(segment.FileHeaderSize); off < record.MaxObject-1<<20; off += segment.Size(256 << 10) {
		only = append(only, len(all))
		all = append(all, Record{o, off, 256 << 10})
	}
	if n := len(split(all, only, 8)); n != 4 {
		t.Errorf("%d ranges, want 4", n)
	}
}

// One thousand machines that read the objects of one model begin at all of them alike.
func TestBeginsElsewhere(t *testing.T) {
	m := &bucket.Mem{}
	var all []Record
	for id := range byte(250) {
		records, _ := object(t, m, id, 100)
		all = append(all, records...)
	}
	first := map[string]int{}
	for n := range uint64(1000) {
		r := &Reader{Bucket: m, Requests: 1, First: rand.New(rand.NewPCG(n, n)).IntN}
		begun := ""
		err := r.Each(t.Context(), all, func(i int, _ *segment.Record, _ []byte) error {
			if begun == "" {
				begun = all[i].Object.ID.String()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		first[begun]++
	}
	for id, n := range first {
		if n > 20 {
			t.Errorf("%d of 1,000 begin at %s", n, id)
		}
	}
	if len(first) < 200 {
		t.Errorf("%d objects of 250 are somebody's first", len(first))
	}
}
