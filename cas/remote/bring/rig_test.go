package bring

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
)

// blob is a file whose manifest is too short to be stored against another.
var blob = remotetest.Shape{Tensors: 5, Chunks: 6, Elements: 1024, Step: 3e-5, Blob: true}

// published are objects as a push makes them, before they are put.
type published struct {
	objects [][]byte
	infos   []record.Object
	open    []segment.Record // of the last object
	at      map[cas.Hash]record.Place
}

// begin begins an object.
func (p *published) begin(class record.Class) {
	id := record.ID{byte(len(p.infos)), 0xaa}
	p.infos = append(p.infos, record.Object{ID: id, Class: class})
	p.objects = append(p.objects, segment.AppendFileHeader(nil, p.id()))
	p.open = nil
}

func (p *published) id() segment.ID {
	return segment.ID{Store: p.infos[len(p.infos)-1].ID, Number: 1}
}

func (p *published) add(r segment.Record, payload []byte) record.Place {
	n := len(p.infos) - 1
	r.Off = int64(len(p.objects[n]))
	p.objects[n] = segment.AppendRecord(p.objects[n], p.id(), &r, payload)
	p.open = append(p.open, r)
	at := record.Place{Object: uint32(n), Off: r.Off, Stored: r.Stored}
	p.at[r.Hash] = at
	return at
}

func (p *published) end() {
	n := len(p.infos) - 1
	p.objects[n] = segment.AppendFooter(p.objects[n], p.id(), p.open, int64(len(p.objects[n])))
	p.infos[n].Len = int64(len(p.objects[n]))
}

// publish lays the file out, data in objects of some records each, in the order of shuffle, if it is not nil.
func publish(t testing.TB, s *store.Store, h cas.Hash, each int, shuffle func(int, func(i, j int))) (
	*published, *record.Plan) {
	t.Helper()
	src := local.Begin(s)
	defer src.Close()
	c, err := src.Closure(h)
	if err != nil {
		t.Fatal(err)
	}
	p := &published{at: map[cas.Hash]record.Place{}}
	order := make([]int, len(c.Records))
	for i := range order {
		order[i] = i
	}
	if shuffle != nil {
		shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for n, i := range order {
		if n%each == 0 {
			if n > 0 {
				p.end()
			}
			p.begin(record.ClassData)
		}
		r := &c.Records[i]
		payload := make([]byte, r.Stored)
		if err := src.Payload(&r.Record, payload); err != nil {
			t.Fatal(err)
		}
		p.add(r.Record, payload)
	}
	p.end()
	plan := &record.Plan{Manifest: h, Size: c.Size, Objects: p.infos}
	own := map[int32]bool{c.Manifest: true}
	at := func(i int32) record.Record {
		own[i] = true
		return record.Record{Place: p.at[c.Records[i].Hash], Raw: c.Records[i].Raw}
	}
	plan.Record = at(c.Manifest)
	for _, i := range c.Lists {
		plan.Lists = append(plan.Lists, at(i))
	}
	for _, i := range c.Chunks {
		plan.Chunks = append(plan.Chunks, at(i).Place)
	}
	for i := range c.Records {
		if r := &c.Records[i]; !own[int32(i)] {
			plan.Bases = append(plan.Bases, record.Base{Record: at(int32(i)), Hash: [16]byte(r.Hash[:16]),
				Number: r.Number, Kind: r.Kind})
		}
	}
	slices.SortFunc(plan.Bases, func(a, b record.Base) int {
		return int(a.Object)*1e8 + int(a.Off) - int(b.Object)*1e8 - int(b.Off)
	})
	return p, plan
}

// entry puts the plan, as given, and all objects, and returns the file's entry.
func (p *published) entry(t testing.TB, b *bucket.Mem, plan *record.Plan) *record.Entry {
	t.Helper()
	raw, err := plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.begin(record.ClassMeta)
	n := uint32(len(raw))
	at := p.add(segment.Record{Kind: cas.Plan, Raw: n, Stored: n, Hash: cas.Sum(raw), XXH3: cas.SumXXH3(raw),
		CRC: bucket.Bytes(raw).CRC32C}, raw)
	p.end()
	f := &record.File{Size: plan.Size, Manifest: plan.Manifest,
		Plan: record.Ref{Object: p.infos[at.Object].ID, Off: at.Off, Stored: at.Stored}}
	for i, o := range p.infos {
		f.Deps = append(f.Deps, o.ID)
		body := bucket.Bytes(p.objects[i])
		if _, err := b.Put(t.Context(), o.Class.Key(o.ID), body, bucket.Cond{Absent: true}); err != nil {
			t.Fatal(err)
		}
	}
	return &record.Entry{Path: "runs/a/1/model.pt", File: f, Version: 1}
}

// counting counts Gets, and damages what they give if it is told to.
type counting struct {
	*bucket.Mem
	mu     sync.Mutex
	gets   int
	bytes  int64
	change func(key string, off int64, p []byte) []byte
}

func (c *counting) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r, info, err := c.Mem.Get(ctx, key, off, n, unless)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	if err != nil {
		return r, info, err
	}
	p, err := io.ReadAll(r)
	c.bytes += int64(len(p))
	if c.change != nil {
		p = c.change(key, off, slices.Clone(p))
	}
	return io.NopCloser(bytes.NewReader(p)), info, err
}

// past is a bucket behind a cache.
type past struct {
	bucket.Bucket
	origin bucket.Bucket
}

func (p past) Past() bucket.Bucket { return p.origin }

// bringTo brings e into s, and reads it back.
func bringTo(t testing.TB, s *store.Store, b, origin bucket.Bucket, e *record.Entry) ([]byte, error) {
	t.Helper()
	if origin != nil {
		b = past{b, origin}
	}
	x := &Bringer{Reader: &fetch.Reader{Bucket: b}, Store: s}
	batch := s.Begin()
	defer batch.Release()
	if err := x.File(t.Context(), batch, e); err != nil {
		return nil, err
	}
	if err := batch.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	r := assemble.New(s, assemble.Options{})
	defer r.Close()
	f, err := r.Open(e.File.Manifest)
	if err != nil {
		return nil, fmt.Errorf("opened: %w", err)
	}
	p := make([]byte, f.Size())
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read: %w", err)
	}
	return p, nil
}
