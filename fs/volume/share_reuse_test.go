package volume

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/index"
)

// metered counts the requests of one machine, and the bytes that they carry.
type metered struct {
	bucket.Bucket
	mu       sync.Mutex
	requests int
	bytes    int64
	log      []string
}

func (m *metered) count(op, key string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	m.bytes += n
	m.log = append(m.log, fmt.Sprintf("%s %s %d", op, key, n))
}

func (m *metered) reset() { m.requests, m.bytes, m.log = 0, 0, nil }

func (m *metered) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r, info, err := m.Bucket.Get(ctx, key, off, n, unless)
	got := int64(0)
	if err == nil && n != 0 {
		if got = info.Size - off; n > 0 {
			got = min(got, n)
		}
	}
	m.count("get", key, got)
	return r, info, err
}

func (m *metered) Put(ctx context.Context, key string, b bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	m.count("put", key, b.Size)
	return m.Bucket.Put(ctx, key, b, cond)
}

func (m *metered) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	m.count("list", prefix, 0)
	return m.Bucket.List(ctx, prefix, after)
}

// joinMetered is join, with an account of requests.
func (c *cloud) joinMetered(name string) (*machine, *metered) {
	m := &metered{Bucket: &c.mu}
	return c.join(name, func(o *Options) {
		o.Remote = func(remote.Joined) (bucket.Bucket, error) { return m, nil }
	}), m
}

func (c *cloud) index() index.Made {
	c.t.Helper()
	made, err := index.Make(context.Background(), &c.mu, index.Options{Remote: c.id.ID, Now: time.Now,
		Random: rand.Reader})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// baseModel are the bytes of one with tensors of 2 MiB, each from a seed.
func baseModel(t testing.TB, seeds ...uint64) []byte {
	names, data := make([]string, len(seeds)), make([][]byte, len(seeds))
	for i, s := range seeds {
		names[i], data[i] = fmt.Sprintf("layer.%02d", i), random(2<<20, s)
	}
	return weights(t, names, data...)
}

// The aim: the same base model from a second machine takes 0.5 % of its bytes and 40 requests at most. What
// is made of it takes what is new, and a third machine reads all of it.
func TestSameBaseModel(t *testing.T) {
	c := newCloud(t)
	a, _ := c.joinMetered("a")
	b, count := c.joinMetered("b")
	d := c.join("d")
	seeds := make([]uint64, 20)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	files := map[string][]byte{"model-1.safetensors": baseModel(t, seeds[:12]...),
		"model-2.safetensors": baseModel(t, seeds[12:]...), "config.json": []byte(`{"layers": 20}`)}
	size := 0
	for name, p := range files {
		size += len(p)
		a.put("runs/base/1/"+name, p)
		b.put("runs/mine/1/"+name, p)
	}
	a.published("")
	c.index()
	count.reset()
	b.published("")
	if count.requests > 40 || float64(count.bytes) > 0.005*float64(size) {
		t.Errorf("%d requests, %d bytes of %d: %q", count.requests, count.bytes, size, count.log)
	}
	t.Logf("%d MB: %d requests, %d bytes", size>>20, count.requests, count.bytes)
	tuned := baseModel(t, append([]uint64{100, 101}, seeds[2:12]...)...)
	b.put("runs/tuned/1/model.safetensors", tuned)
	count.reset()
	b.published("")
	if count.bytes > 5<<20 {
		t.Errorf("%d bytes of %d: %q", count.bytes, len(tuned), count.log)
	}
	// The machine that had put it may remove it.
	a.unlink("runs/base/1/model-1.safetensors")
	a.published("")
	d.pulled("")
	d.same("runs/tuned/1/model.safetensors", tuned)
	for name, p := range files {
		d.same("runs/mine/1/"+name, p)
	}
}

// What goes on with a run that was pulled puts what is new, and nobody is asked what there is.
func TestPulledRunGoesOn(t *testing.T) {
	c := newCloud(t)
	a, _ := c.joinMetered("a")
	b, count := c.joinMetered("b")
	a.put("runs/x/1/model.safetensors", baseModel(t, 1, 2, 3, 4, 5, 6))
	a.published("")
	b.pulled("")
	c.index()
	count.reset()
	next := baseModel(t, 1, 2, 3, 4, 5, 7)
	b.put("runs/x/2/model.safetensors", next)
	b.published("")
	asked := slices.ContainsFunc(count.log, func(s string) bool {
		return strings.HasPrefix(s, "get d/") || strings.HasPrefix(s, "get i/")
	})
	if count.bytes > 3<<20 || asked {
		t.Errorf("%d bytes: %q", count.bytes, count.log)
	}
	a.pulled("")
	a.same("runs/x/2/model.safetensors", next)
}

// A step that another machine published is a version before, although it was never pulled.
func TestStepBeforeOfOthers(t *testing.T) {
	c := newCloud(t)
	a, _ := c.joinMetered("a")
	b, count := c.joinMetered("b")
	a.put("runs/x/1/model.safetensors", baseModel(t, 1, 2, 3, 4, 5, 6))
	a.published("")
	if _, err := b.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.put("runs/x/1/notes", []byte("mine"))
	b.put("runs/x/2/model.safetensors", baseModel(t, 1, 2, 3, 4, 5, 7))
	count.reset()
	b.published("")
	if count.bytes > 3<<20 {
		t.Errorf("%d bytes: %q", count.bytes, count.log)
	}
}
