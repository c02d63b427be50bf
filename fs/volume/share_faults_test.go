package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// ill refuses all puts with one error while it is ill.
type ill struct {
	bucket.Bucket
	kind atomic.Pointer[error]
}

func (i *ill) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if kind := i.kind.Load(); kind != nil {
		return "", &bucket.Error{Op: "put", Key: key, Kind: *kind}
	}
	return i.Bucket.Put(ctx, key, body, cond)
}

// While the bucket is full, refuses, or cannot be reached, work goes on here, and the status says what is not
// published and why. Once it takes something again all is published, and nobody has to do anything for it.
func TestPublishingPauses(t *testing.T) {
	for name, kind := range map[string]error{"full": bucket.ErrFull, "denied": bucket.ErrDenied,
		"unreachable": bucket.ErrUnreachable, "throttled": bucket.ErrBusy, "doubt": bucket.ErrDoubt,
		"unfit": bucket.ErrUnfit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			engine := &ill{Bucket: &c.mu}
			engine.kind.Store(&kind)
			a := c.join("a", func(o *Options) {
				o.Publish = true
				o.Remote = func(remote.Joined) (bucket.Bucket, error) { return engine, nil }
			})
			a.put("runs/x/1/f", []byte("f"))
			a.put("runs/x/2/f", []byte("g"))
			a.eventually("the status says why", func() bool {
				return a.sharing.status(context.Background()).Problem != ""
			})
			a.same("runs/x/1/f", []byte("f"))
			a.unpublished(2, 2, 0)
			a.remoteIs("runs/x/1/f", "pending")
			engine.kind.Store(nil)
			a.eventually("all is published", func() bool {
				return a.remoteState("runs/x/1/f") == "pushed" && a.remoteState("runs/x/2/f") == "pushed"
			})
			a.eventually("nothing is wrong", func() bool {
				return a.sharing.status(context.Background()).Problem == ""
			})
			d := c.join("d")
			d.pulled("")
			d.same("runs/x/2/f", []byte("g"))
		})
	}
}

// Whatever somebody does to one object of a remote, a machine that reads it shows the bytes that were
// published, or an error, and no other bytes; and all is there once the object is as it was.
func TestObjectsDamaged(t *testing.T) {
	c := newCloud(t)
	a, other := c.join("a"), newCloud(t)
	files := map[string][]byte{
		"runs/x/1/model.safetensors": modelFile(t, "ABC"), "runs/x/2/model.safetensors": modelFile(t, "ABD"),
		"runs/x/2/note": []byte("small"), "runs/x/2/opt": random(60<<10, 3)}
	for p, data := range files {
		a.put(p, data)
	}
	a.published("")
	elsewhere := other.join("a")
	elsewhere.put("runs/x/1/model.safetensors", modelFile(t, "XYZ"))
	elsewhere.published("")
	for key, was := range c.contents() {
		for harm, p := range map[string][]byte{"gone": nil, "empty": {}, "cut": was[:len(was)*2/3],
			"longer": append(slices.Clone(was), 0), "a bit": flipped(was), "another": c.another(c, key, was),
			"another remote's": c.another(other, key, was)} {
			t.Run(key[:1]+" "+harm, func(t *testing.T) {
				c.is(key, p)
				d := c.join("d")
				d.Fetch(context.Background())
				d.Pull(context.Background(), "", nil)
				for name, want := range files {
					if !d.exists(path.Dir(name)) {
						continue
					}
					if got, err := d.tryRead(name); err == nil && !bytes.Equal(got, want) {
						t.Errorf("%s has %d other bytes", name, len(got))
					}
				}
				c.is(key, was)
				d.fetched()
				d.pulled("")
				for name, want := range files {
					d.same(name, want)
				}
				d.close()
			})
		}
	}
}

// contents are of all objects that the remote has, but for what machines register.
func (c *cloud) contents() map[string][]byte {
	c.t.Helper()
	all := map[string][]byte{}
	for info := range c.mu.List(context.Background(), "", "") {
		p, _, err := bucket.Read(context.Background(), &c.mu, info.Key, 64<<20, "")
		if err != nil {
			c.t.Fatal(err)
		}
		if len(p) > 0 && info.Key != record.FormatKey {
			all[info.Key] = p
		}
	}
	return all
}

// another is an object of a cloud beside that of a key.
func (c *cloud) another(of *cloud, key string, was []byte) []byte {
	for k, p := range of.contents() {
		if k[:2] == key[:2] && !bytes.Equal(p, was) {
			return p
		}
	}
	return bytes.Repeat([]byte{7}, len(was))
}

func flipped(p []byte) []byte {
	p = slices.Clone(p)
	p[len(p)/2] ^= 4
	return p
}

// is makes an object what somebody wants it to be; nil: it is not there.
func (c *cloud) is(key string, p []byte) {
	c.t.Helper()
	err := c.mu.Delete(context.Background(), []string{key})
	if p != nil {
		_, err = c.mu.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Fatal(err)
	}
}

