package source

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

func kinds(src []Source) string {
	var out []string
	for _, s := range src {
		out = append(out, strings.TrimSpace(s.Kind.String()+" "+s.Rel))
	}
	return strings.Join(out, ", ")
}

func TestSources(t *testing.T) {
	for _, tc := range []struct{ files, rel, format, want string }{
		{"m.pt", "m.pt", "torch-zip", "seq"},
		{"m.pt m.pt.arch.json arch.json", "m.pt", "torch-zip",
			"explicit m.pt.arch.json, explicit arch.json, seq"},
		{"sub/m.bin arch.json sub/graph.json", "sub/m.bin", "torch-legacy",
			"explicit sub/graph.json, explicit arch.json, seq"},
		{"m.safetensors", "m.safetensors", "safetensors", "explicit m.safetensors, bag"},
		{"m.safetensors model.onnx x.pt2", "m.safetensors", "safetensors",
			"explicit m.safetensors, onnx model.onnx, export x.pt2, bag"},
		{"a.pt2 b.pt2 m.pt", "m.pt", "torch-zip", "seq"},
		{"a.pt2 b.pt2", "b.pt2", "torch-zip", "export b.pt2, seq"},
		{"net.onnx", "net.onnx", "onnx", "onnx net.onnx, bag"},
		{"m.keras", "m.keras", "zip", "keras m.keras, bag"},
		{"m.h5", "m.h5", "hdf5", "keras m.h5, bag"},
		{"m.h5 n.keras", "m.h5", "hdf5", "keras m.h5, keras n.keras, bag"},
	} {
		var files []File
		for _, f := range strings.Fields(tc.files) {
			files = append(files, File{Rel: f, Stamp: "1"})
		}
		if got := kinds(Find(files, tc.rel, tc.format)); got != tc.want {
			t.Errorf("%s of %s: %s; want %s", tc.rel, tc.files, got, tc.want)
		}
	}
	a := Find([]File{{Rel: "arch.json", Stamp: "1"}}, "m.pt", "torch-zip")[0].Key
	if b := Find([]File{{Rel: "arch.json", Stamp: "2"}}, "m.pt", "torch-zip")[0].Key; a == b {
		t.Error("a sidecar that changed has the same key")
	}
}

// opener opens files in memory.
func opener(files map[string][]byte) Open {
	return func(rel string) (io.ReaderAt, int64, func(), error) {
		p, ok := files[rel]
		if !ok {
			return nil, 0, nil, os.ErrNotExist
		}
		return bytes.NewReader(p), int64(len(p)), func() {}, nil
	}
}

func safetensorsWith(t *testing.T, metadata map[string]string) []byte {
	t.Helper()
	head, err := json.Marshal(map[string]any{"__metadata__": metadata})
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
}

func TestRead(t *testing.T) {
	const arch = `{"v":1,"nodes":[{"id":"x","op":"Input"},{"id":"fc","op":"Linear","in":["x"],"params":["fc.weight"]}]}`
	tensors := []formats.Tensor{{Name: "fc.weight", DType: formats.F32, Shape: []int64{2, 2}}}
	sample := func(name string) []byte {
		p, err := os.ReadFile("../../../formats/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	open := opener(map[string][]byte{
		"arch.json":         []byte(arch),
		"bad.json":          []byte(`{"v":1,"nodes":[{"id":"fc","op":"Linear","params":["fc.bias"]}]}`),
		"large.json":        make([]byte, MaxSource+1),
		"m.safetensors":     safetensorsWith(t, map[string]string{metadataKey: arch}),
		"plain.safetensors": safetensorsWith(t, map[string]string{"format": "pt"}),
		"x.pt2":             sample("torch/exported.pt2"), "m.keras": sample("hdf5/model.keras"),
		"m.onnx": sample("onnx/types.onnx"),
	})
	for _, tc := range []struct {
		src      Source
		vertices int // 0: refused; -1: some
	}{
		{Source{Kind: graph.Explicit, Rel: "arch.json"}, 2},
		{Source{Kind: graph.Explicit, Rel: "m.safetensors"}, 2},
		{Source{Kind: graph.Export, Rel: "x.pt2"}, -1},
		{Source{Kind: graph.Keras, Rel: "m.keras"}, -1}, {Source{Kind: graph.ONNX, Rel: "m.onnx"}, -2},
		{Source{Kind: graph.Seq}, 1}, {Source{Kind: graph.Bag}, 1},
		{Source{Kind: graph.Explicit, Rel: "bad.json"}, 0},
		{Source{Kind: graph.Explicit, Rel: "large.json"}, 0},
		{Source{Kind: graph.Explicit, Rel: "plain.safetensors"}, 0},
		{Source{Kind: graph.Export, Rel: "m.keras"}, 0}, {Source{Kind: graph.Keras, Rel: "x.pt2"}, 0},
		{Source{Kind: graph.Keras, Rel: "arch.json"}, 0},
	} {
		g, err := Read(&tc.src, open, tensors)
		switch {
		case tc.vertices == 0:
			if !errors.Is(err, graph.ErrInvalid) {
				t.Errorf("%+v: %+v, %v", tc.src, g, err)
			}
		case tc.vertices == -2: // read, whatever comes of it
			if err != nil && !errors.Is(err, graph.ErrInvalid) {
				t.Errorf("%+v: %v", tc.src, err)
			}
		case err != nil || tc.vertices > 0 && len(g.Vertices) != tc.vertices || len(g.Vertices) == 0 ||
			g.Kind != tc.src.Kind:
			t.Errorf("%+v: %+v, %v", tc.src, g, err)
		}
	}
	if _, err := Read(&Source{Kind: graph.Explicit, Rel: "none.json"}, open, nil); !errors.Is(err,
		os.ErrNotExist) {
		t.Error(err)
	}
}
