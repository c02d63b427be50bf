package remote

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/local"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/tier"
	"ckptfs/cas/remote/writer"
	"ckptfs/cas/simd"
	"ckptfs/fs/assemble"
	"ckptfs/integration/mounttest"
)

// The network that is simulated, and how the plain transfers beside use it.
const (
	latency    = 30 * time.Millisecond
	lineRate   = 200e6
	eachRate   = 90e6
	plainParts = 8 << 20
	plainAt    = 10
	requests   = 16 // at a time, as a mount makes them
	atOnce     = 4  // objects that are put, as a mount puts them
	rawKey     = "raw"
	modelSize  = 336_000_000
)

// slower is by how much the network is slower, and the model is shorter: CKPTFS_BENCH_SLOWER. As much time is
// waited for, and about as many requests are made, for less work of processors that others want, too.
func slower() int {
	n, err := strconv.Atoi(os.Getenv("CKPTFS_BENCH_SLOWER"))
	if err != nil {
		return 1
	}
	return n
}

// model is a bfloat16 model in tensors of 8 MiB.
func model() remotetest.Shape {
	return remotetest.Shape{Tensors: modelSize / (8 << 20) / slower(), Chunks: 32, Elements: 128 << 10,
		Half: true, Step: 2e-3}
}

// bench is a remote on an engine, with two versions of a model: one alone, and its successor.
type bench struct {
	testing.TB
	engine   *mounttest.Engine
	net      *remotetest.Network
	fast     bucket.Bucket // without the network
	slow     *patient.Bucket
	one      *remotetest.Machine
	versions [2]*remotetest.Saved
	files    map[cas.Hash]*record.File
}

// run is what one measurement came to. core is the processor time of the reader or writer, with what
// simulates the network; engine is that of the engine.
type run struct {
	seconds, core, engine float64
	requests              int64
	got, sent             int64
}

func newBench(b *testing.B) *bench {
	e := mounttest.StartEngine(b)
	fast, err := s3.Open(b.Context(), s3.Config{Bucket: e.Bucket, Prefix: "bench/", Endpoint: e.Endpoint,
		PathStyle: true})
	if err != nil {
		b.Fatal(err)
	}
	x := &bench{TB: b, engine: e, fast: fast, files: map[cas.Hash]*record.File{},
		net: &remotetest.Network{Bucket: fast, Latency: latency, All: lineRate / float64(slower()),
			Each: eachRate / float64(slower())}}
	x.slow = patient.New(x.net, patient.Options{Requests: requests, For: time.Minute})
	x.one = remotetest.NewMachine(b, x.fast, 1)
	var prev *remotetest.Saved
	for v := range x.versions {
		prev = model().Save(b, x.one.Store, v, prev)
		e, _ := x.one.Publish(b, fmt.Sprintf("runs/a/%d/model.safetensors", v), prev)
		x.versions[v], x.files[prev.Manifest] = prev, e.File
	}
	if _, err := x.fast.Put(b.Context(), rawKey, bucket.Bytes(prev.Content), bucket.Cond{}); err != nil {
		b.Fatal(err)
	}
	return x
}

// measure times f.
func (x *bench) measure(f func()) run {
	x.net.Asked()
	core, engine, begun := x.cores(0), x.cores(x.engine.PID()), time.Now()
	f()
	r := run{seconds: time.Since(begun).Seconds(), core: x.cores(0) - core,
		engine: x.cores(x.engine.PID()) - engine}
	r.requests, r.got, r.sent = x.net.Asked()
	return r
}

// cores is how many seconds of a processor a process has used, 0 this one: clock_getcpuclockid(3).
func (x *bench) cores(pid int) float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		x.Fatal(err)
	}
	return float64(t.Nano()) / 1e9
}

// plain gets the raw file with several requests at a time.
func (x *bench) plain() {
	size, part := int64(len(x.versions[1].Content)), int64(plainParts/slower())
	x.within(func(folder string) {
		out, err := os.Create(filepath.Join(folder, rawKey))
		if err != nil {
			x.Fatal(err)
		}
		defer out.Close()
		x.parallel(int((size+part-1)/part), func(i int) error {
			off := int64(i) * part
			body, _, err := x.slow.Get(x.Context(), rawKey, off, part, "")
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.Copy(io.NewOffsetWriter(out, off), body)
			return err
		})
	})
}

