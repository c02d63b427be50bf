package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/formats/detect"
	"ckptfs/index/manifest"
)

// TestSeries packs the files that CKPTFS_SERIES, a glob pattern, matches, in order of their names, each
// against the one before, into one store, and says what each of them added, in records of each kind. It is
// for measuring: without the variable there is nothing to do. With CKPTFS_SERIES_ALONE nothing is stored
// against anything.
func TestSeries(t *testing.T) {
	pattern := os.Getenv("CKPTFS_SERIES")
	if pattern == "" {
		t.Skip("CKPTFS_SERIES is not set")
	}
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	b := newBench(t, disk.OS{}, t.TempDir())
	var logical, stored int64
	var before *manifest.Manifest
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		start, cpu := time.Now(), cpuTime(t)
		batch := b.st.Begin()
		counted := &countedBatch{Batch: batch, fresh: map[cas.Kind][]cas.Hash{}}
		layout, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := b.p.Layout(t.Context(), counted, bytes.NewReader(src), int64(len(src)), layout,
			Related{Before: known(before)})
		if err == nil {
			err = batch.Commit()
		}
		took, cpu := time.Since(start), cpuTime(t)-cpu
		batch.Release()
		if err != nil {
			t.Fatal(err)
		}
		b.same(t, res, src)
		if os.Getenv("CKPTFS_SERIES_ALONE") == "" {
			before = res.Manifest
		}
		of := func(k cas.Kind) (sum uint32) {
			locs := make([]cas.Location, len(counted.fresh[k]))
			if err := b.st.Locate(counted.fresh[k], locs); err != nil {
				t.Fatal(err)
			}
			for _, l := range locs {
				sum += l.Stored
			}
			return sum
		}
		logical += int64(len(src))
		stored += res.FreshStored
		t.Logf("%-20s %-8s %9d bytes  %7d new in %3d records (chunks %d in %d, lists %d in %d, manifest %d; objects %4d, tensors %5d)  %v, %v of processors", filepath.Base(path),
			res.Manifest.Format, len(src), res.FreshStored, res.Fresh, of(cas.Chunk),
			len(counted.fresh[cas.Chunk]),
			of(cas.List), len(counted.fresh[cas.List]), of(cas.Manifest), len(res.Manifest.Objects),
			len(res.Manifest.Tensors), took.Round(time.Millisecond/10), cpu.Round(time.Millisecond/10))
	}
	t.Logf("%d files, %d bytes, %d stored", len(paths), logical, stored)
}

// countedBatch notes what is new.
type countedBatch struct {
	Batch
	mu    sync.Mutex
	fresh map[cas.Kind][]cas.Hash
}

func (c *countedBatch) note(kind cas.Kind, h cas.Hash, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh {
		c.fresh[kind] = append(c.fresh[kind], h)
	}
}

func (c *countedBatch) Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (bool, error) {
	fresh, err := c.Batch.Put(kind, h, raw, hint)
	c.note(kind, h, fresh)
	return fresh, err
}

func (c *countedBatch) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint,
	rel cas.Related) (bool, byte, error) {
	fresh, id, err := c.Batch.PutRelated(kind, h, raw, hint, rel)
	c.note(kind, h, fresh)
	return fresh, id, err
}

// cpuTime is what the process has used of the processors: the machine may be busy with other things.
func cpuTime(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
