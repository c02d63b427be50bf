package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
)

// Objects are put several at a time, and all are there before the head is.
func TestParallel(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	mem := &bucket.Mem{}
	f := &faulty{Bucket: mem}
	r := newRig(t, f, 1)
	o := r.options()
	o.Parallel = 4
	r.w = New(o)
	var entries []record.Entry
	for i := range 3 {
		entries = append(entries, fileOf(fmt.Sprint("runs/a/", i), r.store.Simple(5, 10<<20)))
	}
	f.fault = func(op, key string, n int) fault {
		if op == "put" && key[0] == 'd' && n%3 == 0 {
			return never
		}
		return done
	}
	r.mustPush(entries...)
	r.check(entries...)
	f.fault = func(op, key string, n int) fault {
		if op == "put" && key[0] == 'd' {
			return denied
		}
		return done
	}
	if _, err := r.push(fileOf("runs/b", r.store.Simple(8, 10<<20))); !errors.Is(err, bucket.ErrDenied) {
		t.Error(err)
	}
	broken := errors.New("broken")
	f.fault = nil
	m := r.store.Simple(5, 10<<20)
	r.store.Lose(r.store.Chunks(m)[4], broken)
	for _, parallel := range []int{1, 4} {
		o.Parallel = parallel
		r.w = New(o)
		// The object is full while the second file is laid out.
		res := r.mustPush(fileOf("runs/c", m), fileOf("runs/d", r.store.Simple(2, 10<<20)))
		if len(res.Failed) != 1 || res.Failed[0].Path != "runs/c" || !errors.Is(res.Failed[0].Err, broken) {
			t.Errorf("%d: %+v", parallel, res.Failed)
		}
	}
}

// A push whose context ends, ends.
func TestCancelled(t *testing.T) {
	for _, parallel := range []int{1, 4} {
		f := &faulty{Bucket: &bucket.Mem{}}
		r := newRig(t, f, 1)
		o := r.options()
		o.Parallel = parallel
		r.w = New(o)
		ctx, cancel := context.WithCancel(t.Context())
		f.before("d/", cancel)
		a := fileOf("runs/a/1", r.store.Simple(3, 40_000))
		_, err := r.w.Push(ctx, r.store, Changes{Entries: []record.Entry{a}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", parallel, err)
		}
		f.fault = nil
		r.mustPush(a)
		r.check(a)
	}
}

// asking is a bucket that reads each body of a data object twice, as one that sends it again does.
type asking struct{ bucket.Bucket }

func (a asking) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	for range 2 {
		r, err := body.Open()
		if err != nil {
			return "", err
		}
		if n, err := io.Copy(io.Discard, r); n != body.Size || err != nil {
			return "", fail("put", key, bucket.ErrUnreachable)
		}
	}
	return a.Bucket.Put(ctx, key, body, cond)
}

func TestSentAgain(t *testing.T) {
	r := newRig(t, asking{&bucket.Mem{}}, 1)
	a := fileOf("runs/a/1", r.store.Simple(3, 40_000))
	r.mustPush(a)
	r.check(a)
}

