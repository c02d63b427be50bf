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
	for _, mib := range []int{3, 24, 96} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			var rep *audit.Report
			for b.Loop() {
				rep = rotate(b, mib)
			}
			b.ReportMetric(100*(1-float64(rep.Share.Needed)/float64(rep.Share.Bytes)), "pinned-%")
			b.ReportMetric(float64(rep.Share.Bytes)/(1<<20), "MiB")
		})
	}
}

const stored = 256 << 10 // of a chunk

func rotate(b *testing.B, mib int) *audit.Report {
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
	model := make([]cas.Hash, mib<<20/3/stored)
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
		for i, chunks := range [][]cas.Hash{model, optimizer} {
			manifest := local.File(nil, slices.Clone(chunks))
			c, err := local.Closure(manifest)
			if err != nil {
				b.Fatal(err)
			}
			ch.Entries = append(ch.Entries, record.Entry{Path: fmt.Sprintf("runs/a/%d/%d", step, i),
				Mode: 0o644, File: &record.File{Size: c.Size, Manifest: manifest}})
		}
		versions = append(versions, push(ch))
		if old := step - 3; old >= 0 {
			push(writer.Changes{Gone: []writer.Gone{
				{Path: fmt.Sprintf("runs/a/%d/0", old), Version: versions[old], Bare: true},
				{Path: fmt.Sprintf("runs/a/%d/1", old), Version: versions[old], Bare: true}}})
		}
	}
	if _, err := sweep.Collect(b.Context(), mem, sweep.Options{Remote: remoteID, Now: time.Now,
		Collector: "gc.00000001"}); err != nil {
		b.Fatal(err)
	}
	rep, err := audit.Run(b.Context(), mem, audit.Options{Remote: remoteID, Share: true})
	if err != nil || len(rep.Problems) > 0 || rep.Files != 6 {
		b.Fatalf("%d files, %d problems, %v", rep.Files, len(rep.Problems), err)
	}
	return rep
}
