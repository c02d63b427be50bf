package pack

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

const benchSize = 256 << 20

func BenchmarkHashAlone(b *testing.B) {
	src := random(benchSize, 1)
	b.SetBytes(benchSize)
	for b.Loop() {
		var wg sync.WaitGroup
		n := runtime.GOMAXPROCS(0)
		for g := range n {
			wg.Go(func() {
				for off := g * cas.ChunkSize; off < benchSize; off += n * cas.ChunkSize {
					cas.Sum(src[off : off+cas.ChunkSize])
				}
			})
		}
		wg.Wait()
	}
}

func BenchmarkPack(b *testing.B) {
	data := random(benchSize, 1)
	for _, c := range []struct {
		name string
		src  []byte
	}{{"tensors", tensors(b, named{"w", data})}, {"unknown", data}} {
		path := filepath.Join(b.TempDir(), "file")
		if err := os.WriteFile(path, c.src, 0o600); err != nil {
			b.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		pack := func(b *testing.B, w *bench) {
			batch := w.st.Begin()
			defer batch.Release()
			if _, err := w.p.File(b.Context(), batch, f, int64(len(c.src))); err != nil {
				b.Fatal(err)
			}
			if err := batch.Commit(); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(c.name+"/new", func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				b.StopTimer()
				w := newBench(b, disk.OS{}, filepath.Join(b.TempDir(), "segments"))
				b.StartTimer()
				pack(b, w)
			}
		})
		b.Run(c.name+"/held", func(b *testing.B) {
			w := newBench(b, disk.OS{}, filepath.Join(b.TempDir(), "segments"))
			pack(b, w)
			b.SetBytes(benchSize)
			for b.Loop() {
				pack(b, w)
			}
		})
		f.Close()
	}
}
