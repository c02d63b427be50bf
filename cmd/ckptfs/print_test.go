package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"ckptfs/cas/golden"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

var sampleStats = &control.Stats{
	Files: 21, Packed: 20, Tensors: 2440, Chunks: 3391, Manifests: 20,
	LogicalBytes: 937_800_000, PackedBytes: 937_799_000, UniqueBytes: 44_700_000, StoredBytes: 41_300_000,
	SegmentBytes: 41_000_000,
	IndexBytes:   300_000, DeadBytes: 0, LocalBytes: 234_000_000, PlainBytes: 1000, Ratio: 22.7,
	Runs: []control.RunStats{
		{Run: "a", Steps: 20, Files: 20, LogicalBytes: 900_000_000, UniqueBytes: 44_700_000,
			NewBytes: 44_700_000},
		{Run: "fine-tune \x1b[31m", Steps: 1, Files: 1, LogicalBytes: 37_800_000, UniqueBytes: 37_000_000, NewBytes: 12},
	},
}

var sampleFile = &control.File{
	Path: "runs/a/3/model.pt", Format: "torch-zip", State: control.StateResident, Size: 46_830_571,
	Stored: 41_000_000, Manifest: "6f0c2a…",
	Tensors: []control.Tensor{
		{Name: "conv1.weight", DType: "F32", Shape: []int64{64, 3, 7, 7}, Bytes: 37632, Shared: 19,
			SharedWith: []string{"runs/a/1/model.pt", "runs/a/2/model.pt"}},
		{Name: "bn1.num_batches_tracked", DType: "I64", Bytes: 8, Shape: []int64{}},
		{Name: "größe", DType: "BF16", Bytes: 0, Shape: []int64{0}, Shared: 1, SharedWith: []string{"runs/b/1/model.safetensors"}},
		{Name: "fc.weight\n", DType: "F32", Shape: []int64{1000, 512}, Bytes: 2048000, Shared: 3},
	},
}

func TestGoldens(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	looked := int64(120_000)
	status := &control.Status{
		Version: "0.1.0", Store: "/data/store", Mountpoint: "/mnt/ckpt", Mode: control.ModeServed,
		ModeReason: "no CAP_SYS_ADMIN", PID: 4711,
		Started: at, Queue: control.Queue{Files: 2, Bytes: 90 << 20}, Packing: []string{"runs/a/19/model.pt"},
		UnpackedBytes: 135 << 20, Unidentified: control.Unknown{Files: 1024, More: true},
		ResidentBytes: 3 << 30, HotSize: 32 << 30, OpenFiles: 1,
		Failures: []control.Failure{{Path: "runs/a/7/model.pt", Reason: "no space left on device", Since: at, Attempts: 3}},
		Recovery: "2 files queued again",
		Refused:  control.Refused{Sidecars: []string{"runs/a/7/arch.json: it goes in circles: a, b"}, MoreSidecars: 2},
		Upkeep: control.Upkeep{Looking: &looked, Kernels: "avx2", ComparesBLAKE3: true,
			DiskBytes: 1 << 40, FreeBytes: 60 << 30,
			LastPrune: &control.LastPrune{At: at, FreedBytes: 3 << 30, ByItself: true},
			LastCheck: &control.LastCheck{At: at, ReadData: true, Problems: 2}},
	}
	chain := make([]control.Ancestor, 40)
	for i := range chain {
		m := control.Model{Seq: uint64(40 - i), Path: fmt.Sprintf("runs/a/%d/model.pt", 40-i),
			Tensors: 63, Parent: uint64(39 - i), How: "previous step", Retired: i == 38, RetiredAt: at}
		chain[i] = control.Ancestor{Model: m}
	}
	chain[0].OwnedTensors, chain[0].OwnedBytes = 2, 5<<20
	chain[2].OwnedTensors, chain[2].OwnedBytes = 1, 300
	chain[6].OwnedTensors, chain[6].OwnedBytes = 60, 40<<20
	chain[39].How = "none"
	lineage := &control.Lineage{Models: []control.ModelLineage{{Model: chain[0].Model, Chain: chain,
		Merged: []control.Model{chain[38].Model}}}}
	run := &control.Lineage{}
	for i := range 3 {
		c := []control.Ancestor{chain[i], chain[i+1], chain[6], chain[39]}
		c[2].Skipped, c[3].Skipped = 4-i, 32
		run.Models = append(run.Models, control.ModelLineage{Model: chain[i].Model, Chain: c})
	}
	unmounted := &control.Status{Store: "/data/store", Mode: control.ModeUnmounted, HotSize: -1}
	for name, print := range map[string]func(io.Writer){
		"stats.golden":       func(w io.Writer) { space.Stats(w, sampleStats) },
		"stats-empty.golden": func(w io.Writer) { space.Stats(w, &control.Stats{}) },
		"show.golden":        func(w io.Writer) { printFile(w, sampleFile) },
		"show-plain.golden": func(w io.Writer) {
			printFile(w, &control.File{Path: "notes.txt", Format: "blob",
				State: control.StatePlain, Size: 12})
		},
		"show-view.golden": func(w io.Writer) {
			printFile(w, &control.File{Path: "m.safetensors", Format: "safetensors",
				State: control.StatePacked, View: true, Size: 1 << 20, Stored: 9})
		},
		"lineage.golden":          func(w io.Writer) { text.Lineage(w, lineage) },
		"lineage-run.golden":      func(w io.Writer) { text.Lineage(w, run) },
		"lineage-dot.golden":      func(w io.Writer) { text.LineageDot(w, run) },
		"status.golden":           func(w io.Writer) { text.Status(w, status) },
		"status-unmounted.golden": func(w io.Writer) { text.Status(w, unmounted) },
	} {
		var b bytes.Buffer
		print(&b)
		golden.Same(t, name, b.String())
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"runs/a": "runs/a", "größe": "größe", "": "", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`,
		"\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := text.Printable(in); got != want {
			t.Errorf("%q prints as %s, want %s", in, got, want)
		}
	}
}

// A summary names what changed most, and counts the rest.
func TestDiffSummary(t *testing.T) {
	d := &control.Diff{Files: make([]control.FilePair, 1), Equal: 3, Others: make([]control.OtherFile, 2)}
	for i, norm := range []float64{0.1, math.NaN(), 0.5, 0.2, 0.3} {
		n := control.Number(norm)
		c := control.TensorChange{Name: fmt.Sprint("t", i), Share: 0.25, RelNorm: &n}
		d.Changed = append(d.Changed, c)
	}
	d.Changed = append(d.Changed, control.TensorChange{Name: "quantised"})
	var b strings.Builder
	printDiffCounts(&b, d)
	want := `CHANGED MOST  ELEMENTS  |Δ|/|A|
t2                25 %  0.5
t4                25 %  0.3
t3                25 %  0.2
2 files without tensors differ
3 tensors equal (0 B), 6 changed, 0 reshaped, 0 added, 0 removed; 0 B read
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
