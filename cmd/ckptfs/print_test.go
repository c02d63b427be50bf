package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cas/golden"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/fs/control"
)

var sampleStats = &control.Stats{
	Files: 21, Packed: 20, Tensors: 2440, Chunks: 3391, Manifests: 20,
	LogicalBytes: 937_800_000, PackedBytes: 937_799_000, UniqueBytes: 44_700_000, StoredBytes: 41_300_000,
	SegmentBytes: 41_000_000,
	IndexBytes:   300_000, DeadBytes: 0, LocalBytes: 234_000_000, CopiesBytes: 233_999_000,
	PlainBytes: 1000, Ratio: 22.7,
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
	},
}

func TestGoldens(t *testing.T) {
	for name, print := range map[string]func(io.Writer){
		"stats.golden":       func(w io.Writer) { space.Stats(w, sampleStats) },
		"stats-empty.golden": func(w io.Writer) { space.Stats(w, &control.Stats{}) },
	} {
		var b bytes.Buffer
		print(&b)
		golden.Same(t, name, b.String())
	}
}

// What cannot be printed is an error, whatever prints it.
func TestFullOutput(t *testing.T) {
	store := packedStore(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	file := filepath.Join(store, "tree", "kept")
	for _, args := range [][]string{{"runs", store}, {"stats", store}, {"ls", store}, {"status", store},
		{"check", store}, {"du", store}, {"diff", file, file}, {"version"}, {"--help"}} {
		for _, asJSON := range [][]string{nil, {"--json"}} {
			var errs bytes.Buffer
			code := run(t.Context(), append(args, asJSON...), full, &errs)
			if code != exit.Failure || strings.Count(errs.String(), "no space left on device") != 1 {
				t.Errorf("%v %v: exit %d, %s", args, asJSON, code, &errs)
			}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"stats", store}, w, &errs); code != exit.OK || errs.Len() > 0 {
		t.Errorf("to nobody: exit %d, %s", code, &errs)
	}
}
