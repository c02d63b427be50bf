package volume

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/fs/control"
)

// eights are singles in FP8, and their scale.
func eights(t testing.TB, singles []byte) (codes, scale []byte) {
	t.Helper()
	x := make([]float32, len(singles)/4)
	var most float32
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(singles[4*i:]))
		most = max(most, float32(math.Abs(float64(x[i]))))
	}
	q := quant.Quantiser{Format: quant.F8E4M3, Scales: quant.Scales{Type: quant.F32, Rows: 1, Cols: len(x),
		Tall: 1, Wide: len(x), Values: []float32{most / 448}}}
	codes, err := q.Restore(nil, &quant.Streams{}, x)
	if err != nil {
		t.Fatal(err)
	}
	return codes, binary.LittleEndian.AppendUint32(nil, math.Float32bits(most/448))
}

// storedAs is what is told of how a tensor is stored; "" when it is stored by itself.
func (r *rig) storedAs(p, name string) string {
	r.t.Helper()
	f, err := r.Show(context.Background(), p, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range f.Tensors {
		if f.Tensors[i].Name == name && f.Tensors[i].StoredAs != nil {
			return f.Tensors[i].StoredAs.String()
		}
	}
	return ""
}

// reproduced is what is told of what a file follows from, and what contradicts that.
func (r *rig) reproduced(p string) (what, contradicts string) {
	r.t.Helper()
	l, err := r.Lineage(context.Background(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(l.Reproduced) != 1 || l.Reproduced[0].Path != p {
		return "", ""
	}
	x := &l.Reproduced[0]
	if x.Share < 0.9 || x.StoredBytes*10 > x.Bytes || x.FreeBits != 8*x.StoredBytes {
		r.t.Errorf("%+v", x)
	}
	return x.What, x.Contradicts
}

// What is computed from other tensors is told with their names, and is their models' child, unless another
// parent is declared.
func TestDerived(t *testing.T) {
	r := newRig(t)
	rand := rand.New(rand.NewPCG(5, 6))
	weights := func() []byte {
		var p []byte
		for range elems {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(0.02*rand.NormFloat64())))
		}
		return p
	}
	save := func(p string, tensors ...tensor) {
		r.mkdir("runs/" + p)
		r.write("runs/"+p+"/m.safetensors", fileOf(t, tensors...))
		r.sync()
	}
	save("a/1", tensor{"x.0.w", "BF16", halves(t, weights())})
	const ofA = "runs/a/1/m.safetensors"

	// A file that is no model, and one whose parent another is said to be.
	c := weights()
	save("c/1", tensor{"y.1.w", "F32", c})
	codes, scale := eights(t, c)
	q := fileOf(t, tensor{"y.1.w", "F8_E4M3", codes}, tensor{"y.1.w_scale", "F32", scale})
	r.write("q.safetensors", q)
	r.sync()
	const ofC, says = "runs/c/1/m.safetensors", "F8_E4M3 of runs/c/1/m.safetensors"
	if got := r.storedAs("q.safetensors", "y.1.w"); got != says+":y.1.w" {
		t.Error(got)
	}
	if got, _ := r.reproduced(ofA); got != "" {
		t.Error(got)
	}
	if got, other := r.reproduced("q.safetensors"); got != says || other != "" {
		t.Errorf("%q, but %q", got, other)
	}
	r.mkdir("runs/q/1")
	r.write("runs/q/1/m.safetensors", q)
	r.sync()
	if got := r.chain("runs/q/1"); got != "q/1 reproduced 2; c/1 none 0" {
		t.Error(got)
	}
	r.write("runs/q/1/lineage.json", []byte(`{"parent": "runs/a/1"}`))
	r.sync()
	if got := r.chain("runs/q/1"); got != "q/1 declared 2; a/1 none 0" {
		t.Error(got)
	}
	if got, other := r.reproduced("runs/q/1/m.safetensors"); got != says || other != ofA {
		t.Errorf("%q, but %q", got, other)
	}

	for from, want := range map[string]bool{"runs/c": true, "runs/a": false, "runs": true} {
		v, err := r.Verify(context.Background(), "q.safetensors", from, nil)
		if err != nil || v.Follows != want || (v.Share > 0.99) != want || (len(v.Others) == 0) != want {
			t.Errorf("from %s: %+v, %v", from, v, err)
		}
	}
	if _, err := r.Verify(context.Background(), "q.safetensors", "q.safetensors", nil); err == nil {
		t.Error("it follows from itself")
	}

	// What was removed has no name.
	r.unlink(ofC)
	if got := r.storedAs("q.safetensors", "y.1.w"); got != "F8_E4M3 of a removed file" {
		t.Error(got)
	}
	_, err := r.Lineage(context.Background(), "q.safetensors")
	if control.AsError(err).Code != control.CodeNotFound {
		t.Error(err)
	}
}

// A tensor that several others have the parts of is told as that, and a file is told by what was computed of
// it, though most of its bytes were not.
func TestDerivedParts(t *testing.T) {
	r := newRig(t)
	var some []tensor
	var flat []byte
	for i := range 12 {
		p := halves(t, singles(uint64(20+i), 40_000))
		some = append(some, tensor{fmt.Sprintf("x.%d.w", i), "BF16", p})
		flat = append(flat, p...)
	}
	large, small := halves(t, singles(40, 2*elems)), singles(41, elems)
	some = append(some, tensor{"embed.w", "BF16", large}, tensor{"y.0.w", "F32", small})
	r.mkdir("m")
	r.write("m/all.safetensors", fileOf(t, some...))
	r.sync()
	r.write("m/flat.safetensors", fileOf(t, tensor{"params", "BF16", flat}))
	codes, scale := eights(t, small)
	r.write("m/fp8.safetensors", fileOf(t, tensor{"embed.w", "BF16", large},
		tensor{"y.0.w", "F8_E4M3", codes}, tensor{"y.0.w_scale", "F32", scale}))
	r.sync()
	got := r.storedAs("m/flat.safetensors", "params")
	if !strings.HasPrefix(got, "parts of m/all.safetensors:x.") || !strings.HasSuffix(got, ".w and 11 others") {
		t.Errorf("%q", got)
	}
	if got, _ := r.reproduced("m/fp8.safetensors"); got != "F8_E4M3 of m/all.safetensors" {
		t.Errorf("%q", got)
	}
}

// What is computed of chunks that several relatives hold is told as that of the one from which all of it
// follows, be it by what these were rounded from.
func TestDerivedAmongRelatives(t *testing.T) {
	r := newRig(t)
	const up, down = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"
	x, y, z := gauss(11, 128), gauss(12, 128), gauss(13, 128)
	file := func(dtype formats.DType, down2 []float32) []byte {
		return weightsFile{dtype, wide, map[string][]float32{up: x, down: down2}}.bytes(t)
	}
	for _, f := range []relative{
		{"wide/model.safetensors", file("F32", y), false},
		{"base/model.safetensors", file(formats.BF16, y), false},
		{"lora/model.safetensors", file(formats.BF16, z), false},
	} {
		r.saveRelative(f)
		r.pack(f.path)
	}
	r.mkdir("q")
	r.write("q/Q8_0.gguf", ggufFiles([]string{"blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}, 8, len(x)/wide,
		blocksOf(t, quant.Q8_0, x), blocksOf(t, quant.Q8_0, y)))
	r.sync()
	if got, _ := r.reproduced("q/Q8_0.gguf"); got != "Q8_0 of wide/model.safetensors" {
		t.Errorf("%q", got)
	}

	// Of several of which all follows it is the oldest.
	r.saveRelative(relative{"copy/model.safetensors", file("F32", y), false})
	r.sync()
	if got, _ := r.reproduced("q/Q8_0.gguf"); got != "Q8_0 of wide/model.safetensors" {
		t.Errorf("%q", got)
	}

	// Of what does not follow it is told how much of it does.
	_, err := r.Lineage(context.Background(), "lora/model.safetensors")
	if err == nil || control.AsError(err).Code != control.CodeNotFound ||
		!strings.Contains(err.Error(), "at most 50 % of the bytes of its tensors follow, from wide/model.safetensors") {
		t.Error(err)
	}
}

// What follows from no file alone is told as that of the few from which it does: of a model that is there
// twice some chunks are the one's, and some the other's.
func TestDerivedOfSeveral(t *testing.T) {
	r := newRig(t)
	const up, down = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"
	x, y := gauss(21, 128), gauss(22, 128)
	for _, f := range []relative{
		{"wide/model.safetensors", weightsFile{"F32", wide, map[string][]float32{up: x}}.bytes(t), false},
		{"base/model.safetensors", weightsFile{formats.BF16, wide, map[string][]float32{down: y}}.bytes(t), false},
	} {
		r.saveRelative(f)
		r.pack(f.path)
	}
	r.mkdir("q")
	r.write("q/Q8_0.gguf", ggufFiles([]string{"blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}, 8, len(x)/wide,
		blocksOf(t, quant.Q8_0, x), blocksOf(t, quant.Q8_0, y)))
	r.sync()
	got, _ := r.reproduced("q/Q8_0.gguf")
	if !strings.Contains(got, "wide/model.safetensors") ||
		!strings.Contains(got, "base/model.safetensors") {
		t.Errorf("%q", got)
	}
}
