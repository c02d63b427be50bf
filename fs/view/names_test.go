package view

import (
	"slices"
	"testing"
)

// docs/views.md has this order.
func TestSources(t *testing.T) {
	want := []string{".pt", ".pth", ".bin", ".ckpt", ".pt2", ".npz", ".npy", ".h5", ".hdf5", ".keras",
		".onnx", ".gguf"}
	if !slices.Equal(Sources, want) {
		t.Errorf("%v, want %v", Sources, want)
	}
}

func TestStem(t *testing.T) {
	for source, want := range map[string]string{
		"m.pt": "m", "a.b.npz": "a.b", "m.weights.h5": "m.weights", ".pt": "", "m.safetensors": "", "m": "",
		"": "",
	} {
		if got, ok := Stem(source); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", source, got, ok, want)
		}
	}
}
