package store

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/codectest"
	"ckptfs/cas/disk"
)

// dataset is n chunks: random bytes, or bytes that zstd takes to a half.
func dataset(n int, random bool) ([][]byte, []cas.Hash) {
	src := rand.NewChaCha8([32]byte{5})
	chunks, hashes := make([][]byte, n), make([]cas.Hash, n)
	for i := range chunks {
		p := make([]byte, cas.ChunkSize)
		_, _ = src.Read(p)
		if !random {
			for j := range p {
				p[j] &= 0x0f
			}
		}
		chunks[i], hashes[i] = p, cas.Sum(p)
	}
	return chunks, hashes
}

func benchStore(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(disk.OS{}, filepath.Join(dir, "segments"), storeID, newIndex(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// putAll puts all chunks with four workers, hashing included, and commits.
func putAll(b *testing.B, s *Store, chunks [][]byte, hint codec.Hint) {
	b.Helper()
	batch := s.Begin()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(chunks) {
					return
				}
				if _, err := batch.Put(cas.Chunk, cas.Sum(chunks[i]), chunks[i], hint); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := batch.Commit(); err != nil {
		b.Error(err)
	}
}

const benchChunks = 512 // 128 MiB

func BenchmarkPutFresh(b *testing.B) {
	for _, c := range []struct {
		name   string
		random bool
	}{{"random", true}, {"compressible", false}} {
		b.Run(c.name, func(b *testing.B) {
			chunks, _ := dataset(benchChunks, c.random)
			b.SetBytes(benchChunks * cas.ChunkSize)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s := benchStore(b, b.TempDir())
				b.StartTimer()
				putAll(b, s, chunks, codec.Hint{})
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkPutCPU is the processor time that new chunks take on a disk in memory, by how they are coded.
func BenchmarkPutCPU(b *testing.B) {
	for _, c := range []struct {
		name string
		data []byte
		hint codec.Hint
	}{
		{"fp32", codectest.Weights(benchChunks*cas.ChunkSize, 4), codec.Hint{DType: "F32", Elem: 4}},
		{"bf16", codectest.Weights(benchChunks*cas.ChunkSize, 2), codec.Hint{DType: "BF16", Elem: 2}},
		{"raw", codectest.Random(benchChunks * cas.ChunkSize), codec.Hint{}},
	} {
		chunks := differing(c.data)
		b.Run(c.name, func(b *testing.B) {
			var used time.Duration
			for b.Loop() {
				dir, err := os.MkdirTemp("/dev/shm", "ckptfs-bench")
				if err != nil {
					b.Fatal(err)
				}
				s := benchStore(b, dir)
				before := processorTime(b)
				putAll(b, s, chunks, c.hint)
				used += processorTime(b) - before
				s.Close()
				os.RemoveAll(dir)
			}
			b.ReportMetric(used.Seconds()/float64(b.N)/float64(len(c.data))*1e9, "cpu-s/GB")
		})
	}
}

// differing are the chunks of p, of which it makes no one like another.
func differing(p []byte) [][]byte {
	chunks := slices.Collect(slices.Chunk(p, cas.ChunkSize))
	for i, c := range chunks {
		binary.LittleEndian.PutUint32(c, uint32(i))
	}
	return chunks
}

// BenchmarkSyncAhead puts and commits 512 MiB of fp32 weights, synced by the commit alone or while they are
// put.
func BenchmarkSyncAhead(b *testing.B) {
	const size = 512 << 20
	chunks := differing(codectest.Weights(size, 4))
	for _, c := range []struct {
		name  string
		ahead int64
	}{{"commit", 1 << 40}, {"ahead", syncAhead}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				b.StopTimer()
				dir := b.TempDir()
				s := benchStore(b, dir)
				s.appender.ahead = c.ahead
				b.StartTimer()
				putAll(b, s, chunks, codec.Hint{DType: "F32", Elem: 4})
				b.StopTimer()
				s.Close()
				os.RemoveAll(dir)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkPutDuplicate(b *testing.B) {
	chunks, _ := dataset(benchChunks, true)
	s := benchStore(b, b.TempDir())
	defer s.Close()
	putAll(b, s, chunks, codec.Hint{})
	b.SetBytes(benchChunks * cas.ChunkSize)
	b.ReportAllocs()
	for b.Loop() {
		putAll(b, s, chunks, codec.Hint{})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, c := range []struct {
		name   string
		random bool
	}{{"raw", true}, {"zstd", false}} {
		chunks, hashes := dataset(benchChunks, c.random)
		s := benchStore(b, b.TempDir())
		putAll(b, s, chunks, codec.Hint{})
		get := func(b *testing.B, i int, dst []byte) []byte {
			dst, err := s.Get(hashes[i%benchChunks], dst[:0])
			if err != nil {
				b.Error(err)
			}
			return dst
		}
		b.Run(c.name+"/one", func(b *testing.B) {
			b.SetBytes(cas.ChunkSize)
			b.ReportAllocs()
			var dst []byte
			for i := 0; b.Loop(); i++ {
				dst = get(b, i, dst)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.SetBytes(cas.ChunkSize)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				var dst []byte
				for i := 0; pb.Next(); i++ {
					dst = get(b, i, dst)
				}
			})
		})
		s.Close()
	}
}

// BenchmarkGetCompares reads weights that are coded, in turn with trust and without, and prints the
// processor time of a gigabyte in each, and by how much comparing the hash takes more.
func BenchmarkGetCompares(b *testing.B) {
	for _, hint := range []codec.Hint{fp32, {DType: "BF16", Elem: 2}} {
		b.Run(hint.DType, func(b *testing.B) {
			all := codectest.Weights(64*cas.ChunkSize, hint.Elem)
			s := benchStore(b, b.TempDir())
			defer s.Close()
			batch := s.Begin()
			var hashes []cas.Hash
			for raw := range slices.Chunk(all, cas.ChunkSize) {
				hashes = append(hashes, cas.Sum(raw))
				if _, err := batch.Put(cas.Chunk, cas.Sum(raw), raw, hint); err != nil {
					b.Fatal(err)
				}
			}
			if err := batch.Commit(); err != nil {
				b.Fatal(err)
			}
			var took [2]time.Duration
			var rounds [2]float64
			var dst []byte
			for i := 0; b.Loop(); i++ {
				trusted := i % 2
				s.reader.trust.Init(trusted == 1, nil)
				before := processorTime(b)
				for _, h := range hashes {
					var err error
					if dst, err = s.Get(h, dst[:0]); err != nil {
						b.Fatal(err)
					}
				}
				took[trusted] += processorTime(b) - before
				rounds[trusted] += float64(len(all)) / 1e9
			}
			hash, sum := took[0].Seconds()/rounds[0], took[1].Seconds()/rounds[1]
			b.ReportMetric(hash, "BLAKE3-s/GB")
			b.ReportMetric(sum, "XXH3-s/GB")
			b.ReportMetric(hash/sum, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processorTime is what this process has taken.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
