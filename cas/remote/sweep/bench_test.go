package sweep_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

// A collection that finds nothing: a table of 100,000 files, of eight objects each.
func BenchmarkMark(b *testing.B) {
	const files, each = 100_000, 8
	r := rand.NewPCG(1, 2)
	entries := make([]record.Entry, files)
	mem := &bucket.Mem{}
	for i := range entries {
		deps := make([]record.ID, each)
		for j := range deps {
			// Ascending, and at random places among those of all files.
			binary.BigEndian.PutUint64(deps[j][:], uint64(j)<<61|r.Uint64()>>3)
		}
		entries[i] = record.Entry{Path: fmt.Sprintf("runs/a/%06d", i), Origin: alice, Version: 1,
			File: &record.File{Size: 1, Manifest: cas.Hash{1}, Deps: deps,
				Plan: record.Ref{Object: deps[0], Off: 64, Stored: 1}}}
	}
	put := func(key string, p []byte, err error) {
		must(err)
		_, err = mem.Put(context.Background(), key, bucket.Bytes(p), bucket.Cond{})
		must(err)
	}
	p, table, err := record.EncodeTable(alice, record.ID{1}, entries)
	put(record.ClassTable.Key(table.ID), p, err)
	p, err = (&record.Head{Remote: remoteID, Instance: record.ID{2}, Commit: record.ID{3}, Sequence: 1,
		Clock: 1, Tables: []record.Table{table}}).Encode(alice)
	put(record.HeadKey(alice), p, err)
	b.ReportAllocs()
	for b.Loop() {
		o := sweep.Options{Remote: remoteID, Collector: carol, DryRun: true}
		if _, err := sweep.Collect(context.Background(), mem, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*files), "ns/entry")
}
