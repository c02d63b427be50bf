package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// entriesByName are tensors by their names.
type entriesByName map[string]safetensors.Entry

// checkpoint are the bytes of tensors.
type checkpoint struct {
	entries entriesByName
	data    map[string][]byte
}

func (w *checkpoint) put(name string, d formats.DType, data []byte, shape ...int64) {
	w.entries[name] = safetensors.Entry{Name: name, DType: d, Shape: shape}
	w.data[name] = data
}

func (w *checkpoint) clone() *checkpoint {
	out := &checkpoint{maps.Clone(w.entries), map[string][]byte{}}
	for name, p := range w.data {
		out.data[name] = bytes.Clone(p)
	}
	return out
}

// file is a safetensors file of these tensors, or of some.
func (w *checkpoint) file(t *testing.T, names ...string) []byte {
	t.Helper()
	if names == nil {
		names = slices.Collect(maps.Keys(w.entries))
	}
	slices.Sort(names)
	var entries []safetensors.Entry
	for _, name := range names {
		entries = append(entries, w.entries[name])
	}
	p, err := safetensors.AppendHeader(nil, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p = append(p, w.data[name]...)
	}
	return p
}

// readWeights are the tensors of a file, each of which begins at a multiple of its elements' size.
func readWeights(t *testing.T, p []byte) *checkpoint {
	t.Helper()
	l, err := safetensors.Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatal(err)
	}
	w := &checkpoint{entriesByName{}, map[string][]byte{}}
	for _, x := range l.Tensors {
		var data []byte
		if x.Region >= 0 {
			r := l.Regions[x.Region]
			data = p[r.Off : r.Off+r.Len]
			if r.Off%int64(max(1, x.DType.Bits()/8)) != 0 {
				t.Errorf("%s begins at %d", x.Name, r.Off)
			}
		}
		w.put(x.Name, x.DType, data, x.Shape...)
	}
	return w
}

// apply is what a server does with a patch; it returns the names of the tensors that were replaced.
func (w *checkpoint) apply(t *testing.T, patch []byte) (whole []string) {
	t.Helper()
	p := readWeights(t, patch)
	for name, e := range p.entries {
		of, isValues := strings.CutSuffix(name, ".val")
		if strings.HasSuffix(name, ".idx") {
			continue
		}
		if !isValues {
			w.put(name, e.DType, p.data[name], e.Shape...)
			whole = append(whole, name)
			continue
		}
		width := e.DType.Bits() / 8
		if e.DType != w.entries[of].DType {
			t.Errorf("%s is %s", name, e.DType)
		}
		last := int64(-1)
		for k := range int(e.Shape[0]) {
			at := int64(int32(binary.LittleEndian.Uint32(p.data[of+".idx"][4*k:])))
			if at <= last {
				t.Fatalf("%s: %d after %d", of, at, last)
			}
			last = at
			old := w.data[of][int(at)*width:][:width]
			if bytes.Equal(old, p.data[name][k*width:][:width]) {
				t.Errorf("%s: element %d did not change", of, at)
			}
			copy(old, p.data[name][k*width:][:width])
		}
	}
	slices.Sort(whole)
	return whole
}

// change changes about one in so many elements.
func change(rng *rand.Rand, p []byte, width, in int) {
	for i := 0; i+width <= len(p); i += width {
		if rng.IntN(in) == 0 {
			p[i] ^= byte(1 + rng.IntN(255))
		}
	}
}

// sinceSteps are two steps of a model: elements of each width, a tensor of several pieces, one that did not
// change, and one that did for the most part.
func sinceSteps() (a, b *checkpoint) {
	rng := rand.New(rand.NewPCG(24, 5))
	a = &checkpoint{entriesByName{}, map[string][]byte{}}
	bulk := func(n int) []byte { return random(n, rng.Uint64()) }
	a.put("big", formats.BF16, bulk(2*3<<19+6), 3<<19+3)
	a.put("bytes", formats.F8E4M3, bulk(100_003), 100_003)
	a.put("doubles", formats.F64, bulk(8*1000), 10, 100)
	a.put("empty", formats.F32, nil, 0, 7)
	a.put("floats", formats.F32, bulk(4*50_001), 50_001)
	a.put("same", formats.BF16, bulk(2<<20), 1<<20)
	a.put("most", formats.BF16, bulk(2*9000), 9000)
	a.put("scalar", formats.F32, bulk(4))
	a.put("gone", formats.F32, bulk(40), 10)
	a.put("shape", formats.F32, bulk(48), 12)
	b = a.clone()
	for name, in := range map[string]int{"big": 40, "bytes": 1000, "doubles": 50, "floats": 7, "most": 2} {
		change(rng, b.data[name], b.entries[name].DType.Bits()/8, in)
	}
	b.data["scalar"][3] ^= 1
	b.put("shape", formats.F32, b.data["shape"], 3, 4)
	delete(b.entries, "gone")
	b.put("new", formats.BF16, bulk(22), 11)
	return a, b
}

