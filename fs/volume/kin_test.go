package volume

import (
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// relative is a file that hangs together with others.
type relative struct {
	path  string
	bytes []byte
	made  bool // it is computed of those before it
}

// The first of kin, of which most others are made.
const kinBase = "base/model.safetensors"

// kin are a model and what people make of one, in the order in which each finds what it was made of: quants,
// the numbers in another order and in another type, two fine-tunes, what these were merged to, and a quant of
// one of them, which leads back to the first model by that.
func kin(t testing.TB) []relative {
	const rows, name, gguf = 128, "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"
	q := gauss(1, rows)
	rope := rowsOf(q, rows, func(r int) int { return r/head*head + r%2*head/2 + r%head/2 })
	tuned := func(seed uint64) []float32 {
		x, rng := slices.Clone(q), rand.New(rand.NewPCG(seed, 6))
		for i := range x {
			x[i] = half.FromBF16(half.ToBF16(math.Float32bits(x[i] + float32(rng.NormFloat64()*2e-4))))
		}
		return x
	}
	chat, code := tuned(5), tuned(7)
	merged := make([]float32, len(q))
	for i := range merged {
		a, b := float32(0.7)*chat[i], float32(0.3)*code[i]
		merged[i] = a + b
	}
	one := func(dtype formats.DType, x []float32) []byte {
		return weightsFile{dtype, wide, map[string][]float32{name: x}}.bytes(t)
	}
	turned := one(formats.BF16, rope)
	turned = ggufFile(gguf, 30, rows, turned[len(turned)-2*len(rope):])
	model, fp8 := quantPair(t, 3, 1)
	return []relative{
		{kinBase, one(formats.BF16, q), false},
		{"base/Q8_0.gguf", ggufOf(t, gguf, quant.Q8_0, 8, rope), true},
		{"base/Q4_K.gguf", ggufOf(t, gguf, quant.Q4_K, 12, rope), true},
		{"base/BF16.gguf", turned, true},
		{"base/wide.safetensors", one(formats.F32, q), true},
		{"chat/model.safetensors", one(formats.BF16, chat), false},
		{"code/model.safetensors", one(formats.BF16, code), false},
		{"chat/Q8_0.gguf", ggufOf(t, gguf, quant.Q8_0, 8, chat), true},
		{"merge/model.safetensors", one(formats.BF16, merged), true},
		{"other/model.safetensors", model, false},
		{"other/fp8.safetensors", fp8, true},
	}
}

// saveKin writes files and packs each before the next comes.
func (r *rig) saveKin(files []relative) {
	r.t.Helper()
	for _, f := range files {
		r.saveRelative(f)
		r.pack(f.path)
	}
}

// saveRelative writes a file, and makes its folder.
func (r *rig) saveRelative(f relative) {
	r.t.Helper()
	if dir := path.Dir(f.path); !r.exists(dir) {
		r.mkdir(dir)
	}
	r.write(f.path, f.bytes)
}

// computedOf counts the chunks of a file that are recipes.
func (r *rig) computedOf(p string) (n int) {
	r.t.Helper()
	return r.countChunks(p, func(loc cas.Location) bool { return loc.Codec == codec.Recipe })
}

func TestKin(t *testing.T) {
	r := newRig(t)
	files := kin(t)
	r.saveKin(files)
	r.evictAll()
	for _, f := range files {
		if n := r.computedOf(f.path); n > 0 != f.made {
			t.Errorf("%s: %d chunks are computed", f.path, n)
		}
		r.same(f.path, f.bytes)
	}
	r.sound()
}

// A merge that was removed and pruned is no version of what is saved under its name again: that is computed
// of its parents.
func TestKinSavedAgain(t *testing.T) {
	r := newRig(t)
	var of []relative
	for _, f := range kin(t) {
		switch f.path {
		case "chat/model.safetensors", "code/model.safetensors", "merge/model.safetensors":
			of = append(of, f)
		}
	}
	r.saveKin(of)
	merge := of[2]
	r.unlink(merge.path)
	r.sync()
	r.prune(now)
	r.saveKin(of[2:])
	if r.computedOf(merge.path) == 0 {
		t.Errorf("%s is not computed of what it was merged of", merge.path)
	}
	r.evictAll()
	r.same(merge.path, merge.bytes)
	r.sound()
}