// cutOff is an engine that cannot be reached while it is cut off; what was asked of it before waits for wait
// to be closed.
type cutOff struct {
	bucket.Bucket
	off    atomic.Bool
	begun  chan struct{} // gets one for each request that waits
	wait   chan struct{}
	reason error
}

func newCutOff(b bucket.Bucket) *cutOff {
	return &cutOff{Bucket: b, begun: make(chan struct{}, 16), wait: make(chan struct{}),
		reason: &bucket.Error{Op: "get", Kind: bucket.ErrUnreachable}}
}

func (c *cutOff) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if c.off.Load() {
		return nil, bucket.Info{}, c.reason
	}
	return c.Bucket.Get(ctx, key, off, n, unless)
}

func (c *cutOff) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if c.off.Load() {
		return "", c.reason
	}
	c.hangs()
	return c.Bucket.Put(ctx, key, body, cond)
}

func (c *cutOff) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if c.off.Load() {
			yield(bucket.Info{}, c.reason)
			return
		}
		c.hangs()
		c.Bucket.List(ctx, prefix, after)(yield)
	}
}

func (c *cutOff) hangs() {
	c.begun <- struct{}{}
	<-c.wait
}

// A command hears that the remote does not answer while what goes on in the background still waits for it.
func TestNoAnswer(t *testing.T) {
	c := newCloud(t)
	engine := newCutOff(&c.mu)
	a := c.join("a", func(o *Options) {
		o.Publish = true
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return engine, nil }
	})
	ctx := context.Background()
	a.put("runs/x/1/f", []byte("f"))
	<-engine.begun // it is being published
	fetched := make(chan error)
	go func() {
		_, err := a.Fetch(ctx)
		fetched <- err
	}()
	<-engine.begun
	engine.off.Store(true)
	_, err := a.Push(ctx, "", control.PushOptions{}, nil)
	if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), "s3://models/team does not answer") ||
		!strings.Contains(err.Error(), "published in the background") {
		t.Errorf("push: %v", err)
	}
	if _, err := a.Fetch(ctx); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("fetch: %v", err)
	}
	if st := a.sharing.status(ctx); st.Offline == nil {
		t.Errorf("%+v", st)
	}
	engine.off.Store(false)
	close(engine.wait)
	if err := <-fetched; err != nil && !errors.Is(err, bucket.ErrUnreachable) {
		t.Error(err)
	}
	a.published("")
	if st := a.sharing.status(ctx); st.Offline != nil || st.Problem != "" {
		t.Errorf("%+v", st)
	}
}

// What was published says that the remote is reached, and what was to be tried again is published with it.
func TestPushTellsTheStatus(t *testing.T) {
	c := newCloud(t)
	engine := &ill{Bucket: &c.mu}
	a := c.join("a", func(o *Options) {
		o.Publish = true
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return engine, nil }
	})
	engine.kind.Store(&bucket.ErrFull)
	a.put("runs/x/1/f", []byte("f"))
	a.put("runs/y/1/f", []byte("g"))
	a.eventually("the status says why", func() bool {
		return a.sharing.status(context.Background()).Problem != ""
	})
	a.sharing.get().Stop() // so that nothing but a command publishes
	engine.kind.Store(nil)
	a.published("runs/x")
	if st := a.sharing.status(context.Background()); st.Problem != "" {
		t.Errorf("%+v", st)
	}
}

// A store on a copied disk takes another name as it pushes. It shows what the other one published meanwhile.
func TestCopiedStoreShowsTheOther(t *testing.T) {
	c := newCloud(t)
	a := c.join("a")
	a.put("runs/r/1/model.pt", random(100_000, 1))
	a.published("runs/r")
	b := &machine{a.crashed(c.shared), c}
	for _, m := range []*machine{a, b} {
		m.names("runs/r") // so that the folder is up to date
	}
	a.put("runs/r/2/model.pt", random(100_000, 2))
	a.published("runs/r")
	b.put("runs/r/3/model.pt", random(100_000, 3))
	b.published("runs/r")
	b.fetched()
	got := slices.Sorted(slices.Values(b.names("runs/r")))
	if want := []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("the copy shows %v, want %v", got, want)
	}
}

// The status says at once that a push has not reached the remote.
func TestPushSaysOffline(t *testing.T) {
	c := newCloud(t)
	engine := &ill{Bucket: &c.mu}
	a := c.join("a", func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return engine, nil }
	})
	a.put("runs/x/1/f", []byte("f"))
	kind := bucket.ErrUnreachable
	engine.kind.Store(&kind)
	if _, err := a.Push(t.Context(), "", control.PushOptions{}, nil); !errors.Is(err, kind) {
		t.Fatal(err)
	}
	if st := a.sharing.status(t.Context()); st.Offline == nil {
		t.Errorf("%+v", st)
	}
	engine.kind.Store(nil)
	a.published("")
	if st := a.sharing.status(t.Context()); st.Offline != nil {
		t.Errorf("%+v", st)
	}
}
