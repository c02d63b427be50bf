package chunks

import (
	"fmt"
	"testing"

	"ckptfs/cas"
)

const million = 1_000_000

func BenchmarkPut(b *testing.B) {
	es := entries(5, million)
	for _, per := range []int{10_000, million} {
		b.Run(fmt.Sprintf("commits of %d", per), func(b *testing.B) {
			var size int64
			for b.Loop() {
				db := newDB(b)
				for i := 0; i < million; i += per {
					if err := db.Commit(es[i:i+per], cas.Watermark{Segment: 1}); err != nil {
						b.Fatal(err)
					}
				}
				size, _ = db.Size()
				db.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/put")
			b.ReportMetric(float64(size)/million, "bytes/entry")
		})
	}
}

// Into a large index: a commit rewrites nearly a page for each of its entries, unless it has many.
func BenchmarkPutMany(b *testing.B) {
	db := newDB(b)
	db.few = none
	for i := range byte(10) {
		if err := db.Commit(entries(10+i, million), cas.Watermark{Segment: 1}); err != nil {
			b.Fatal(err)
		}
	}
	seed := byte(100)
	for _, per := range []int{1 << 15, 1 << 16, 1 << 17, 1 << 18} {
		b.Run(fmt.Sprintf("commits of %d", per), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				seed++
				es := entries(seed, per)
				b.StartTimer()
				if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(per), "ns/put")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	db := newDB(b)
	es := entries(5, million)
	if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
		b.Fatal(err)
	}
	for _, per := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d at a time", per), func(b *testing.B) {
			hashes, locs := make([]cas.Hash, per), make([]cas.Location, per)
			for n := 0; b.Loop(); n++ {
				for i := range hashes {
					hashes[i] = es[(n*per+i)*7919%million].Hash
				}
				if err := db.Locate(hashes, locs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(per), "ns/get")
		})
	}
}
