package remotetest_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/remote/tier"
	"ckptfs/cas/remote/writer"
	"ckptfs/fs/assemble"
)

// The network of the aims, and how the plain transfers beside use it.
const (
	latency    = 30 * time.Millisecond
	lineRate   = 200e6
	eachRate   = 90e6
	plainAt    = 10
	plainParts = 8 << 20
	atOnce     = 4 // objects that are put, as a mount puts them
)

// line is a remote with two versions of a model: one stored alone, and its successor.
type line struct {
	*testing.T
	mem      *bucket.Mem
	one      *remotetest.Machine
	versions [2]*remotetest.Saved
	files    map[cas.Hash]*record.File
}

func newLine(t *testing.T) *line {
	x := &line{T: t, mem: &bucket.Mem{}, files: map[cas.Hash]*record.File{}}
	x.one = remotetest.NewMachine(t, x.mem, 1)
	shape := remotetest.Shape{Tensors: 40, Chunks: 32, Elements: 128 << 10, Half: true, Step: 2e-3}
	var prev *remotetest.Saved
	for v := range x.versions {
		prev = shape.Save(t, x.one.Store, v, prev)
		e, _ := x.one.Publish(t, pathOf(v), prev)
		x.versions[v], x.files[prev.Manifest] = prev, e.File
	}
	if _, err := x.mem.Put(t.Context(), "raw", bucket.Bytes(prev.Content), bucket.Cond{}); err != nil {
		t.Fatal(err)
	}
	return x
}

func pathOf(v int) string { return fmt.Sprintf("runs/a/%d/model.safetensors", v) }

// took is what something came to.
type took struct {
	time     time.Duration
	requests int64
	bytes    int64
}

func (d took) String() string {
	return fmt.Sprintf("%.3f s, %d requests, %.1f MB", d.time.Seconds(), d.requests, float64(d.bytes)/1e6)
}

// trips is how many round trips followed each other, if bytes take no time.
func (d took) trips() int { return int(d.time / latency) }

func (x *line) network(b bucket.Bucket) *remotetest.Network {
	return &remotetest.Network{Bucket: b, Latency: latency, All: lineRate, Each: eachRate}
}

func measure(n *remotetest.Network, f func()) took {
	n.Asked()
	begun := time.Now()
	f()
	d := took{time: time.Since(begun)}
	requests, got, sent := n.Asked()
	d.requests, d.bytes = requests, got+sent
	return d
}

// plain transfers an object of that size with several requests at a time.
func (x *line) plain(size, part int64, f func(n *remotetest.Network, i, part int64) error) took {
	n := x.network(x.mem)
	return measure(n, func() {
		var g errgroup.Group
		g.SetLimit(plainAt)
		for i := range (size + part - 1) / part {
			g.Go(func() error { return f(n, i, min(part, size-i*part)) })
		}
		if err := g.Wait(); err != nil {
			x.Error(err)
		}
	})
}

func (x *line) plainGets(size int64) took {
	return x.plain(size, plainParts, func(n *remotetest.Network, i, part int64) error {
		body, _, err := n.Get(x.Context(), "raw", i*plainParts, part, "")
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(io.Discard, body)
		return err
	})
}

func (x *line) plainPuts(size int64) took {
	return x.plain(size, record.MaxObject, func(n *remotetest.Network, i, part int64) error {
		_, err := n.Put(x.Context(), fmt.Sprint("plain/", i), bucket.Bytes(x.versions[0].Content[:part]),
			bucket.Cond{})
		return err
	})
}

// reads reads the first bytes of a version, on a machine that has nothing but what the folder of its cache
// has.
func (x *line) reads(n *remotetest.Network, folder string, v int, bytes int64) took {
	dir, err := disk.OpenFolder(folder)
	if err != nil {
		x.Fatal(err)
	}
	c, err := cache.Open(dir, cache.Options{Max: 4 << 30,
		Disk: func() (int64, int64, error) { return 1 << 40, 1 << 39, nil }})
	if err != nil {
		x.Fatal(err)
	}
	t := tier.New(tier.Options{Store: remotetest.NewStore(x), Bucket: n, Cache: c,
		Find: func(h cas.Hash) (*record.File, error) { return x.files[h], nil }})
	defer t.Close()
	asm := assemble.New(t, assemble.Options{Workers: 2})
	defer asm.Close()
	return measure(n, func() {
		f, err := asm.Open(x.versions[v].Manifest)
		if err != nil {
			x.Fatal(err)
		}
		defer f.Close()
		p := make([]byte, min(bytes, 1<<20))
		for at := int64(0); at < bytes; {
			k, err := f.ReadWithin(p, at, bytes)
			if err != nil && err != io.EOF {
				x.Fatal(err)
			}
			at += int64(k)
		}
	})
}

