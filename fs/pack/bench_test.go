package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/formats"
	"ckptfs/formats/detect"
	"ckptfs/formats/safetensors"
	"ckptfs/index/manifest"
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

// BenchmarkPackSmall packs the steps of a run, of ten tensors of 256 bytes each, by groups: each has new
// numbers, as those before.
func BenchmarkPackSmall(b *testing.B) {
	const files, tensors, size = 64, 10, 256
	var entries []safetensors.Entry
	for i := range tensors {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("layer%d.weight", i),
			DType: formats.F32, Shape: []int64{8, size / 32}})
	}
	src, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		b.Fatal(err)
	}
	head := len(src)
	src = append(src, make([]byte, tensors*size)...)
	w := newBench(b, disk.OS{}, filepath.Join(b.TempDir(), "segments"))
	numbers := rand.NewChaCha8([32]byte{1})
	var before *manifest.Manifest
	cpu := cpuTime(b)
	for b.Loop() {
		batch := w.st.Begin()
		for range files {
			_, _ = numbers.Read(src[head:])
			r := bytes.NewReader(src)
			l, err := detect.Detect(r, int64(len(src)))
			if err != nil {
				b.Fatal(err)
			}
			res, err := w.p.Layout(b.Context(), batch, r, int64(len(src)), l,
				Related{Series: "runs/r/0/model.safetensors", Before: known(before)})
			if err != nil {
				b.Fatal(err)
			}
			before = res.Manifest
		}
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		batch.Release()
	}
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N*files), "cpu-µs/file")
}