// collect is a whole collection: what nothing names is condemned, heads are stamped, and what still nothing
// names is deleted.
func (c collector) collect(n uint32) {
	c.t.Helper()
	dead := c.unnamed()
	if len(dead) == 0 {
		return
	}
	c.condemn(n, dead...)
	for _, info := range keys(c.t, c.b, record.Heads) {
		w, _ := record.ParseHead(info.Key)
		c.stamp(w, n)
	}
	again := map[string]bool{}
	for _, key := range c.unnamed() {
		again[key] = true
	}
	for _, key := range dead {
		if again[key] {
			if err := c.b.Delete(context.Background(), []string{key}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// unnamed are the objects that no head names.
func (c collector) unnamed() (all []string) {
	named := map[string]bool{}
	for _, info := range keys(c.t, c.b, record.Heads) {
		w, _ := record.ParseHead(info.Key)
		h, have := names(c.t, c.b, w)
		for _, table := range h.Tables {
			named[record.ClassTable.Key(table.ID)] = true
		}
		for _, e := range have {
			if e.File == nil {
				continue
			}
			for _, id := range e.File.Deps {
				named[record.ClassData.Key(id)], named[record.ClassMeta.Key(id)] = true, true
			}
		}
	}
	for _, prefix := range []string{"d/", "m/", "t/"} {
		for _, info := range keys(c.t, c.b, prefix) {
			if !named[info.Key] {
				all = append(all, info.Key)
			}
		}
	}
	return all
}

// Two writers of one remote whose requests go wrong at random, who die, and a collector that comes between
// any two requests. Whatever was acknowledged is there and can be read.
func TestRandom(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		chaos(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func chaos(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	mem := &bucket.Mem{}
	epoch := uint32(0)
	f := &faulty{Bucket: mem}
	busy, off := false, false
	f.fault = func(op, key string, n int) fault {
		if busy || off {
			return done
		}
		switch rnd.IntN(40) {
		case 0:
			busy = true
			f.mu.Unlock()
			before := len(keys(t, mem, record.Epochs))
			collector{t, mem}.collect(epoch + 1)
			if len(keys(t, mem, record.Epochs)) > before {
				epoch++
			}
			f.mu.Lock()
			busy = false
		case 1:
			f.mu.Unlock()
			f.settle()
			f.mu.Lock()
		case 2:
			return dead
		case 3, 4, 5, 6, 7:
			return []fault{lost, never, delayed, conflict, again}[rnd.IntN(5)]
		}
		return done
	}
	var rigs [2]*rig
	want := [2]map[string]record.Entry{{}, {}}
	for i := range rigs {
		rigs[i] = newRig(t, f, byte(seed)*2+byte(i))
	}
	for range 12 {
		i := rnd.IntN(2)
		r := rigs[i]
		var entries []record.Entry
		for range 1 + rnd.IntN(3) {
			path := fmt.Sprintf("runs/a/%d", rnd.IntN(5))
			e := tombstone(path)
			if rnd.IntN(3) > 0 {
				e = fileOf(path, r.randomFile(rnd))
			}
			entries = append(entries, e)
		}
		if rnd.IntN(4) == 0 {
			entries = append(entries, full(fmt.Sprint(rnd.IntN(3)))...)
		}
		entries = distinct(entries)
		r.pushUntilDone(entries, rnd)
		for _, e := range entries {
			want[i][e.Path] = e
		}
	}
	off = true
	f.settle()
	for i, r := range rigs {
		if r.w.id.Writer == "" {
			continue
		}
		var all []record.Entry
		for _, e := range want[i] {
			all = append(all, e)
		}
		r.check(all...)
	}
}

func distinct(entries []record.Entry) (all []record.Entry) {
	seen := map[string]bool{}
	for _, e := range entries {
		if !seen[e.Path] {
			all = append(all, e)
		}
		seen[e.Path] = true
	}
	return all
}

// pushUntilDone pushes until it is acknowledged; by another process if this one dies.
func (r *rig) pushUntilDone(entries []record.Entry, rnd *rand.Rand) {
	for range 500 {
		_, err := r.push(entries...)
		var registered *RegisteredError
		switch {
		case err == nil:
			return
		case errors.As(err, &registered):
			r.t.Fatalf("%v", err) // nobody else has the identity
		case errors.Is(err, errDead), rnd.IntN(2) == 0:
			r.restart()
		}
	}
	r.t.Fatal("it never ends")
}

// randomFile is a file of old and new chunks.
func (r *rig) randomFile(rnd *rand.Rand) cas.Hash {
	var chunks []cas.Hash
	for range rnd.IntN(3) {
		chunks = append(chunks, r.store.Alone(cas.Chunk, 100+rnd.IntN(40_000)))
	}
	if r.chunks = append(r.chunks, chunks...); len(r.chunks) > 0 {
		old := r.chunks[rnd.IntN(len(r.chunks))]
		chunks = append(chunks, old)
		if !r.store.Full(old) {
			d := r.store.Delta(cas.Chunk, 100+rnd.IntN(40_000), old)
			chunks, r.chunks = append(chunks, d), append(r.chunks, d)
		}
	}
	return r.store.File([]cas.Hash{r.store.Alone(cas.List, 50)}, chunks)
}

// slow is a bucket in which an epoch begins instead of the first put of an object, and gc/state is read
// behind that.
type slow struct {
	bucket.Bucket
	epoch func()
	begun chan struct{}
	once  sync.Once
}

func (s *slow) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if key == record.StateKey {
		<-s.begun
	}
	return s.Bucket.Get(ctx, key, off, n, unless)
}

func (s *slow) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	v bucket.Version, err error) {
	first := false
	if body.Immutable {
		s.once.Do(func() {
			s.epoch()
			close(s.begun)
			first = true
		})
	}
	if first {
		return "", fail("put", key, bucket.ErrDoubt)
	}
	return s.Bucket.Put(ctx, key, body, cond)
}

// What a push relies on may be condemned while it puts other objects, and by then its head may have been
// stamped and read: it is put again.
func TestEpochMeanwhile(t *testing.T) {
	for _, parallel := range []int{1, 4} {
		mem := &bucket.Mem{}
		r := newRig(t, mem, 1)
		gone := fileOf("runs/a/1", r.store.Simple(3, 40_000))
		first := r.mustPush(gone)
		r.mustPush(tombstone(gone.Path))
		o := r.options()
		o.Parallel = parallel
		r.w = New(o)
		other := fileOf("runs/other", r.store.Simple(1, 100))
		r.mustPush(other) // this process has read gc/state
		c := collector{t, mem}
		r.w.Bucket = &slow{Bucket: mem, begun: make(chan struct{}), epoch: func() { c.collect(1) }}
		again := fileOf("runs/a/2", gone.File.Manifest)
		beside := fileOf("runs/b", r.store.Simple(3, 40_000))
		res := r.mustPush(again, beside)
		r.check(tombstone(gone.Path), other, again, beside)
		if first.Objects != 2 || res.Head.Stamp != 1 {
			t.Errorf("%d: %+v", parallel, res)
		}
	}
}
