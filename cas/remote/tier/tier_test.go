package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bring"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/segment"
	"ckptfs/fs/assemble"
)

// What was never here is read, once from the remote, then from the cache, also by the next process, and also
// without the remote.
func TestReads(t *testing.T) {
	for _, versions := range []int{1, 8} {
		r := newRig(t)
		f := r.publish(t, remotetest.Small, versions)
		r.open(t, 1<<30)
		r.reads(t, f)
		gets, n := r.remote.asked()
		t.Logf("%d versions: %d requests, %d bytes", versions, gets, n)
		// The plan with manifest and lists; chunks, and three levels of what they are stored against, in the
		// objects of four versions.
		if gets > 8 || n > int64(len(f.Content))*5/2 {
			t.Errorf("%d versions: %d requests, %d bytes", versions, gets, n)
		}
		r.open(t, 1<<30)
		r.remote.set(func(c *counting) { c.fail = unreachableAll })
		r.reads(t, f)
		if gets, _ := r.remote.asked(); gets > 0 {
			t.Errorf("again: %d requests", gets)
		}
	}
}

// What is computed of others is read with these, which are fetched together, as the plan says.
func TestReadsRecipes(t *testing.T) {
	for _, versions := range []int{1, 2} {
		r := newRig(t)
		var f *remotetest.Saved
		for v := range versions {
			f = remotetest.Small.Save(t, r.one.Store, v, f)
		}
		g := remotetest.Small.Compute(t, r.one.Store, f)
		e, _ := r.one.Publish(t, "runs/c/0/computed.bin", g)
		r.files[g.Manifest] = e.File
		r.open(t, 1<<30)
		p, err := r.Tier.planOf(t.Context(), g.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Chunks {
			if n := len(p.against(p.firstChunk() + i)); n != 1+i%remotetest.MostBases {
				t.Errorf("chunk %d is stored against %d", i, n)
			}
		}
		if len(p.Bases) != versions*30 {
			t.Errorf("%d bases", len(p.Bases))
		}
		r.reads(t, g)
		if gets, n := r.remote.asked(); gets > 8 {
			t.Errorf("%d versions: %d requests, %d bytes", versions, gets, n)
		}
		r.open(t, 1<<30)
		r.remote.set(func(c *counting) { c.fail = unreachableAll })
		r.reads(t, g)
	}
}

// Machines that read all of a file, in whatever order, begin at different objects.
func TestBeginsElsewhere(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	begun := map[string]bool{}
	for range 30 {
		r.open(t, 1<<30)
		p, err := r.Tier.planOf(t.Context(), f.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		r.cache.Free(1 << 40)
		first := ""
		r.remote.set(func(c *counting) {
			c.fail = func(key string, _ int64) error {
				if first == "" {
					first = key
				}
				return nil
			}
		})
		var all []fetch.Record
		for _, w := range p.between(0, len(p.keys)) {
			all = append(all, w.record())
		}
		r.Tier.reader.Requests = 1
		err = r.Tier.Reader().Each(t.Context(), all,
			func(int, *segment.Record, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		begun[first] = true
	}
	if len(begun) < 2 {
		t.Errorf("all begin at %v", begun)
	}
}

// Whatever a plan says of what chunks are stored against, what is read is right.
func TestPlanLiesOfBases(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	for name, lie := range map[string]func(p *plan){
		"nothing": func(p *plan) { p.Against = nil },
		"others":  func(p *plan) { slices.Reverse(p.Against) },
		"a circle of chunks": func(p *plan) {
			for i := range p.Against {
				next := func(k int) uint32 { return uint32((i+k)%len(p.Chunks) + 1) }
				p.Against[i] = record.Against{next(1), next(7)}
			}
		},
	} {
		r.open(t, 1<<30)
		p, err := r.Tier.planOf(t.Context(), f.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		own := *p.Plan
		own.Against = slices.Clone(p.Against)
		p.Plan = &own
		lie(p)
		r.cache.Free(1 << 40)
		if r.reads(t, f); t.Failed() {
			t.Fatal(name)
		}
	}
}

func unreachableAll(key string, _ int64) error {
	return &bucket.Error{Op: "get", Key: key, Kind: bucket.ErrUnreachable}
}

// Without the remote what is not here is an error that says so, and never that there is no such record.
func TestOffline(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 3)
	r.open(t, 1<<30)
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	if _, err := r.read(f, 4096); !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, cas.ErrNotFound) {
		t.Errorf("nothing is here: %v", err)
	}
	r.remote.set(func(c *counting) { c.fail = nil })
	x, err := r.asm.Open(f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	r.cache.Free(1 << 40)
	var at *assemble.Error
	if _, err := x.ReadAt(make([]byte, 100), 30_000); !errors.Is(err, bucket.ErrUnreachable) ||
		errors.Is(err, cas.ErrNotFound) || !errors.As(err, &at) || at.Tensor != "layer.01" {
		t.Errorf("its chunks are not here: %v", err)
	}
	if _, err := r.Get(cas.Hash{1}, nil); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a record that nobody has: %v", err)
	}
}

// A Tier without a remote is the local store.
func TestNoRemote(t *testing.T) {
	s := remotetest.NewStore(t)
	f := remotetest.Small.Save(t, s, 0, nil)
	x := New(Options{Store: s})
	defer x.Close()
	x.Expect(f.Hashes, false)()
	for _, h := range f.Hashes {
		if _, err := x.Get(h, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := x.Get(cas.Hash{1}, nil); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
	if _, err := x.Pin(f.Manifest); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

// What the local store has is not asked for, and serves as what the rest is stored against.
func TestLocalFirst(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 5)
	var prev *remotetest.Saved
	for v := range 4 {
		prev = remotetest.Small.Save(t, r.store, v, prev)
	}
	r.open(t, 1<<30)
	r.reads(t, f)
	p, err := r.Plan(t.Context(), f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	own := int64(0)
	for _, c := range p.Chunks {
		own += int64(c.Stored) + 80
	}
	if gets, n := r.remote.asked(); gets > 4 || n > own+20_000 {
		t.Errorf("%d requests, %d bytes for %d", gets, n, own)
	}
	remotetest.Small.Save(t, r.store, 4, prev)
	r.cache.Free(1 << 40)
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	r.reads(t, f)
}

// Local says what reading a file takes of the remote, and asks it nothing.
func TestLocal(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 2)
	r.open(t, 1<<30)
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	is := func(want bool) {
		t.Helper()
		if got, err := r.Local(r.files[f.Manifest]); err != nil || got != want {
			t.Errorf("%v, %v", got, err)
		}
	}
	is(false)
	b := r.store.Begin()
	defer b.Release()
	r.remote.set(func(c *counting) { c.fail = nil })
	e := &record.Entry{Path: "runs/a/1/model.pt", File: r.files[f.Manifest]}
	if err := (&bring.Bringer{Reader: r.Reader(), Store: r.store}).File(t.Context(), b, e); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	is(true)
	if ok, err := r.Local(&record.File{Size: 1, Inline: "x"}); !ok || err != nil {
		t.Error(ok, err)
	}
}

// What is brought comes from the cache as far as that has it.
func TestBringFromCache(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 4)
	r.open(t, 1<<30)
	r.reads(t, f)
	r.remote.asked()
	b := r.store.Begin()
	defer b.Release()
	e := &record.Entry{Path: "runs/a/1/model.pt", File: r.files[f.Manifest]}
	if err := (&bring.Bringer{Reader: r.Reader(), Store: r.store}).File(t.Context(), b, e); err != nil {
		t.Fatal(err)
	}
	if gets, n := r.remote.asked(); n > 20_000 {
		t.Errorf("%d requests, %d bytes", gets, n)
	}
}

// Readers of one file at once ask for each record once.
func TestSingleFlight(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	r.open(t, 1<<30)
	r.reads(t, f)
	alone, bytesAlone := r.remote.asked()
	r.folder = t.TempDir()
	r.open(t, 1<<30)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			asm := assemble.New(r.Tier, assemble.Options{CacheBytes: 1 << 20})
			defer asm.Close()
			x, err := asm.Open(f.Manifest)
			if err != nil {
				t.Error(err)
				return
			}
			p := make([]byte, x.Size())
			if _, err := x.ReadAt(p, 0); err != nil && err != io.EOF || !bytes.Equal(p, f.Content) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if gets, n := r.remote.asked(); gets > 2*alone || n > bytesAlone*11/10 {
		t.Errorf("%d requests for %d bytes; one reader makes %d for %d", gets, n, alone, bytesAlone)
	}
}

// Chunks of a pinned file are found, whatever became of its plan, of the name it had, and of other files.
func TestPin(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 2)
	r.open(t, 1<<30)
	r.remote.set(func(c *counting) { c.fail = unreachableAll })
	done, err := r.Pin(f.Manifest) // asks nobody
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Pin(f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	again()
	r.remote.set(func(c *counting) { c.fail = nil })
	delete(r.files, f.Manifest)
	chunk := f.Hashes[0]
	if p, err := r.Get(chunk, nil); err != nil || cas.Sum(p) != chunk {
		t.Error(err)
	}
	r.plans.mu.Lock()
	r.plans.weight += maxPlans // as if others took all of it
	r.plans.shrinkLocked()
	r.plans.mu.Unlock()
	if _, err := r.Get(chunk, nil); err != nil {
		t.Error(err)
	}
	done()
	r.plans.mu.Lock()
	r.plans.shrinkLocked()
	left := r.plans.loaded.Len()
	r.plans.mu.Unlock()
	if left > 0 {
		t.Errorf("%d plans stay", left)
	}
	if _, err := r.Get(chunk, nil); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
	if _, err := r.Pin(f.Manifest); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

// pinned is a rig of one file, which is open.
func pinned(t *testing.T) (*rig, *remotetest.Saved) {
	t.Helper()
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 1)
	r.open(t, 1<<30)
	done, err := r.Pin(f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return r, f
}

// A file that was published again is read by its new plan, also by who has it open, when the objects of the
// one before are gone.
func TestMoved(t *testing.T) {
	r, f := pinned(t)
	if _, err := r.Get(f.Hashes[0], nil); err != nil {
		t.Fatal(err)
	}
	before, err := r.Plan(t.Context(), f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	two := remotetest.NewMachine(t, r.remote.Bucket, 2)
	e, _ := two.Publish(t, "runs/b/0/model.pt", remotetest.Small.Save(t, two.Store, 0, nil))
	if e.File.Manifest != f.Manifest || e.File.Plan == r.files[f.Manifest].Plan {
		t.Fatalf("published again: %+v", e.File)
	}
	for _, o := range before.Objects {
		if err := r.remote.Delete(t.Context(), []string{o.Class.Key(o.ID)}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(r.folder, o.ID.String()[:2])); err != nil {
			t.Fatal(err)
		}
	}
	r.files[f.Manifest] = e.File
	r.Moved([]*record.File{e.File})
	for _, h := range f.Hashes {
		if p, err := r.Get(h, nil); err != nil || cas.Sum(p) != h {
			t.Fatal(err)
		}
	}
	now, err := r.Plan(t.Context(), f.Manifest)
	if err != nil || now.Record.Place == before.Record.Place && now.Objects[0] == before.Objects[0] {
		t.Errorf("the plan is the one before, or: %v", err)
	}
}

// A plan that moves when it was loaded, and is not known to be yet, is forgotten, too.
func TestMovedWhileLoaded(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 1)
	r.open(t, 1<<30)
	two := remotetest.NewMachine(t, r.remote.Bucket, 2)
	e, _ := two.Publish(t, "runs/b/0/model.pt", remotetest.Small.Save(t, two.Store, 0, nil))
	find, asked := r.o.Find, 0
	r.o.Find = func(h cas.Hash) (*record.File, error) {
		before, err := find(h)
		if asked++; asked == 2 { // when the plan has been loaded
			r.files[f.Manifest] = e.File
			r.Moved([]*record.File{e.File})
		}
		return before, err
	}
	if _, err := r.Plan(t.Context(), f.Manifest); err != nil {
		t.Fatal(err)
	}
	p, err := r.planOf(t.Context(), f.Manifest)
	if err != nil || asked < 2 || p.at != e.File.Plan {
		t.Errorf("the plan is the one before, or: %v", err)
	}
}

// TestLoadedMeanwhile: two readers of a file that was never read here load its plan at the same time. The one
// that finds no plan loaded finds it when the other has loaded it.
func TestLoadedMeanwhile(t *testing.T) {
	r, f := pinned(t)
	find := r.o.Find
	r.o.Find = func(h cas.Hash) (*record.File, error) {
		if h != f.Manifest {
			if _, err := r.Plan(t.Context(), f.Manifest); err != nil {
				t.Error(err)
			}
		}
		return find(h)
	}
	if p, err := r.Get(f.Hashes[0], nil); err != nil || cas.Sum(p) != f.Hashes[0] {
		t.Error(err)
	}
}

// Held sees an object that is gone, is another one's, or has damaged records.
func TestHeld(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	r.open(t, 1<<30)
	r.reads(t, f)
	file := r.files[f.Manifest]
	if err := r.Held(t.Context(), file, true); err != nil {
		t.Fatal(err)
	}
	p, err := r.Plan(t.Context(), f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(_ string, _ int64, p []byte) []byte { p[len(p)/2] ^= 1; return p }
	r.remote.set(func(c *counting) { c.change = damaged })
	if err := r.Held(t.Context(), file, true); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	r.remote.set(func(c *counting) { c.change = nil })
	o := p.Objects[0]
	if o.ID == file.Plan.Object {
		o = p.Objects[1]
	}
	key := o.Class.Key(o.ID)
	whole, _, err := bucket.Read(t.Context(), r.remote.Bucket, key, 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	shorter := bucket.Bytes(whole[:len(whole)-8])
	if _, err := r.remote.Put(t.Context(), key, shorter, bucket.Cond{}); err != nil {
		t.Fatal(err)
	}
	err = r.Held(t.Context(), file, false)
	if !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("shorter: %v", err)
	}
	if err := r.remote.Delete(t.Context(), []string{key}); err != nil {
		t.Fatal(err)
	}
	if err := r.Held(t.Context(), file, false); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
}

// Whichever bit is wrong, in the cache or in what the remote gives, no wrong byte is read: the right ones
// come from past every cache, or an error says in which object it lies, and of which tensor it is.
func TestFlips(t *testing.T) {
	tries := 10_000
	if testing.Short() {
		tries = 300
	}
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 8)
	r.remote.set(func(c *counting) { c.past = r.remote.Bucket })
	r.open(t, 1<<30)
	r.reads(t, f)
	p, err := r.Plan(t.Context(), f.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	failed, healed := 0, 0
	for n := range tries {
		o := p.Objects[rnd.IntN(len(p.Objects))]
		key, bit := o.Class.Key(o.ID), rnd.Int64N(8*o.Len)
		off := rnd.IntN(len(f.Content) - 9000)
		r.fresh()
		switch n % 3 {
		case 0: // in the cache
			flip(t, filepath.Join(r.folder, o.ID.String()[:2], o.ID.String()), bit)
		case 1: // on the way, but not from past the caches
			r.cache.Free(1 << 40)
			r.remote.set(func(c *counting) { c.change = flipping(key, bit) })
		case 2: // everywhere
			r.cache.Free(1 << 40)
			r.remote.set(func(c *counting) { c.change = flipping(key, bit) })
			r.remote.set(func(c *counting) { c.past = r.remote })
		}
		got := make([]byte, 9000)
		x, err := r.asm.Open(f.Manifest)
		if err == nil {
			_, err = x.ReadAt(got, int64(off))
		}
		var at *fetch.Error
		switch {
		case err == nil && bytes.Equal(got, f.Content[off:][:9000]):
			healed++
		case err == nil:
			t.Fatalf("%d: bit %d of %s: wrong bytes", n, bit, key)
		case n%3 != 2:
			t.Fatalf("%d: bit %d of %s: %v", n, bit, key, err)
		default:
			failed++
			if !errors.Is(err, cas.ErrCorrupt) || !errors.As(err, &at) || at.Key != key ||
				x != nil && !strings.Contains(err.Error(), "layer.0") {
				t.Fatalf("%d: bit %d of %s: %v", n, bit, key, err)
			}
		}
		r.remote.set(func(c *counting) { c.change = nil })
		r.remote.set(func(c *counting) { c.past = r.remote.Bucket })
	}
	if failed < tries/60 {
		t.Errorf("%d errors, %d right", failed, healed)
	}
	t.Logf("%d errors, %d right", failed, healed)
}

func flipping(key string, bit int64) func(string, int64, []byte) []byte {
	return func(k string, off int64, p []byte) []byte {
		if at := bit/8 - off; k == key && at >= 0 && at < int64(len(p)) {
			p[at] ^= 1 << (bit % 8)
		}
		return p
	}
}

func flip(t *testing.T, name string, bit int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], bit/8); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b[:], bit/8); err != nil {
		t.Fatal(err)
	}
}

// Who gives up waiting for a plan leaves it to the others; a Tier that is closed answers.
func TestClosed(t *testing.T) {
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 2)
	r.open(t, 1<<30)
	r.remote.set(func(c *counting) { c.wait = make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Plan(ctx, f.Manifest); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	over := make(chan error)
	go func() {
		_, err := r.Get(f.Manifest, nil)
		over <- err
	}()
	r.Expect(f.Hashes, false)()
	r.Close()
	if err := <-over; err == nil {
		t.Error("read from a Tier that is closed")
	}
	if _, err := r.Get(f.Hashes[0], nil); err == nil {
		t.Error("read from a Tier that is closed")
	}
	r.Tier = nil
}