// within gives f a folder, and removes it: the next measurement takes the memory that its files took. Memory
// that a virtual machine's host has to provide first costs several times what is measured.
func (x *bench) within(f func(folder string)) {
	folder := x.TempDir()
	defer os.RemoveAll(folder)
	f(folder)
}

func (x *bench) parallel(n int, f func(i int) error) {
	var g errgroup.Group
	g.SetLimit(plainAt)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	if err := g.Wait(); err != nil {
		x.Error(err)
	}
}

// reader is a machine with nothing but what its cache has.
func (x *bench) reader(folder string) (*tier.Tier, *assemble.Reader) {
	dir, err := disk.OpenFolder(folder)
	if err != nil {
		x.Fatal(err)
	}
	c, err := cache.Open(dir, cache.Options{Max: 4 << 30,
		Disk: func() (int64, int64, error) { return 1 << 40, 1 << 39, nil }})
	if err != nil {
		x.Fatal(err)
	}
	t := tier.New(tier.Options{Store: remotetest.NewStore(x.TB), Bucket: x.slow, Cache: c,
		Find: func(h cas.Hash) (*record.File, error) { return x.files[h], nil }})
	return t, assemble.New(t, assemble.Options{})
}

// reads reads version v from off on, as far as to, on a machine whose cache is folder.
func (x *bench) reads(folder string, v int, off, to int64) run {
	t, asm := x.reader(folder)
	return x.measure(func() {
		f, err := asm.Open(x.versions[v].Manifest)
		if err != nil {
			x.Fatal(err)
		}
		p := make([]byte, 1<<20)
		for at := off; at < to; {
			n, err := f.ReadWithin(p[:min(int64(len(p)), to-at)], at, to)
			if err != nil && err != io.EOF {
				x.Fatal(err)
			}
			if !bytes.Equal(p[:n], x.versions[v].Content[at:][:n]) {
				x.Fatal("wrong bytes")
			}
			at += int64(n)
		}
		f.Close()
		asm.Close()
		t.Close()
	})
}

// closure is how many bytes of records reading version v takes.
func (x *bench) closure(v int) (own, all int64) {
	src := local.Begin(x.one.Store)
	defer src.Close()
	c, err := src.Closure(x.versions[v].Manifest)
	if err != nil {
		x.Fatal(err)
	}
	mine := map[cas.Hash]bool{}
	for _, h := range x.versions[v].Hashes {
		mine[h] = true
	}
	for i := range c.Records {
		n := int64(c.Records[i].Stored)
		if all += n; mine[c.Records[i].Hash] {
			own += n
		}
	}
	return own, all
}

// puts is a push of version 0 by a machine that has published something before, and plain PUTs of as many
// bytes.
func (x *bench) puts(n byte) (push, plain run) {
	m := remotetest.NewMachine(x.TB, prefixed{x.slow, fmt.Sprintf("push-%d/", n)}, n)
	m.Store, m.Parallel = x.one.Store, atOnce
	src := local.Begin(m.Store)
	defer src.Close()
	publish := func(e record.Entry) writer.Result {
		res, err := m.Push(x.Context(), src, writer.Changes{Entries: []record.Entry{e}})
		if err != nil || len(res.Failed) > 0 {
			x.Fatal(err, res.Failed)
		}
		return res
	}
	publish(record.Entry{Path: "runs/b", Kind: record.KindFolder, Mode: 0o755})
	f := x.versions[0]
	var size int64
	push = x.measure(func() {
		size = publish(record.Entry{Path: "runs/b/model.safetensors", Kind: record.KindFile, Mode: 0o644,
			File: &record.File{Size: int64(len(f.Content)), Manifest: f.Manifest}}).Bytes
	})
	plain = x.measure(func() {
		const part = record.MaxObject
		x.parallel(int((size+part-1)/part), func(i int) error {
			k := min(int64(part), size-int64(i)*part)
			_, err := x.slow.Put(x.Context(), fmt.Sprintf("plain-%d/%d", n, i), bucket.Bytes(f.Content[:k]),
				bucket.Cond{})
			return err
		})
	})
	return push, plain
}

