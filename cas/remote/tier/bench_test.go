package tier

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/fs/assemble"
)

// BenchmarkCached reads a file of which everything is in the cache, or in the local store: by a Tier, or
// where there is no remote.
func BenchmarkCached(b *testing.B) {
	shape := remotetest.Shape{Tensors: 8, Chunks: 32, Elements: 128 << 10, Half: true, Step: 2e-3}
	r := newRig(b)
	f := r.publish(b, shape, 2)
	r.open(b, 1<<30)
	r.reads(b, f)
	here := New(Options{Store: r.one.Store, Bucket: r.remote, Cache: r.cache,
		Find: func(h cas.Hash) (*record.File, error) { return r.files[h], nil }})
	defer here.Close()
	if _, err := here.Plan(b.Context(), f.Manifest); err != nil {
		b.Fatal(err)
	}
	stores := map[string]assemble.Store{"cache": r.Tier, "local": here, "no remote": r.one.Store}
	for name, st := range stores {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(shape.Size())
			b.ReportAllocs()
			for b.Loop() {
				r.asm.Close()
				r.asm = assemble.New(st, assemble.Options{CacheBytes: 64 << 20, Workers: 2})
				if _, err := r.read(f, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