// push publishes a version on a machine that has published something before.
func (x *line) push(n *remotetest.Network, v int, number byte) (took, writer.Result) {
	m := remotetest.NewMachine(x, n, number)
	m.Store, m.Parallel = x.one.Store, atOnce
	src := local.Begin(m.Store)
	defer src.Close()
	var res writer.Result
	publish := func(e record.Entry) {
		var err error
		if res, err = m.Push(x.Context(), src, writer.Changes{Entries: []record.Entry{e}}); err != nil {
			x.Fatal(err)
		}
	}
	publish(record.Entry{Path: "runs", Kind: record.KindFolder, Mode: 0o755})
	f := x.versions[v]
	d := measure(n, func() {
		publish(record.Entry{Path: pathOf(v), Kind: record.KindFile, Mode: 0o644,
			File: &record.File{Size: int64(len(f.Content)), Manifest: f.Manifest}})
	})
	return d, res
}

// names is how many round trips it takes to know the names in a run of a remote that was never seen, and how
// many requests to find that nothing is new.
func (x *line) names() (cold int, idle int64) {
	n := &remotetest.Network{Bucket: x.mem, Latency: latency}
	h, err := heads.Open(n, record.ID{9}, noCache{})
	if err != nil {
		x.Fatal(err)
	}
	cold = measure(n, func() {
		if _, err := h.Poll(x.Context()); err != nil {
			x.Fatal(err)
		}
		of, err := h.Below(x.Context(), "runs/a/1")
		if err != nil || len(of) != 1 {
			x.Fatal(of, err)
		}
	}).trips()
	poll := func() { _, err = h.Poll(x.Context()) }
	poll()
	return cold, measure(n, poll).requests
}

type noCache struct{}

func (noCache) Heads(func(record.Writer, bucket.Version, []byte) error) error { return nil }
func (noCache) SetHeads(map[record.Writer]heads.Kept) error                   { return nil }

// What reading and publishing takes where nothing but the network takes time: requests, bytes, and which of
// them wait for each other. The clock is not the machine's, so the figures are the same on a loaded one.
func TestNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	synctest.Test(t, func(t *testing.T) {
		x := newLine(t)
		size := int64(len(x.versions[1].Content))
		row := func(name string, d, plain took, least float64) {
			ratio := plain.time.Seconds() / d.time.Seconds()
			t.Logf("%-18s %5.2fx plain (aim %.1fx): %v", name, ratio, least, d)
			if ratio < least {
				t.Errorf("%s: %.2f of a plain transfer, want %.2f", name, ratio, least)
			}
		}
		plain := x.plainGets(size)
		row("plain", plain, plain, 1)
		folder := t.TempDir()
		row("cold, alone", x.reads(x.network(x.mem), folder, 0, size), plain, 1.3)
		row("cold, delta", x.reads(x.network(x.mem), t.TempDir(), 1, size), plain, 1.1)
		row("delta, base cached", x.reads(x.network(x.mem), folder, 1, size), plain, 4)
		pushed, res := x.push(x.network(&bucket.Mem{}), 0, 2)
		row("push", pushed, x.plainPuts(res.Bytes), 0.9)
		if most := (res.Bytes+60<<20-1)/(60<<20) + 5; pushed.requests > most {
			t.Errorf("a push of %d bytes took %d requests, want %d", res.Bytes, pushed.requests, most)
		}
		x.trips()
	})
}

// trips are round trips before the first byte.
func (x *line) trips() {
	names, idle := x.names()
	if idle != 1 {
		x.Errorf("%d requests to find that nothing is new, want 1", idle)
	}
	first := func(folder string, v int) int {
		return x.reads(&remotetest.Network{Bucket: x.mem, Latency: latency}, folder, v, 1).trips()
	}
	base := x.TempDir()
	row := func(name string, n, most int) {
		x.Logf("%-38s %d round trips to the first byte, cold mount %d", name, n, names+n)
		if n > most {
			x.Errorf("%s: %d round trips to the first byte, want %d", name, n, most)
		}
	}
	row("stored alone", first(base, 0), 2)
	row("a delta, base cached", first(base, 1), 2)
	row("a delta, nothing cached", first(x.TempDir(), 1), 2)
	push, _ := x.push(&remotetest.Network{Bucket: &bucket.Mem{}, Latency: latency}, 0, 3)
	if push.trips() > 4 { // of five objects four are put at a time
		x.Errorf("%d round trips of a push, want 4: objects, again, head, hint", push.trips())
	}
	if names+2 > 5 {
		x.Errorf("%d round trips to know names, want 3", names)
	}
}