type prefixed struct {
	bucket.Bucket
	prefix string
}

func (p prefixed) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	return p.Bucket.Get(ctx, p.prefix+key, off, n, unless)
}

func (p prefixed) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	return p.Bucket.Put(ctx, p.prefix+key, body, cond)
}

// BenchmarkRemote prints the rows that a machine and a remote can be held to, each beside a plain parallel
// transfer in the same round; medians.
func BenchmarkRemote(b *testing.B) {
	if testing.Short() {
		b.Skip("-short")
	}
	x := newBench(b)
	size := int64(len(x.versions[1].Content))
	_, alone := x.closure(0)
	own, delta := x.closure(1)
	fmt.Printf("%s kernels; network %d times slower; %d MB, alone %d MB, delta %d MB, with bases %d MB\n", simd.Now(),
		slower(), size/1e6, alone/1e6, own/1e6, delta/1e6)
	const rounds = 3
	var plain, cold, against, based, tensor, pushed, put []run
	for n := range rounds {
		plain = append(plain, x.measure(x.plain))
		x.within(func(folder string) {
			cold = append(cold, x.reads(folder, 0, 0, size))
			plain = append(plain, x.measure(x.plain))
			based = append(based, x.reads(folder, 1, 0, size))
		})
		x.within(func(folder string) { against = append(against, x.reads(folder, 1, 0, size)) })
		x.within(func(folder string) {
			const long = 8 << 20 // a tensor
			tensor = append(tensor, x.reads(folder, 1, size/2/long*long, size/2/long*long+long))
		})
		a, c := x.puts(byte(n + 2))
		pushed, put = append(pushed, a), append(put, c)
	}
	p := median(plain)
	row := func(name string, r run, beside run) {
		fmt.Printf("%-20s %6.2f s  %5.2fx plain  %4d requests  %6.1f MB  %5.2f core-s, the engine %5.2f\n", name,
			r.seconds, beside.seconds/r.seconds, r.requests, float64(r.got+r.sent)/1e6, r.core, r.engine)
	}
	row("plain", p, p)
	row("cold, alone", median(cold), p)
	row("cold, delta", median(against), p)
	row("delta, base cached", median(based), p)
	row("one tensor", median(tensor), p)
	row("plain puts", median(put), median(put))
	row("push", median(pushed), median(put))
	step := median(pushed)
	fmt.Printf("push of a step: %d requests (aim %d)\n", step.requests, (step.sent+60<<20-1)/(60<<20)+5)
	fmt.Printf("bytes to closure: alone %.3f, delta %.3f, base cached %.3f to own\n",
		float64(median(cold).got)/float64(alone), float64(median(against).got)/float64(delta),
		float64(median(based).got)/float64(own))
	fmt.Printf("one tensor: %.3f of its share of the closure\n",
		float64(median(tensor).got)/(float64(delta)*(8<<20)/float64(size)))
	x.idle()
	for b.Loop() {
	}
}

// idle prints what asking for news takes where there are none, and what a small step takes.
func (x *bench) idle() {
	h, err := heads.Open(x.slow, record.ID{9}, noCache{})
	if err != nil {
		x.Fatal(err)
	}
	if _, err := h.Poll(x.Context()); err != nil {
		x.Fatal(err)
	}
	r := x.measure(func() {
		if _, err := h.Poll(x.Context()); err != nil {
			x.Fatal(err)
		}
	})
	fmt.Printf("fetch with nothing new: %d requests\n", r.requests)
}

// noCache is a heads.Cache that keeps nothing.
type noCache struct{}

func (noCache) Heads(func(record.Writer, bucket.Version, []byte) error) error { return nil }
func (noCache) SetHeads(map[record.Writer]heads.Kept) error                   { return nil }

func median(all []run) run {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.seconds, b.seconds) })
	return all[len(all)/2]
}
