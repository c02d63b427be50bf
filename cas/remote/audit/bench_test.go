package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote"
	"ckptfs/cas/remote/audit"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects/objectstest"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
	"ckptfs/cas/remote/writer"
)

// What objects keep that no name needs, where the last three of ten steps are kept and the others were
// collected: of each step a model, stored against that of the step before, and twice as much of an optimizer,
// stored alone. "pinned-%" is of the data objects that are there.
func BenchmarkRotated(b *testing.B) {
	for _, one := range []bool{false, true} {
		for _, kib := range []int{1536, 3 << 10, 24 << 10, 96 << 10} {
			b.Run(fmt.Sprintf("one=%t/KiB=%d", one, kib), func(b *testing.B) {
				var rep *audit.Report
				for b.Loop() {
					rep = rotate(b, kib, one)
				}
				b.ReportMetric(100*(1-float64(rep.Share.Needed)/float64(rep.Share.Bytes)), "pinned-%")
				b.ReportMetric(float64(rep.Share.Bytes)/(1<<20), "MiB")
				b.ReportMetric(float64(rep.Share.Objects), "objects")
			})
		}
	}
}

const stored = 256 << 10 // of a chunk

func rotate(b *testing.B, kib int, one bool) *audit.Report {
	mem, local := &bucket.Mem{}, objectstest.New(1)
	w := writer.New(writer.Options{Bucket: mem, Remote: remoteID, State: &writer.Mem{}, Now: time.Now,
		Parallel: 1, Random: rand.NewChaCha8([32]byte{1}),
		Register: func(ctx context.Context) (record.Writer, error) { return remote.Register(ctx, mem, "w") }})
	push := func(ch writer.Changes) int64 {
		res, err := w.Push(b.Context(), local, ch)
		if err != nil {
			b.Fatal(err)
		}
		return res.Version
	}
	var versions []int64
	model := make([]cas.Hash, kib<<10/3/stored)
	for step := range 10 {
		optimizer := make([]cas.Hash, 2*len(model))
		for i := range optimizer {
			optimizer[i] = local.Alone(cas.Chunk, stored)
		}
		for i := range model {
			if step%8 == 0 {
				model[i] = local.Alone(cas.Chunk, stored)
			} else {
				model[i] = local.Delta(cas.Chunk, stored, model[i])
			}
		}
		var ch writer.Changes
		files := [][]cas.Hash{slices.Clone(model), optimizer}
		if one {
			files = [][]cas.Hash{nil}
			for i := range model { // tensors of 4 chunks, as an optimizer has its moments
				files[0] = append(files[0], optimizer[2*i], optimizer[2*i+1], model[i])
			}
		}
		for i, chunks := range files {
			manifest := local.File(nil, chunks)
			c, err := local.Closure(manifest)
			if err != nil {
				b.Fatal(err)
			}
			ch.Entries = append(ch.Entries, record.Entry{Path: fmt.Sprintf("runs/a/%d/%d", step, i),
				Mode: 0o644, File: &record.File{Size: c.Size, Manifest: manifest}})
		}
		versions = append(versions, push(ch))
		if old := step - 3; old >= 0 {
			var gone []writer.Gone
			for i := range files {
				gone = append(gone, writer.Gone{Path: fmt.Sprintf("runs/a/%d/%d", old, i),
					Version: versions[old], Bare: true})
			}
			push(writer.Changes{Gone: gone})
		}
	}
	if _, err := sweep.Collect(b.Context(), mem, sweep.Options{Remote: remoteID, Now: time.Now,
		Collector: "gc.00000001"}); err != nil {
		b.Fatal(err)
	}
	rep, err := audit.Run(b.Context(), mem, audit.Options{Remote: remoteID, Share: true})
	if err != nil || len(rep.Problems) > 0 || rep.Files < 3 {
		b.Fatalf("%d files, %d problems, %v", rep.Files, len(rep.Problems), err)
	}
	return rep
}
