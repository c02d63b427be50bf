package volume

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cas/recipe"
)

// freezeMerges makes a store with tensors that are combined of others, in every way that packing finds.
func freezeMerges(t *testing.T, name string) {
	t.Helper()
	r := newRig(t)
	const n = 40_000
	want := map[string]frozenFile{}
	save := func(p string, x []float32) {
		b := make([]byte, 0, 2*n)
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
		}
		p += ".safetensors"
		want[p] = r.saveFrozen(p, fileOf(t, tensor{"a.w", "BF16", b}))
	}
	models := make([][]float32, 4)
	for k := range models {
		own := singles(uint64(20+k), n)
		models[k] = make([]float32, n)
		for i := range models[k] {
			v := math.Float32frombits(binary.LittleEndian.Uint32(own[4*i:])) / 16
			if k > 0 {
				v = v/16 + models[0][i]
			}
			models[k][i] = recipe.BF16.Round(v)
		}
		save("models/"+string(rune('a'+k)), models[k])
	}
	share, other := recipe.BF16.Round(0.6), recipe.BF16.Round(0.35)
	merges := map[string]recipe.Combine{
		"sum":    {Form: recipe.Sum, C: []float32{0.7, 0.3}},
		"half":   {Form: recipe.SumEach, C: []float32{0.25, 0.75}},
		"soup":   {Form: recipe.Mean, C: []float32{4, 0, 0, 0}},
		"lerp":   {Form: recipe.LerpEach, C: []float32{0, 0.35}},
		"task":   {Form: recipe.TaskEach, C: []float32{0, 0.5, 0}},
		"tasks":  {Form: recipe.Tasks, C: []float32{0, 0.6, 0.35}},
		"in-two": {Form: recipe.TasksEach, C: []float32{0, share, other}},
		"stock":  {Form: recipe.StockEach, C: []float32{recipe.BF16.Round(1 - share), share, 0, 0}},
	}
	for name, op := range merges {
		op.To = recipe.BF16
		var all []float32
		for _, x := range models[:len(op.C)] {
			all = append(all, x...)
		}
		x := make([]float32, n)
		op.Combined(x, all)
		save("merges/"+name, x)
	}
	if got := r.recipesOf(); got != int64(len(merges)) {
		t.Errorf("%d recipes of %d merges", got, len(merges))
	}
	r.keep(name, want, "models", "merges")
}

// TestReleasedStores: what a released version wrote stays in testdata as it is. Only a release adds lines.
func TestReleasedStores(t *testing.T) {
	list, err := os.ReadFile(filepath.Join("testdata", "released.txt"))
	if err != nil {
		t.Fatal(err)
	}
	stores := 0
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 3 {
			t.Fatalf("%q is no version, digest and name", line)
		}
		p, err := os.ReadFile(filepath.Join("testdata", f[2]))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(p); hex.EncodeToString(sum[:]) != f[1] {
			t.Errorf("%s is not what version %s wrote", f[2], f[0])
		}
		stores++
	}
	if stores == 0 {
		t.Error("no stores")
	}
}
