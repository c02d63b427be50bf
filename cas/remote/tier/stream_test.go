package tier

import (
	"fmt"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/index/manifest"
)

// plan16 is that of a file of so many chunks of 256 KiB, stored in so many bytes each, in objects as a push
// makes them: tensors of 8 chunks are of that many kinds in turn, each in objects of its own.
func plan16(chunks, stored, kinds int) *plan {
	p := &record.Plan{Manifest: cas.Hash{1}}
	open, offs := make([]int, kinds), make([]int64, kinds)
	spans := make([]manifest.Span, chunks)
	for n := range chunks {
		k := n / 8 % kinds
		if off := offs[k]; off == 0 || off+segment.Size(stored) > record.MaxObject-64<<10 {
			p.Objects = append(p.Objects, record.Object{ID: record.ID{byte(n), byte(n >> 8), byte(n >> 16)},
				Class: record.ClassData, Len: record.MaxObject})
			open[k], offs[k] = len(p.Objects)-1, segment.FileHeaderSize
		}
		at := record.Place{Object: uint32(open[k]), Off: offs[k], Stored: uint32(stored)}
		p.Chunks = append(p.Chunks, at)
		spans[n] = manifest.Span{Hash: cas.Sum(fmt.Append(nil, n)), Len: 256 << 10}
		offs[k] += segment.Size(stored)
	}
	return newPlan(p, record.Ref{}, nil, spans)
}

// Reading a model of 16 GB from its begin takes at most 1,100 requests, also where some of it is stored alone
// and some as differences, and no more is asked for ahead of the reader than fits.
func TestAheadOfLargeFile(t *testing.T) {
	for kinds := range 2 {
		aheadOfLargeFile(t, kinds+1)
	}
}

func aheadOfLargeFile(t *testing.T, kinds int) {
	const chunks, stored, window = 16_000_000_000 / (256 << 10), 170_000, maxAhead
	p := plan16(chunks, stored, kinds)
	s := &p.stream
	requests, most, longest := 0, int64(0), int64(0)
	for c := range chunks {
		s.mu.Lock()
		pump := s.advanceLocked(c, nil)
		s.mu.Unlock()
		if c == 0 && pump {
			t.Fatal("the begin alone is fetched ahead of")
		}
		if !pump {
			continue
		}
		for all := s.batch(window); all != nil; all = s.batch(window) {
			objects := map[record.ID]bool{}
			for _, w := range all {
				objects[w.record().Object.ID] = true
			}
			if len(objects) == 1 {
				first, last := all[0].record(), all[len(all)-1].record()
				longest = max(longest, last.Off+last.Len()-first.Off)
			}
			requests += len(objects)
			most = max(most, s.asked-s.read)
		}
	}
	if requests > 1100 || requests < 500 {
		t.Errorf("%d requests", requests)
	}
	if longest > fetch.MaxRange {
		t.Errorf("a batch takes %d bytes, more than one request gets", longest)
	}
	if most > window+maxBatch || most < window-2*int64(kinds)*maxBatch {
		t.Errorf("%d bytes ahead at most", most)
	}
	if s.front != chunks || s.next != chunks {
		t.Errorf("%d, %d of %d", s.front, s.next, chunks)
	}
	t.Logf("%d kinds: %d requests, %d MB ahead", kinds, requests, most/1e6)
}

// Who reads two chunks in order gets a round trip's worth ahead at once, however small they are stored.
func TestFirstAhead(t *testing.T) {
	s := &plan16(10_000, 1000, 1).stream
	s.mu.Lock()
	s.advanceLocked(0, nil)
	if !s.advanceLocked(1, nil) {
		t.Fatal("nothing is fetched ahead")
	}
	s.mu.Unlock()
	for s.batch(minAhead) != nil {
	}
	if n := s.asked - s.read; n > firstAhead || n < firstAhead-minBatch {
		t.Errorf("%d bytes ahead, want %d", n, firstAhead)
	}
}

