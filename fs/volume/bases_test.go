package volume

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"testing"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

const baseTensors, baseElems = 8, 20_000

// weightsOf are the tensors of a model, of one chunk each, some steps of slow training on.
func weightsOf(model, steps uint64) (all [baseTensors][]byte) {
	for k := range all {
		r := rand.New(rand.NewPCG(model, uint64(k)))
		s := rand.New(rand.NewPCG(steps, uint64(k)))
		for range baseElems {
			w := r.NormFloat64()
			if steps > 0 {
				w *= 1 + 1e-6*s.NormFloat64()
			}
			all[k] = binary.LittleEndian.AppendUint32(all[k], math.Float32bits(float32(w)))
		}
	}
	return all
}

// shardsOf are files of a model's tensors, so many, with a prefix before their names.
func shardsOf(t testing.TB, weights [baseTensors][]byte, n int, prefix string) (files [][]byte) {
	for i := range n {
		var some []tensor
		for k := baseTensors * i / n; k < baseTensors*(i+1)/n; k++ {
			some = append(some, tensor{fmt.Sprintf("%slayers.%d.attn.weight", prefix, k), "F32", weights[k]})
		}
		files = append(files, fileOf(t, some...))
	}
	return files
}

// A model is stored against the one before it, whatever is put before its tensors' names and however many
// files it is in: as the next step, where its step says what it came from, and where it is only like it,
// among others that are, also after a start and by a compaction.
func TestBases(t *testing.T) {
	type saved struct {
		prefix string
		files  int
	}
	for name, c := range map[string]struct{ base, tuned saved }{
		"as it was":   {saved{"", 1}, saved{"", 1}},
		"wrapped":     {saved{"", 1}, saved{"model.", 1}},
		"parallel":    {saved{"", 1}, saved{"module.", 1}},
		"unwrapped":   {saved{"state_dict.", 1}, saved{"", 1}},
		"compiled":    {saved{"module.", 1}, saved{"_orig_mod.", 1}},
		"adapted":     {saved{"model.", 1}, saved{"base_model.model.model.", 1}},
		"4 to 1":      {saved{"", 4}, saved{"", 1}},
		"4 to 2":      {saved{"", 4}, saved{"", 2}},
		"1 to 4":      {saved{"", 1}, saved{"", 4}},
		"3 to 4":      {saved{"", 3}, saved{"", 4}},
		"both change": {saved{"", 4}, saved{"module.", 2}},
	} {
		for _, how := range []string{"the step before", "declared", "alike", "alike, restarted",
			"compacted"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(o *Options) { o.NoDelta = how == "compacted" })
				all := map[string][]byte{}
				save := func(dir string, s saved, weights [baseTensors][]byte) (paths []string) {
					for i, file := range shardsOf(t, weights, s.files, s.prefix) {
						p := path.Join(dir, "model.safetensors")
						if s.files > 1 {
							p = path.Join(dir, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, s.files))
						}
						r.write(p, file)
						all[p] = file
						paths = append(paths, p)
						r.pack(p)
					}
					return paths
				}
				for _, dir := range []string{"runs", "runs/a", "runs/a/1", "runs/a/2", "runs/b", "runs/b/1",
					"runs/c", "runs/c/1"} {
					r.mkdir(dir)
				}
				save("runs/a/1", c.base, weightsOf(1, 0))
				if how != "the step before" {
					// it looks more like the tuned one
					save("runs/c/1", saved{c.tuned.prefix, 1}, weightsOf(2, 0))
				}
				to := "runs/b/1"
				switch how {
				case "the step before":
					to = "runs/a/2"
				case "declared":
					r.write("runs/b/1/"+steps.LineageFile, []byte(`{"parent": "runs/a/1"}`))
					r.forgetBases() // found by what it says alone
				case "alike, restarted":
					r = r.reopen()
				}
				tuned := save(to, c.tuned, weightsOf(1, 1))
				if how == "compacted" {
					r.close()
					r = openRig(t, r.dir)
					if got := r.compact(control.CompactOptions{}); got.Chunks < baseTensors {
						t.Errorf("%+v", got)
					}
				}
				deltas := 0
				for _, p := range tuned {
					deltas += r.countChunks(p, func(loc cas.Location) bool {
						return loc.Delta && loc.Raw == 4*baseElems
					})
				}
				if deltas != baseTensors {
					t.Errorf("%d of %d chunks are deltas", deltas, baseTensors)
				}
				r.evictAll()
				for p, want := range all {
					r.same(p, want)
				}
				r.sound()
			})
		}
	}
}

// Of models that are made one of the other, each is stored against the one that it was made of: what the
// first changed much is not told again by those after it. The steps of a run that begins with one of them are
// all stored against others.
func TestGenerations(t *testing.T) {
	r := newRig(t)
	change := func(weights [baseTensors][]byte, seed uint64, by float64) (all [baseTensors][]byte) {
		for k, p := range weights {
			s := rand.New(rand.NewPCG(seed, uint64(k)))
			for i := 0; i < len(p); i += 4 {
				w := float64(math.Float32frombits(binary.LittleEndian.Uint32(p[i:])))
				w *= 1 + by*s.NormFloat64()
				all[k] = binary.LittleEndian.AppendUint32(all[k], math.Float32bits(float32(w)))
			}
		}
		return all
	}
	stored := func(p string) (n int64) {
		r.countChunks(p, func(loc cas.Location) bool {
			n += int64(loc.Stored)
			return true
		})
		return n
	}
	save := func(p string, weights [baseTensors][]byte) int64 {
		r.mkdir(path.Dir(p))
		r.write(p, shardsOf(t, weights, 1, "")[0])
		r.pack(p)
		return stored(p)
	}
	w := weightsOf(1, 0)
	save("base/model.safetensors", w)
	w = change(w, 1, 1e-2)
	much := save("tuned/model.safetensors", w)
	for i, name := range []string{"chat", "chat-more"} {
		w = change(w, uint64(2+i), 1e-6)
		if n := save(name+"/model.safetensors", w); n > much*2/3 {
			t.Errorf("%s takes %d bytes, and what it is made of %d", name, n, much)
		}
	}
	for step := range 7 {
		w = change(w, uint64(10+step), 1e-6)
		p := fmt.Sprintf("runs/more/%d/model.safetensors", step)
		save(p, w)
		if n := r.countChunks(p, func(loc cas.Location) bool { return loc.Delta }); n < baseTensors {
			t.Errorf("step %d: %d chunks are stored against others", step, n)
		}
	}
	r.sound()
}
