package order

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// model is one of tensors by their names, all of a type and shape.
func model(format string, typ formats.DType, shape []int64, names ...string) Model {
	l := &formats.Layout{Format: format}
	for i, name := range names {
		l.Tensors = append(l.Tensors, formats.Tensor{Name: name, DType: typ, Shape: shape, Region: i})
	}
	return modelOf(l)
}

var wide = []int64{64, 256}

// sorted adds files, each older than the next one, and lists their paths in order.
func sorted(files []file, models map[string]Model) (paths []string, all *Files) {
	all = &Files{}
	for i, f := range files {
		all.Add(f.path, int64(i), models[f.path])
	}
	for _, n := range all.Sorted() {
		paths = append(paths, files[n].path)
	}
	return paths, all
}

func named(paths ...string) (files []file) {
	for _, p := range paths {
		files = append(files, file{path: p})
	}
	return files
}

// Sources stand ahead of what may be made of them, in the places of their family; all else by its age, and a
// series by its numbers.
func TestSorted(t *testing.T) {
	q, other := "model.layers.0.self_attn.q_proj.weight", []int64{128, 256}
	models := map[string]Model{
		"q4.gguf":       model("gguf", "Q4_K", wide, "blk.0.attn_q.weight"),
		"bf16.gguf":     model("gguf", formats.BF16, wide, "blk.1.attn_q.weight"),
		"half":          model("safetensors", formats.F16, wide, q),
		"step-20":       model("safetensors", formats.F32, wide, "module."+q),
		"step-10":       model("safetensors", formats.F32, wide, q),
		"single":        model("torch", formats.F32, wide, "net.layers.7.self_attn.q_proj.weight"),
		"fp8":           model("safetensors", "F8_E4M3", wide, q),
		"elsewhere":     model("safetensors", formats.BF16, other, q),
		"elsewhere too": model("safetensors", formats.BF16, other, q),
		"small":         model("safetensors", formats.F32, []int64{64}, "norm.weight"),
	}
	paths := []string{"q4.gguf", "notes", "half", "elsewhere", "fp8", "step-20", "bf16.gguf", "a.so", "single",
		"small", "elsewhere too", "step-10"}
	got, all := sorted(named(paths...), models)
	want := []string{"step-10", "notes", "single", "elsewhere", "step-20", "half", "bf16.gguf", "a.so", "q4.gguf",
		"small", "elsewhere too", "fp8"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i, p := range paths {
		family, elsewhere := all.Family(0), all.Family(3)
		want := family
		switch {
		case models[p].Kind == None, p == "small":
			want = 0
		case strings.HasPrefix(p, "elsewhere"):
			want = elsewhere
		}
		if is := all.Family(int32(i)); is != want || family <= 0 || elsewhere <= 0 || family == elsewhere {
			t.Errorf("%s: %d, want %d", p, is, want)
		}
	}
}

// Shards are of one family though they have no tensor in common.
func TestShards(t *testing.T) {
	shard := func(typ formats.DType, from, to int) Model {
		var names []string
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", i))
		}
		return model("safetensors", typ, wide, names...)
	}
	models := map[string]Model{"1-of-2": shard(formats.BF16, 0, 4), "2-of-2": shard(formats.BF16, 4, 8),
		"whole": shard(formats.F32, 0, 8)}
	got, _ := sorted(named("1-of-2", "x", "2-of-2", "whole"), models)
	if want := []string{"whole", "x", "1-of-2", "2-of-2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKinds(t *testing.T) {
	both := &formats.Layout{Tensors: []formats.Tensor{
		{Name: "a", DType: formats.F32, Shape: wide, Region: 0},
		{Name: "b", DType: formats.BF16, Shape: wide, Region: 1},
		{Name: "c", DType: formats.I64, Shape: wide, Region: 2},
	}}
	if m := modelOf(both); m.Kind != Single { // it has its masters
		t.Errorf("with masters: %v", m.Kind)
	}
	both.Tensors[0].Shape = []int64{64}
	if m := modelOf(both); m.Kind != Half {
		t.Errorf("mostly in half precision: %v", m.Kind)
	}
	if m := modelOf(&formats.Layout{Tensors: both.Tensors[2:]}); m.Kind != None || m.roles != nil {
		t.Errorf("of integers: %+v", m)
	}
	many := &formats.Layout{}
	for i := range 10_000 {
		many.Tensors = append(many.Tensors, formats.Tensor{Name: fmt.Sprintf("a.w%d", i), DType: formats.F32,
			Shape: wide, Region: i})
	}
	if m := modelOf(many); len(m.roles) > 64 {
		t.Errorf("%d roles", len(m.roles))
	}
}

// What is looked at is a file of a known format that is not small.
func TestLook(t *testing.T) {
	n := int64(LeastModel / 4)
	p, err := safetensors.AppendHeader(nil, []safetensors.Entry{
		{Name: "a", DType: formats.F32, Shape: []int64{n}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p = append(p, make([]byte, 4*n)...)
	look := func(p []byte) Model { return Look(bytes.NewReader(p), int64(len(p))) }
	if m := look(p); m.Kind != Single || len(m.roles) != 1 {
		t.Errorf("%+v", m)
	}
	for what, p := range map[string][]byte{"short": p[:LeastModel-1], "other": make([]byte, LeastModel),
		"cut": p[:len(p)-4]} {
		if m := look(p); m.Kind != None {
			t.Errorf("%s: %+v", what, m)
		}
	}
	f := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(f, p, 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := os.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if m := Look(closed, int64(len(p))); m.Kind != None {
		t.Errorf("unreadable: %+v", m)
	}
}