// What chunks are stored against is expected to come along unless it is here.
func TestBasesHere(t *testing.T) {
	r := newRig(t)
	shape := remotetest.Shape{Tensors: 10, Chunks: 20, Elements: 4096, Step: 1e-4}
	first := r.publish(t, shape, 1)
	f := shape.Save(t, r.one.Store, 1, first)
	e, _ := r.one.Publish(t, "runs/a/1/model.pt", f)
	r.files[f.Manifest] = e.File
	away := func() int64 {
		r.open(t, 1<<30)
		if _, err := r.Get(f.Manifest, nil); err != nil {
			t.Fatal(err)
		}
		p, _ := r.Tier.plans.get(f.Manifest)
		return p.stream.bases
	}
	if n := away(); n < shape.Size()/2 {
		t.Errorf("%d bytes of bases are not here, want most of %d", n, shape.Size())
	}
	r.open(t, 1<<30)
	r.reads(t, first)
	if n := away(); n > shape.Size()/100 {
		t.Errorf("%d bytes of bases are not here, though they were read", n)
	}
}

// Who reads the begin of a file, and then something in its middle, gets no more than that.
func TestJump(t *testing.T) {
	r := newRig(t)
	shape := remotetest.Shape{Tensors: 40, Chunks: 20, Elements: 1024, Step: 1e-4}
	f := r.publish(t, shape, 1)
	r.open(t, 1<<30)
	x, err := r.asm.Open(f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	_, before := r.remote.asked()
	tensor := len(f.Content) / 40
	p := make([]byte, tensor)
	if _, err := x.ReadWithin(p[:100], 0, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := x.ReadWithin(p, int64(20*tensor), int64(21*tensor)); err != nil {
		t.Fatal(err)
	}
	r.close() // what is under way
	plan, err := r.Plan(t.Context(), f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for c := 20 * 20; c < 21*20; c++ {
		want += int64(plan.Chunks[c].Stored)
	}
	_, n := r.remote.asked()
	t.Logf("%d bytes to open it, %d for a tensor of %d", before, n, want)
	if n > want*6/5+10_000 {
		t.Errorf("%d bytes for %d", n, want)
	}
	r.Tier = nil
}

// A file that is read from its begin comes as a whole, long before its reader is there, once; and only as far
// as the window if that is less.
func TestAhead(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Shape{Tensors: 40, Chunks: 20, Elements: 4096, Step: 1e-4}, 2)
	for _, c := range []struct {
		max   int64
		whole bool
	}{{1 << 30, true}, {1 << 20, false}} {
		r.folder = t.TempDir()
		r.open(t, c.max)
		get := func(h cas.Hash) {
			if _, err := r.Get(h, nil); err != nil {
				t.Fatal(err)
			}
		}
		get(f.Manifest)
		p, _ := r.Tier.plans.get(f.Manifest)
		here, read := 0, 0
		// How much of the window the bases take is known better the more has come.
		for here < len(p.Chunks) && read < len(p.Chunks)/2 && (c.whole || read == 0) {
			for _, h := range f.Hashes[read : read+62] {
				get(h)
			}
			read += 62
			r.Tier.flights.under.Wait()
			here = r.countHere(p)
		}
		_, n := r.remote.asked()
		t.Logf("%d of %d chunks are here after %d, %d bytes", here, len(p.Chunks), read, n)
		if (here == len(p.Chunks)) != c.whole {
			t.Errorf("%d of %d chunks are here after %d", here, len(p.Chunks), read)
		}
	}
}

// countHere is how many chunks of a plan are in the cache.
func (r *rig) countHere(p *plan) (n int) {
	for i := p.firstChunk(); i < p.firstBase(); i++ {
		x := wanted{p, i}.record()
		if r.cache.Has(x.Object.ID, x.Off, x.Len()) {
			n++
		}
	}
	return n
}

// A Tier knows how much comes in two seconds.
func TestWindow(t *testing.T) {
	r := newRig(t)
	r.open(t, 1<<40)
	if n := r.window(); n != minAhead {
		t.Errorf("%d bytes before anything came", n)
	}
	for rate, want := range map[float64]int64{1e3: minAhead, 50e6: 100e6, 1e9: maxAhead} {
		r.meter.rate = rate
		if n := r.window(); n != want {
			t.Errorf("%d bytes at %g a second", n, rate)
		}
	}
	r.open(t, 40<<20)
	if n := r.window(); n != 10<<20 {
		t.Errorf("%d bytes of a cache of 40 MiB", n)
	}
}
