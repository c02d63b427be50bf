package maintenance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/index/chunks"
)

// BenchmarkSweep sweeps a store of small records, of which all are wanted, or every other. It tells the
// processor time, and the most memory that is of no file.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{640_000, 6_400_000} {
		for _, part := range []int{1, 2} {
			b.Run(fmt.Sprintf("%d/wanted=1in%d", n, part), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					dir := b.TempDir()
					s, x := smallRecords(b, dir, n)
					b.StartTimer()
					sweepSmall(b, s, x, part)
					b.StopTimer()
					_ = errors.Join(s.Close(), x.Close(), os.RemoveAll(dir))
					b.StartTimer()
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// smallRecords is a store of n random records of 256 bytes.
func smallRecords(b *testing.B, dir string, n int) (*store.Store, *chunks.DB) {
	b.Helper()
	x, err := chunks.Open(filepath.Join(dir, "index.db"), chunks.Options{})
	if err != nil {
		b.Fatal(err)
	}
	spill, err := disk.OpenFolder(dir)
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(disk.OS{}, filepath.Join(dir, "segments"), [16]byte{}, x,
		store.Options{Spill: spill})
	if err != nil {
		b.Fatal(err)
	}
	r, raw := rand.NewChaCha8([32]byte{}), make([]byte, 256)
	const batch = 1 << 19
	for from := 0; from < n; from += batch {
		put := s.Begin()
		for range min(batch, n-from) {
			_, _ = r.Read(raw)
			if _, err := put.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{}); err != nil {
				b.Fatal(err)
			}
		}
		if err := put.Commit(); err != nil {
			b.Fatal(err)
		}
		put.Release()
	}
	return s, x
}

// sweepSmall sweeps once, with one record of so many wanted, and reports what that took.
func sweepSmall(b *testing.B, s *store.Store, x *chunks.DB, part int) {
	b.Helper()
	n := 0
	debug.FreeOSMemory()
	peak, spent := peakAnonymous(b), spentTime(b)
	_, err := s.Sweep(context.Background(), store.SweepOptions{MaxUnused: store.DefaultMaxUnused},
		func(_ context.Context, m *store.Marking) error {
			return x.ForEach(0, 0xffff, func(e cas.Entry) error {
				if n++; n%part == 0 {
					m.Keep(e.Hash)
				}
				return nil
			})
		})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric((spentTime(b)-spent).Seconds()*1e6/float64(n), "core-µs/record")
	b.ReportMetric(peak()/(1<<20), "MiB")
}

// peakAnonymous begins to look again and again at the memory that is of no file, and returns what tells the
// most.
func peakAnonymous(b *testing.B) (peak func() float64) {
	b.Helper()
	most, stop, stopped := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.Tick(20 * time.Millisecond); ; {
			text, _ := os.ReadFile("/proc/self/status")
			if _, after, ok := strings.Cut(string(text), "RssAnon:"); ok {
				kB, _ := strconv.Atoi(strings.Fields(after)[0])
				most = max(most, kB)
			}
			select {
			case <-stop:
				return
			case <-tick:
			}
		}
	}()
	return func() float64 {
		close(stop)
		<-stopped
		return float64(most) * 1024
	}
}

// spentTime is the processor time that this process has taken.
func spentTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
