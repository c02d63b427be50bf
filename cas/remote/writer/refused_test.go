package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// collector stamps, as package sweep does.
type collector struct {
	t testing.TB
	b bucket.Bucket
}

// condemn publishes an epoch.
func (c collector) condemn(n uint32, keys ...string) {
	c.t.Helper()
	e := &record.Epoch{Remote: remoteID, Number: n, Collector: "gc.00000000"}
	for _, k := range keys {
		class, id, ok := record.ParseObject(k)
		if !ok {
			c.t.Fatal(k)
		}
		e.Objects = append(e.Objects, record.Key{Class: class, ID: id})
	}
	p, err := e.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := (&record.State{Remote: remoteID, Epoch: n}).Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(record.EpochKey(n), p)
	c.put(record.StateKey, s)
}

func (c collector) put(key string, p []byte) {
	c.t.Helper()
	if _, err := c.b.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c collector) stamp(w record.Writer, n uint32) {
	c.t.Helper()
	p, _, err := bucket.Read(context.Background(), c.b, record.HeadKey(w), record.MaxHead, "")
	if err != nil {
		c.t.Fatal(err)
	}
	h, err := record.DecodeHead(w, p)
	if err != nil {
		c.t.Fatal(err)
	}
	h.Remote, h.Stamp = remoteID, n
	if p, err = h.Encode(w); err != nil {
		c.t.Fatal(err)
	}
	c.put(record.HeadKey(w), p)
}

// before calls do before the first request that puts a key which begins so.
func (f *faulty) before(prefix string, do func()) {
	called := false
	f.fault = func(op, key string, n int) fault {
		if op == "put" && strings.HasPrefix(key, prefix) && !called {
			called = true
			f.mu.Unlock()
			do()
			f.mu.Lock()
		}
		return done
	}
}

// Whatever becomes of one request, what is acknowledged is there, and no name is put twice (faulty panics).
func TestFaults(t *testing.T) {
	for _, prefix := range []string{"heads/", "d/", "m/", "hint"} {
		for what, name := range map[fault]string{lost: "lost", never: "never", delayed: "delayed",
			conflict: "conflict", again: "again", otherTag: "another version"} {
			t.Run(prefix+name, func(t *testing.T) {
				mem := &bucket.Mem{}
				f := &faulty{Bucket: mem}
				r := newRig(t, f, 1)
				a := fileOf("runs/a/1", r.store.Simple(2, 40_000))
				b := fileOf("runs/a/2", r.store.Simple(2, 40_000))
				r.mustPush(inline("runs/a/0", ""))
				f.once("put", prefix, what)
				res := r.mustPush(a)
				f.settle()
				r.check(a, inline("runs/a/0", ""))
				r.mustPush(b)
				r.check(a, b, inline("runs/a/0", ""))
				if h, _ := names(t, mem, r.w.id.Writer); h.Sequence != 3 || res.Sequence != 2 ||
					res.Commit.IsZero() {
					t.Errorf("sequence %d, %+v", h.Sequence, res)
				}
			})
		}
	}
}

// A body that was damaged on the way is sent again, under another name.
func TestDamaged(t *testing.T) {
	f := &faulty{Bucket: &bucket.Mem{}}
	r := newRig(t, f, 1)
	f.once("put", "d/", damaged)
	a := fileOf("runs/a/1", r.store.Simple(2, 40_000))
	r.mustPush(a)
	r.check(a)
}

// What the engine refuses for good ends the push, and nothing is pending; the next one does it.
func TestDenied(t *testing.T) {
	for _, prefix := range []string{"heads/", "d/", "m/"} {
		for what, kind := range map[fault]error{denied: bucket.ErrDenied, noRoom: bucket.ErrFull} {
			f := &faulty{Bucket: &bucket.Mem{}}
			r := newRig(t, f, 1)
			r.mustPush(inline("runs/a/0", ""))
			f.once("put", prefix, what)
			a := fileOf("runs/a/1", r.store.Simple(2, 40_000))
			if _, err := r.push(a); !errors.Is(err, kind) || len(r.state.id.Pending) > 0 {
				t.Errorf("%s: %v, %v", prefix, err, r.state.id)
			}
			r.mustPush(a)
			r.check(a, inline("runs/a/0", ""))
		}
	}
}

