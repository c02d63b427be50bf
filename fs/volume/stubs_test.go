package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/index/graph/source"
)

// fetched has a machine see what others published.
func (m *machine) fetched() {
	m.t.Helper()
	if _, err := m.Fetch(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

// stub fails unless a file is one whose bytes the remote has, or is none.
func (m *machine) stub(p string, want bool) {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		m.t.Fatal(err)
	}
	if is := f.StateLocked().Record; is.Remote != want {
		m.t.Errorf("%s: %+v, want a stub: %v", p, is, want)
	}
}

// names are what a folder lists.
func (m *machine) names(p string) (all []string) {
	m.t.Helper()
	n := m.find(p)
	defer m.forget(n)
	d, err := n.OpenDir()
	if err != nil {
		m.t.Fatal(err)
	}
	defer d.Release()
	list, err := m.Volume.Entries(tree.Caller{}, d, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range list {
		if e.Name != "." && e.Name != ".." {
			all = append(all, e.Name)
		}
	}
	return all
}

// What one machine published appears in the mount of another, which reads it.
func TestStubsAppear(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	files := twoSteps(t)
	for p, data := range files {
		a.put(p, data)
	}
	a.published("")
	b.fetched()
	for range 2 {
		for p, data := range files {
			b.stub(p, len(data) > 2048)
			b.same(p, data)
		}
		b.remoteIs("runs/x/1/model.safetensors", "remote")
		b.remoteIs("runs/x/1/metrics.json", "pushed")
		b.remoteIs("runs/x/1", "pushed")
		b.remoteIs("runs/x", "pushed")
		if got := b.names("runs/x"); len(got) != 2 {
			t.Errorf("%q", got)
		}
		b.again()
	}
	if p := b.published(""); p.Names != 0 {
		t.Errorf("what appeared is published: %+v", p)
	}
	if c := b.check(); c.Damaged != 0 {
		t.Errorf("%+v", c)
	}
}

// dropped drops a path; all of it goes but what is named.
func (m *machine) dropped(at string, left ...string) *control.Dropped {
	m.t.Helper()
	d, err := m.Drop(context.Background(), at, nil)
	if err != nil {
		m.t.Fatalf("drop %s: %v", at, err)
	}
	m.skipped("drop", d.Skipped, left)
	return d
}

// What the remote alone has is counted as that, and as nothing plain.
func TestRemoteStats(t *testing.T) {
	a := newCloud(t).join("a")
	p := modelFile(t, "ABC")
	a.put("runs/x/1/model.safetensors", p)
	a.put("runs/x/1/f", []byte("plain"))
	a.published("")
	for _, want := range []int64{0, int64(len(p))} {
		s, err := a.Stats(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if s.PlainBytes != 5 || s.RemoteBytes != want {
			t.Errorf("%d plain, %d remote, want 5, %d", s.PlainBytes, s.RemoteBytes, want)
		}
		a.dropped("")
	}
}

// What is published and dropped is read from the remote, once the store has pruned it, and comes back by a
// pull. What is not published stays.
func TestDrop(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	c := newCloud(t)
	a := c.join("a")
	a.put(p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.sync()
	a.dropped("", p, q) // nothing is published
	a.published("")
	h := a.open(p, unix.O_RDONLY)
	a.dropped(p, p)
	a.release(h)
	a.put(q, modelFile(t, "DEG"))
	a.sync()
	if d := a.dropped("", q); d.Files != 1 {
		t.Errorf("%+v", d)
	}
	a.stub(p, true)
	a.stub(q, false)
	a.remoteIs(p, "remote")
	if d := a.dropped(p); d.Files != 0 {
		t.Errorf("again: %+v", d)
	}
	before := a.segmentBytes()
	a.prune(control.PruneOptions{})
	if after := a.segmentBytes(); after >= before {
		t.Errorf("%d bytes of segments, %d before the prune", after, before)
	}
	for range 2 {
		a.same(p, modelFile(t, "ABC"))
		a.same(q, modelFile(t, "DEG"))
		a.again()
	}
	if c := a.check(); c.Damaged != 0 || c.Remote != 1 {
		t.Errorf("%+v", c)
	}
	a.pulled("", q)
	a.stub(p, false)
	a.remoteIs(p, "pushed")
	a.prune(control.PruneOptions{})
	a.same(p, modelFile(t, "ABC"))
	if p := a.published(""); p.Names != 1 {
		t.Errorf("%+v", p)
	}
}

// What the remote has lost is not dropped.
func TestDropNeedsTheRemote(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	c := newCloud(t)
	a := c.join("a")
	a.put(p, modelFile(t, "ABC"))
	a.published("")
	var keys []string
	for info, err := range c.mu.List(context.Background(), "d/", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if err := c.mu.Delete(context.Background(), keys); err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	a.dropped(p, p)
	a.stub(p, false)
	a.same(p, modelFile(t, "ABC"))
}

// shared is a file that a machine published and another sees as a stub.
func shared(t *testing.T, p string, data []byte) (a, b *machine) {
	c := newCloud(t)
	a, b = c.join("a"), c.join("b")
	a.put(p, data)
	a.published("")
	b.fetched()
	b.stub(p, len(data) > 2048)
	return a, b
}

// What programs do to a stub is as what they do to any file, and is published as that.
func TestChangesOfStubs(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/other.safetensors"
	data := modelFile(t, "ABC")
	for name, c := range map[string]struct {
		do   func(b *machine)
		want map[string][]byte
	}{
		"written over": {
			func(b *machine) { b.put(p, modelFile(t, "XYZ")) },
			map[string][]byte{p: modelFile(t, "XYZ")},
		},
		"appended to": {
			func(b *machine) {
				h := b.open(p, unix.O_WRONLY|unix.O_APPEND)
				if _, err := h.Write([]byte("more"), int64(len(data))); err != nil {
					b.t.Error(err)
				}
				b.release(h)
			},
			map[string][]byte{p: append(slices.Clone(data), "more"...)},
		},
		"cut": {
			func(b *machine) { b.truncate(p, 5000) },
			map[string][]byte{p: data[:5000]},
		},
		"emptied": {
			func(b *machine) { b.release(b.open(p, unix.O_WRONLY|unix.O_TRUNC)) },
			map[string][]byte{p: {}},
		},
		"renamed": {
			func(b *machine) { b.rename(p, q) },
			map[string][]byte{p: nil, q: data},
		},
		"removed": {
			func(b *machine) { b.unlink(p) },
			map[string][]byte{p: nil},
		},
		"linked": {
			func(b *machine) { b.link(p, q) },
			map[string][]byte{p: data, q: data},
		},
		"copied": {
			func(b *machine) {
				h := b.open(q, unix.O_WRONLY|unix.O_CREAT)
				b.copyTo(p, h, 1<<30)
				b.release(h)
			},
			map[string][]byte{p: data, q: data},
		},
		"moved to another folder, and back": {
			func(b *machine) { b.rename("runs/x/1", "runs/x/2"); b.rename("runs/x/2", "runs/x/1") },
			map[string][]byte{p: data},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := shared(t, p, data)
			c.do(b)
			b.sync()
			b.published("")
			d := a.c.join("d")
			a.fetched()
			d.fetched()
			for _, m := range []*machine{a, b, d} {
				for p, want := range c.want {
					if want == nil {
						if m.exists(p) {
							t.Errorf("%s is there", p)
						}
						continue
					}
					m.same(p, want)
				}
			}
			b.conflictsAre()
			b.again()
			for p, want := range c.want {
				if want != nil {
					b.same(p, want)
				}
			}
			if c := b.check(); c.Damaged != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// Without the network names are as they were seen last, and what was read can be read again.
func TestStubsOffline(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/unread.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.fetched()
	b.same(p, modelFile(t, "ABC"))
	b.evictAll()
	b.stub(q, true)
	b.close()
	b.rig = b.reopen(func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return unreachable{}, nil }
		o.RemotePoll = time.Millisecond
	})
	b.same(p, modelFile(t, "ABC"))
	if got := b.names("runs/x/1"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if _, err := b.openFile(q, unix.O_RDONLY); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("what was never read: %v", err)
	}
	b.eventually("the status says so", func() bool { return b.sharing.status(context.Background()).Offline != nil })
	first := b.sharing.status(context.Background()).Offline
	if !strings.Contains(first.Why, "cannot be reached") || first.Since.IsZero() || first.Do == "" {
		t.Errorf("%+v", first)
	}
	b.Fetch(context.Background())
	if o := b.sharing.status(context.Background()).Offline; o == nil || o.Since != first.Since {
		t.Errorf("%+v, then %+v", first, o)
	}
	if c := b.check(); c.Damaged != 0 || c.Unreached == 0 {
		t.Errorf("%+v", c)
	}
	b.rig = b.reopen(b.c.shared)
	b.same(q, modelFile(t, "DEF"))
}

// A read asks for as long as it is told to, whatever the patience of others, and the cache is as large.
func TestStubsTimeout(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.published("")
	b.fetched()
	b.stub(p, true)
	b.close()
	b.rig = b.reopen(func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) {
			return patient.New(unreachable{}, patient.Options{Requests: 1, For: time.Hour}), nil
		}
		o.RemoteTimeout, o.RemoteCache = time.Millisecond, 1<<20
	})
	if _, err := b.openFile(p, unix.O_RDONLY); !errors.Is(err, bucket.ErrUnreachable) {
		t.Error(err)
	}
	if n := b.v.reads.tier.Load().cache.Max(); n != 1<<20 {
		t.Errorf("a cache of %d bytes", n)
	}
	b.rig = b.reopen(b.c.shared)
}

// unreachable is a bucket without a network.
type unreachable struct{}

func (unreachable) fails(op, key string) error {
	return &bucket.Error{Op: op, Key: key, Kind: bucket.ErrUnreachable}
}

func (u unreachable) Get(_ context.Context, key string, _, _ int64, _ bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	return nil, bucket.Info{}, u.fails("get", key)
}

func (u unreachable) Put(_ context.Context, key string, _ bucket.Body, _ bucket.Cond) (
	bucket.Version, error) {
	return "", u.fails("put", key)
}

func (u unreachable) Delete(context.Context, []string) error { return u.fails("delete", "") }

func (u unreachable) List(context.Context, string, string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) { yield(bucket.Info{}, u.fails("list", "")) }
}

// Who has a file open keeps its bytes while another version gets its name.
func TestOpenStubKeepsItsBytes(t *testing.T) {
	const p = "runs/x/1/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	h := b.open(p, unix.O_RDONLY)
	var heard []string
	var mu sync.Mutex
	b.tells(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, name)
	})
	a.put(p, modelFile(t, "XYZ"))
	a.published("")
	b.fetched()
	b.same(p, modelFile(t, "XYZ"))
	if got, err := b.readHandle(h); err != nil || !bytes.Equal(got, modelFile(t, "ABC")) {
		t.Error("the open file has other bytes", err)
	}
	b.release(h)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(heard, "model.safetensors") {
		t.Errorf("the kernel was told of %q alone", heard)
	}
}

// What others removed goes, but for what was changed here.
func TestRemovedElsewhere(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/2/model.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	a.put(q, modelFile(t, "DEF"))
	a.published("")
	b.fetched()
	b.same(q, modelFile(t, "DEF"))
	b.put("runs/x/2/mine", []byte("mine"))
	a.unlink(p)
	x := a.find("runs/x")
	if err := a.Rmdir(x, "1"); err != nil {
		t.Fatal(err)
	}
	a.unlink(q)
	if err := a.Rmdir(x, "2"); err != nil {
		t.Fatal(err)
	}
	a.forget(x)
	a.published("")
	b.fetched()
	if b.exists(p) || b.exists("runs/x/1") || b.exists(q) {
		t.Errorf("%q, %q", b.names("runs/x"), b.names("runs/x/2"))
	}
	b.same("runs/x/2/mine", []byte("mine"))
	if p := b.published(""); p.Removed != 0 {
		t.Errorf("what others removed is removed again: %+v", p)
	}
}

// What others removed goes, too, whose inode changed since it was published, and whose bytes did not.
func TestRemovedElsewhereOfSeveralNames(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/copy.safetensors"
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	b.put(p, modelFile(t, "ABC"))
	b.link(p, q)
	b.published("")
	b.unlink(q)
	a.fetched()
	a.unlink(p)
	a.published("")
	b.fetched()
	if b.exists(p) {
		t.Errorf("%q", b.names("runs/x/1"))
	}
}

// A copy whose bytes the remote has lost keeps nothing else from being published.
func TestLostStubKeepsNothingBack(t *testing.T) {
	const p, q = "runs/x/1/model.safetensors", "runs/x/1/copy.safetensors"
	a, b := shared(t, p, modelFile(t, "ABC"))
	b.link(p, q)
	var keys []string
	for info, err := range a.c.mu.List(context.Background(), "d/", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if err := a.c.mu.Delete(context.Background(), keys); err != nil {
		t.Fatal(err)
	}
	b.put("runs/y/1/f", []byte("f"))
	if out := b.published("", q); out.Names == 0 {
		t.Errorf("%+v", out)
	}
	b.remoteIs("runs/y/1/f", "pushed")
}

// What others published counts among the runs, although nobody has looked into these yet.
func TestRunsOfOthers(t *testing.T) {
	c := newCloud(t)
	a, b := c.join("a"), c.join("b")
	for p, data := range twoSteps(t) {
		a.put(p, data)
	}
	a.published("")
	b.fetched()
	for range 2 {
		list, err := b.Runs(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Runs) != 1 || list.Runs[0].Steps != 2 || list.Runs[0].Complete != 2 {
			t.Errorf("%+v", list.Runs)
		}
		b.again()
	}
}

// A walk over folders that nobody looked into yet waits once for a remote that is not reached, and not for
// each. It goes on when that is back.
func TestWalkOffline(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	b, count := c.joinMetered("b")
	for i := range 5 {
		p := fmt.Sprintf("runs/x%d/1/model.safetensors", i)
		a.put(p, modelFile(t, "ABCDEFG"[i:i+3]))
		graph := chainGraph("qrstuvwxyz"[i:i+3], true)
		if err := a.setXattr(p, source.Xattr, graph); err != nil { // it comes with the name
			t.Fatal(err)
		}
	}
	a.published("")
	b.fetched()
	steps := func() (n int) {
		t.Helper()
		list, err := b.Runs(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Runs {
			n += r.Steps
		}
		return n
	}
	count.Bucket = unreachable{}
	count.reset()
	for range 2 {
		if n := steps(); n != 0 || len(count.asked()) != 1 {
			t.Errorf("%d steps, %q", n, count.asked())
		}
	}
	count.Bucket = &c.mu
	b.fetched()
	if n := steps(); n != 5 {
		t.Errorf("%d steps", n)
	}
}