// A patch makes the tensors of one step those of another, whether the steps are packed or not, in one file or
// in several; it has none of what did not change.
func TestSince(t *testing.T) {
	a, b := sinceSteps()
	inOne := func(w *checkpoint) map[string][]byte {
		return map[string][]byte{"model.safetensors": w.file(t)}
	}
	inTwo := func(w *checkpoint) map[string][]byte {
		var names [2][]string
		var index []string
		for i, name := range slices.Sorted(maps.Keys(w.entries)) {
			names[i%2] = append(names[i%2], name)
			index = append(index, fmt.Sprintf(`%q:"model-0000%d-of-00002.safetensors"`, name, i%2+1))
		}
		return map[string][]byte{
			"model-00001-of-00002.safetensors": w.file(t, names[0]...),
			"model-00002-of-00002.safetensors": w.file(t, names[1]...),
			"model.safetensors.index.json":     []byte(`{"weight_map":{` + strings.Join(index, ",") + `}}`),
		}
	}
	for _, c := range []struct {
		name         string
		from, to     map[string][]byte
		packA, packB bool
	}{
		{"plain", inOne(a), inOne(b), false, false},
		{"the first is packed", inOne(a), inOne(b), true, false},
		{"packed", inOne(a), inOne(b), true, true},
		{"in several files", inTwo(a), inTwo(b), true, true},
		{"in several files from one", inOne(a), inTwo(b), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			save := func(step string, files map[string][]byte, pack bool) {
				r.mkdir("runs/rl/" + step)
				for _, name := range slices.Sorted(maps.Keys(files)) {
					r.write("runs/rl/"+step+"/"+name, files[name])
					if pack && strings.HasSuffix(name, ".safetensors") {
						r.packOut("runs/rl/" + step + "/" + name)
					}
				}
			}
			save("100", c.from, c.packA)
			save("200", c.to, c.packB)
			patch := r.read(".ckptfs/since/rl/100/200.safetensors")
			got := a.clone()
			whole := got.apply(t, patch)
			if want := []string{"most", "new", "scalar", "shape"}; !slices.Equal(whole, want) {
				t.Errorf("there are whole: %q, want %q", whole, want)
			}
			delete(got.entries, "gone")
			r.equal("the tensors with the patch", got.file(t), b.file(t))
			if strings.Contains(string(patch), `"same`) || strings.Contains(string(patch), `"empty`) {
				t.Error("it has a tensor that did not change")
			}
			for _, want := range []string{`"removed":"[\"gone\"]"`, `"format":"sparse_weight_patch"`,
				`"model_version":"200"`, `"encoding":"raw"`, `"base":"runs/rl/100"`} {
				if !strings.Contains(string(patch), want) {
					t.Errorf("%s is not in the header", want)
				}
			}
			back := readWeights(t, r.read(".ckptfs/since/rl/200/100.safetensors"))
			if back.data["gone"] == nil {
				t.Error("the way back has no tensor that was gone")
			}
			if none := readWeights(t, r.read(".ckptfs/since/rl/200/200.safetensors")); len(none.entries) > 0 {
				t.Errorf("from a step to itself: %d tensors", len(none.entries))
			}
		})
	}
}

// A step that is written again, or gets a file, has another patch; one that is being written, or torn, none.
func TestSinceFollows(t *testing.T) {
	r := newRig(t)
	a, b := sinceSteps()
	r.mkdir("runs/rl/1")
	r.mkdir("runs/rl/2")
	r.write("runs/rl/1/model.safetensors", a.file(t))
	r.write("runs/rl/2/model.safetensors", a.file(t))
	const p = ".ckptfs/since/rl/1/2.safetensors"
	if w := readWeights(t, r.read(p)); len(w.entries) > 0 {
		t.Errorf("equal steps: %d tensors", len(w.entries))
	}
	old := r.open(p, unix.O_RDONLY)
	defer r.release(old)
	h := r.open("runs/rl/2/model.safetensors", unix.O_WRONLY)
	r.writeAt(h, b.file(t)[:10], 0)
	if r.exists(p) {
		t.Error("it is there while the step is written")
	}
	r.release(h)
	r.write("runs/rl/2/model.safetensors", b.file(t))
	got := a.clone()
	got.apply(t, r.read(p))
	delete(got.entries, "gone")
	r.equal("the step that was written again", got.file(t), b.file(t))
	if was, err := r.readHandle(old); err != nil || len(readWeights(t, was).entries) > 0 {
		t.Errorf("what was open is another file now: %v", err)
	}
	for _, bad := range []string{"rl/1/2", "rl/1/3.safetensors", "rl/3/2.safetensors", "no/1/2.safetensors"} {
		if r.exists(".ckptfs/since/" + bad) {
			t.Errorf("%s is there", bad)
		}
	}
	if got := r.listing(".ckptfs/since/rl"); !slices.Contains(got, "1") || !slices.Contains(got, "2") {
		t.Errorf("the steps are %q", got)
	}
	if got := r.listing(".ckptfs/since/rl/1"); slices.Contains(got, "2.safetensors") {
		t.Error("a patch is listed: each listing with sizes would make it")
	}
}