// A stamp between any two steps: the commit has it, and nothing that was condemned.
func TestStamped(t *testing.T) {
	for _, prefix := range []string{"d/", "m/", "heads/"} {
		t.Run(prefix, func(t *testing.T) {
			mem := &bucket.Mem{}
			f := &faulty{Bucket: mem}
			r := newRig(t, f, 1)
			c := collector{t, mem}
			r.mustPush(inline("runs/a/0", ""))
			a := fileOf("runs/a/1", r.store.Simple(2, 40_000))
			var condemned []string
			f.before(prefix, func() {
				condemned = nil
				for _, class := range []string{"d/", "m/"} {
					for _, info := range keys(t, mem, class) {
						condemned = append(condemned, info.Key)
					}
				}
				if len(condemned) == 0 {
					condemned = []string{record.ClassData.Key(record.ID{1})}
				}
				c.condemn(1, condemned...)
				c.stamp(r.w.id.Writer, 1)
				if err := mem.Delete(t.Context(), condemned); err != nil {
					t.Error(err)
				}
			})
			r.mustPush(a)
			r.check(a, inline("runs/a/0", ""))
			if h, _ := names(t, mem, r.w.id.Writer); h.Stamp != 1 || h.Sequence != 2 {
				t.Errorf("%+v", h)
			}
		})
	}
}

// A commit that a stamp came before cannot be made any more: it is not remembered.
func TestStampedAndDenied(t *testing.T) {
	mem := &bucket.Mem{}
	f := &faulty{Bucket: mem}
	r := newRig(t, f, 1)
	r.mustPush(inline("runs/a/0", ""))
	tries := 0
	f.fault = func(op, key string, n int) fault {
		if op != "put" || !strings.HasPrefix(key, record.Heads) {
			return done
		}
		if tries++; tries == 2 {
			return denied
		}
		c := collector{t, mem}
		c.condemn(1, record.ClassData.Key(record.ID{1}))
		c.stamp(r.w.id.Writer, 1)
		return done
	}
	if _, err := r.push(inline("runs/a/1", "")); !errors.Is(err, bucket.ErrDenied) || tries != 2 ||
		len(r.state.id.Pending) > 0 {
		t.Errorf("%v, %+v", err, r.state.id)
	}
}

// The first commit is stamped while it is made.
func TestStampedFirst(t *testing.T) {
	mem := &bucket.Mem{}
	f := &faulty{Bucket: mem}
	r := newRig(t, f, 1)
	seen := false
	f.fault = func(op, key string, n int) fault {
		if op == "put" && strings.HasPrefix(key, "heads/") && r.w.id.Writer != "" && !seen {
			seen = true
			c := collector{t, mem}
			c.condemn(1, record.ClassData.Key(record.ID{1}))
			c.stamp(r.w.id.Writer, 1)
		}
		return done
	}
	a := fileOf("runs/a/1", r.store.Simple(2, 40_000))
	r.mustPush(a)
	r.check(a)
	if h, _ := names(t, mem, r.w.id.Writer); h.Stamp != 1 || h.Sequence != 1 || !seen {
		t.Errorf("%+v", h)
	}
}

// What is known and condemned is put again, what is known and not condemned is not.
func TestCondemned(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	m := r.store.Simple(2, 40_000)
	r.mustPush(fileOf("runs/a/1", m))
	c := collector{t, mem}
	c.condemn(1, keys(t, mem, "d/")[0].Key)
	if res := r.mustPush(fileOf("runs/a/2", m)); res.Objects != 2 {
		t.Errorf("%+v", res)
	}
	if res := r.mustPush(fileOf("runs/a/3", m)); res.Objects != 0 {
		t.Errorf("%+v", res)
	}
	if len(keys(t, mem, "d/")) != 2 {
		t.Error("nothing was put anew")
	}
}

// An epoch that is not kept any more: nothing that is known is relied on.
func TestEpochGone(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	m := r.store.Simple(2, 40_000)
	r.mustPush(fileOf("runs/a/1", m))
	c := collector{t, mem}
	c.condemn(1, record.ClassData.Key(record.ID{1}))
	c.condemn(2, record.ClassData.Key(record.ID{2}))
	if err := mem.Delete(t.Context(), []string{record.EpochKey(1)}); err != nil {
		t.Fatal(err)
	}
	if res := r.mustPush(fileOf("runs/a/2", m)); res.Objects != 2 {
		t.Errorf("%+v", res)
	}
	if e, _ := r.state.Epoch(); e != 2 {
		t.Errorf("epoch %d", e)
	}
}

