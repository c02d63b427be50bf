package recipe

import (
	"bytes"
	"testing"

	"ckptfs/formats/detect"
)

// The checkpoints are what they say they are, for the parsers too.
func TestKinds(t *testing.T) {
	for _, k := range Kinds {
		r := Recipe{Kind: k, Seed: 7, Step: 3, Size: 100_000}
		p := r.Bytes()
		if !bytes.Equal(p, r.Bytes()) {
			t.Errorf("%s: not the same twice", k)
		}
		l, err := detect.Detect(bytes.NewReader(p), int64(len(p)))
		want := map[Kind]string{Torch: "torch-zip", Safetensors: "safetensors", Half: "safetensors",
			Quant: "gguf", Merge: "safetensors"}[k]
		n := tensorsEach
		if k == Half || k == Quant || k == Merge {
			n = len(kinNames)
		}
		if want != "" && (err != nil || l.Format != want || len(l.Tensors) != n) {
			t.Errorf("%s: parsed as %+v, %v", k, l, err)
		}
	}
	a, b := Recipe{Kind: Torch, Seed: 1, Step: 1, Size: 60_000}.Bytes(), Recipe{Kind: Torch, Seed: 1,
		Step: 2, Size: 60_000}.Bytes()
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	if same < len(a)/2 || same == len(a) {
		t.Errorf("%d of %d bytes are shared between steps", same, len(a))
	}
}

func TestEdits(t *testing.T) {
	r := Recipe{Kind: Zeros, Size: 10}
	q := r.With(Edit{Off: 12, N: 3, Seed: 1}).With(Edit{Off: 14, Cut: true})
	want := append(make([]byte, 12), noise(1, 3)[:2]...)
	if got := q.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if len(r.Edits) != 0 {
		t.Error("With changed its receiver")
	}
}
