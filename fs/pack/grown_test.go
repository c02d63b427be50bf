package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cas/disk"
	"ckptfs/formats/detect"
)

func BenchmarkGrown(b *testing.B) {
	pat := os.Getenv("CKPTFS_SERIES")
	paths, _ := filepath.Glob(pat)
	for i := 0; i+1 < len(paths); i += 2 {
		before, _ := os.ReadFile(paths[i])
		src, _ := os.ReadFile(paths[i+1])
		b.Run(filepath.Base(paths[i+1])+"/detect", func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if _, err := detect.Detect(bytes.NewReader(src), int64(len(src))); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(filepath.Base(paths[i+1]), func(b *testing.B) {
			w := newBench(b, disk.OS{}, b.TempDir())
			prev := w.file(b, before)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				batch := w.st.Begin()
				l, err := detect.Detect(bytes.NewReader(src), int64(len(src)))
				if err != nil {
					b.Fatal(err)
				}
				_, err = w.p.Layout(b.Context(), batch, bytes.NewReader(src), int64(len(src)), l, Related{Before: prev.Manifest})
				if err == nil {
					err = batch.Commit()
				}
				if err != nil {
					b.Fatal(err)
				}
				batch.Release()
			}
		})
	}
}
