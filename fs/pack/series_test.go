package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// TestSeries packs the files that CKPTFS_SERIES, a glob pattern, matches, in order of their names, into one store, and says
// what each of them added. It is for measuring: without the variable there is nothing to do.
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
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		start, cpu := time.Now(), cpuTime(t)
		batch := b.st.Begin()
		res, err := b.p.File(t.Context(), batch, bytes.NewReader(src), int64(len(src)))
		if err == nil {
			err = batch.Commit()
		}
		took, cpu := time.Since(start), cpuTime(t)-cpu
		batch.Release()
		if err != nil {
			t.Fatal(err)
		}
		b.same(t, res, src)
		locs := make([]cas.Location, 1)
		if err := b.st.Locate([]cas.Hash{res.Hash}, locs); err != nil {
			t.Fatal(err)
		}
		logical += int64(len(src))
		stored += res.FreshStored
		t.Logf("%-20s %-8s %9d bytes  %7d new in %3d records (manifest %5d, objects %4d, tensors %5d)  %v, %v of processors", filepath.Base(path),
			res.Manifest.Format, len(src), res.FreshStored, res.Fresh, locs[0].Stored, len(res.Manifest.Objects),
			len(res.Manifest.Tensors), took.Round(time.Millisecond/10), cpu.Round(time.Millisecond/10))
	}
	t.Logf("%d files, %d bytes, %d stored", len(paths), logical, stored)
}

// cpuTime is what the process has used of the processors: the machine may be busy with other things.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
