package tensors

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"ckptfs/cas/golden"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/fs/control"
)

var sampleFile = &control.File{
	Path: "runs/a/3/model.pt", Format: "torch-zip", State: control.StateResident, Size: 46_830_571,
	Stored: 41_000_000, Manifest: "6f0c2a…",
	Tensors: []control.Tensor{
		{Name: "conv1.weight", DType: "F32", Shape: []int64{64, 3, 7, 7}, Bytes: 37632, Shared: 19,
			SharedWith: []string{"runs/a/1/model.pt", "runs/a/2/model.pt"}},
		{Name: "bn1.num_batches_tracked", DType: "I64", Bytes: 8, Shape: []int64{}},
		{Name: "größe", DType: "BF16", Bytes: 0, Shape: []int64{0}, Shared: 1, SharedWith: []string{"runs/b/1/model.safetensors"}},
		{Name: "fc.weight\n", DType: "F32", Shape: []int64{1000, 512}, Bytes: 2048000, Shared: 3,
			StoredAs: &control.StoredAs{Op: "quantised", Format: "Q4_K", Scales: 0.05, Share: 1,
				Bases: []control.BaseTensor{{Path: "runs/b/1/model.safetensors", Tensor: "head.weight"}}}},
	},
}

func TestGoldens(t *testing.T) {
	for name, f := range map[string]*control.File{
		"show.golden":       sampleFile,
		"show-plain.golden": {Path: "notes.txt", Format: "blob", State: control.StatePlain, Size: 12},
		"show-view.golden": {Path: "m.safetensors", Format: "safetensors", State: control.StatePacked,
			View: true, Size: 1 << 20, Stored: 9},
	} {
		var b bytes.Buffer
		printFile(&b, f)
		golden.Same(t, name, b.String())
	}
}

// What does not follow is told with what does of it.
func TestNotVerified(t *testing.T) {
	for want, v := range map[string]control.Verified{
		"it does not follow: as far as was found, 65 % of it does, and 90 % have to": {Share: 0.65},
		"it does not follow: as far as was found, 0 % of it does, and 90 % have to":  {},
		"it does not follow: as far as was found, 95 % of it does, but of that more than 15 % are stored all the same": {
			Share: 0.95, Bytes: 95, StoredBytes: 40, TensorBytes: 100},
	} {
		if got := notVerified(&v); got.Error() != want || exit.Code(got) != exit.Failure {
			t.Errorf("%q, want %q", got, want)
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
	d.Changed = append(d.Changed, control.TensorChange{Name: "far", Sampled: 3, MaxAbs: d.Changed[0].RelNorm,
		RelNorm: new(control.Number)})
	var b strings.Builder
	printDiffCounts(&b, d)
	want := `CHANGED MOST  ELEMENTS  |Δ|/|A|
t2                25 %  0.5
t4                25 %  0.3
t3                25 %  0.2
2 files without tensors differ
3 tensors equal (0 B), 7 changed, 0 reshaped, 0 added, 0 removed; 0 B read
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	printDiff(&b, d)
	if got := b.String(); strings.Count(got, "none in the sample") != 1 {
		t.Errorf("%s", got)
	}
}