// A copied disk: the one that commits first keeps the name.
func TestCopied(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(inline("runs/a/0", ""))
	other := &rig{t: t, b: mem, store: r.store, state: r.state.Clone(), rand: newRandom(9)}
	other.restart()
	r.mustPush(inline("runs/a/1", "r"))
	var registered *RegisteredError
	if _, err := other.push(inline("runs/a/2", "other")); !errors.As(err, &registered) ||
		registered.Was != r.w.id.Writer || registered.Now == registered.Was {
		t.Fatal(err)
	}
	if res := other.mustPush(inline("runs/a/2", "other")); res.Writer != registered.Now || res.Sequence != 1 {
		t.Errorf("%+v", res)
	}
	r.mustPush(inline("runs/a/3", "r"))
	r.check(inline("runs/a/0", ""), inline("runs/a/1", "r"), inline("runs/a/3", "r"))
	other.check(inline("runs/a/2", "other"))
}

// The same at the moment of the commit, and of the first one.
func TestCopiedAtCommit(t *testing.T) {
	for _, commits := range []int{0, 1} {
		mem := &bucket.Mem{}
		f := &faulty{Bucket: mem}
		r := newRig(t, f, 1)
		if err := r.w.identify(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range commits {
			r.mustPush(inline(fmt.Sprint("runs/a/old", i), ""))
		}
		other := &rig{t: t, b: mem, store: r.store, state: r.state.Clone(), rand: newRandom(9)}
		other.restart()
		f.before("heads/", func() { other.mustPush(inline("runs/a/1", "other")) })
		var registered *RegisteredError
		if _, err := r.push(inline("runs/a/2", "r")); !errors.As(err, &registered) {
			t.Fatal(err)
		}
		f.fault = nil
		r.mustPush(inline("runs/a/2", "r"))
		r.check(inline("runs/a/2", "r"))
	}
}

// The head is gone: it was folded, and deleted when nobody could need it.
func TestGone(t *testing.T) {
	for _, at := range []string{"before", "at the commit"} {
		mem := &bucket.Mem{}
		f := &faulty{Bucket: mem}
		r := newRig(t, f, 1)
		r.mustPush(inline("runs/a/0", ""))
		was := r.w.id.Writer
		remove := func() {
			if err := mem.Delete(t.Context(), []string{record.HeadKey(was)}); err != nil {
				t.Error(err)
			}
		}
		if at == "before" {
			remove()
			r.restart()
		} else {
			f.before("heads/", remove)
		}
		var registered *RegisteredError
		if _, err := r.push(inline("runs/a/1", "r")); !errors.As(err, &registered) || registered.Was != was {
			t.Fatalf("%s: %v", at, err)
		}
		f.fault = nil
		r.mustPush(inline("runs/a/1", "r"))
		r.check(inline("runs/a/1", "r"))
	}
}

// A head that was folded is the writer's still: the next commit is made on it.
func TestFolded(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(inline("runs/a/0", ""))
	h, _ := r.getHead(t)
	h.Folded, h.Tail = true, nil
	p, err := h.Encode(r.w.id.Writer)
	if err != nil {
		t.Fatal(err)
	}
	collector{t, mem}.put(record.HeadKey(r.w.id.Writer), p)
	if res := r.mustPush(inline("runs/a/1", "")); res.Sequence != 2 || res.Version != 2 || res.Head.Folded {
		t.Errorf("%+v", res)
	}
	r.check(inline("runs/a/1", ""))
}

// What was acknowledged and is not there any more stops all writing.
func TestRolledBack(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(inline("runs/a/0", ""))
	key := record.HeadKey(r.w.id.Writer)
	old, _, err := bucket.Read(t.Context(), mem, key, record.MaxHead, "")
	if err != nil {
		t.Fatal(err)
	}
	r.mustPush(inline("runs/a/1", ""))
	for name, p := range map[string][]byte{"an old head": old, "an empty head": nil} {
		for _, restart := range []bool{false, true} {
			if restart {
				r.restart()
			}
			collector{t, mem}.put(key, p)
			if _, err := r.push(inline("runs/a/2", "")); !errors.Is(err, ErrRolledBack) {
				t.Errorf("%s: %v", name, err)
			}
			if now, _, err := bucket.Read(t.Context(), mem, key, record.MaxHead, ""); err != nil ||
				string(now) != string(p) {
				t.Errorf("%s: written over", name)
			}
		}
	}
}

// An epoch that was seen is not there any more.
func TestEpochRolledBack(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	c := collector{t, mem}
	c.condemn(1, record.ClassData.Key(record.ID{1}))
	r.mustPush(inline("runs/a/0", ""))
	if err := mem.Delete(t.Context(), []string{record.StateKey}); err != nil {
		t.Fatal(err)
	}
	for _, state := range []*Mem{r.state, {id: r.state.id}, {id: r.state.id, epoch: 2}} {
		r.state = state
		r.restart()
		if _, err := r.push(inline("runs/a/1", "")); !errors.Is(err, ErrRolledBack) {
			t.Error(err)
		}
	}
}

// What is another remote's is not taken for this one's.
func TestForeign(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	r.mustPush(inline("runs/a/0", ""))
	o := r.options()
	o.Remote = record.ID{9}
	r.w = New(o)
	if _, err := r.push(inline("runs/a/1", "")); !errors.Is(err, cas.ErrCorrupt) {
		t.Error("the head of another remote")
	}
	p, _ := (&record.State{Remote: record.ID{9}, Epoch: 1}).Encode()
	collector{t, mem}.put(record.StateKey, p)
	r.restart()
	if _, err := r.push(inline("runs/a/1", "")); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
	c := collector{t, mem}
	c.condemn(1, record.ClassData.Key(record.ID{1}))
	p, _, err := bucket.Read(t.Context(), mem, record.EpochKey(1), record.MaxObject, "")
	if err != nil {
		t.Fatal(err)
	}
	e, err := record.DecodeEpoch(1, p)
	if err != nil {
		t.Fatal(err)
	}
	e.Remote = record.ID{9}
	if p, err = e.Encode(); err != nil {
		t.Fatal(err)
	}
	c.put(record.EpochKey(1), p)
	if _, err := r.push(inline("runs/a/1", "")); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}

// The writer that the store joined as is used if it has no commit; else what it knew is lost.
func TestJoined(t *testing.T) {
	mem := &bucket.Mem{}
	r := newRig(t, mem, 1)
	joined, err := r.w.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Joined = joined
	r.w = New(o)
	if res := r.mustPush(inline("runs/a/0", "")); res.Writer != joined {
		t.Errorf("%+v", res)
	}
	*r.state = Mem{}
	r.w = New(o)
	var registered *RegisteredError
	if _, err := r.push(inline("runs/a/1", "")); !errors.As(err, &registered) || registered.Was != joined {
		t.Error(err)
	}
	if res := r.mustPush(inline("runs/a/1", "")); res.Writer == joined {
		t.Errorf("%+v", res)
	}
	*r.state = Mem{}
	o.Joined = "gone.00000000"
	r.w = New(o)
	r.mustPush(inline("runs/a/2", ""))
}

// A file that the local store does not give is named, and the others are committed.
func TestLost(t *testing.T) {
	r := newRig(t, &bucket.Mem{}, 1)
	a, b, c := r.store.Simple(2, 40_000), r.store.Simple(2, 40_000), r.store.Simple(1, 40_000)
	broken := errors.New("the disk does not read")
	r.store.Lose(r.store.Chunks(a)[1], broken)
	res := r.mustPush(fileOf("runs/a/1", a), fileOf("runs/a/2", b), fileOf("runs/a/3", cas.Hash{7}))
	r.check(fileOf("runs/a/2", b))
	if len(res.Failed) != 2 || res.Failed[0].Path != "runs/a/1" || !errors.Is(res.Failed[0].Err, broken) ||
		!errors.Is(res.Failed[1].Err, cas.ErrNotFound) {
		t.Errorf("%+v", res.Failed)
	}
	if _, err := r.push(fileOf("runs/a/1", a), fileOf("runs/a/4", c)); err != nil {
		t.Error(err)
	}
	r.store.Lose(r.store.Chunks(a)[1], nil)
	r.mustPush(fileOf("runs/a/1", a))
	r.check(fileOf("runs/a/1", a), fileOf("runs/a/2", b), fileOf("runs/a/4", c))
}

// changing is a store whose record is stored otherwise when it is read for the first time.
type changing struct {
	objects.Source
	change func()
}

func (c *changing) Closure(manifest cas.Hash) (*objects.Closure, error) {
	l, err := c.Source.Closure(manifest)
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return l, err
}

// What is stored otherwise since it was listed is listed again.
func TestChanged(t *testing.T) {
	r := newRig(t, &bucket.Mem{}, 1)
	a := r.store.Simple(2, 40_000)
	chunks := r.store.Chunks(a)
	src := &changing{r.store, func() { r.store.Recode(chunks[1], 35_000, chunks[0]) }}
	ch := Changes{Entries: []record.Entry{fileOf("runs/a/1", a)}}
	if _, err := r.w.Push(t.Context(), src, ch); err != nil {
		t.Fatal(err)
	}
	r.check(fileOf("runs/a/1", a))
}
