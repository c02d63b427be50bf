package volume

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// tensor is one of a file that a test makes.
type tensor struct {
	name  string
	dtype formats.DType
	data  []byte
}

// fileOf is a safetensors file of tensors in this order.
func fileOf(t testing.TB, tensors ...tensor) []byte {
	t.Helper()
	type entry struct {
		DType   formats.DType `json:"dtype"`
		Shape   []int64       `json:"shape"`
		Offsets [2]int        `json:"data_offsets"`
	}
	header := map[string]entry{}
	var data []byte
	for _, x := range tensors {
		at := len(data)
		data = append(data, x.data...)
		header[x.name] = entry{x.dtype, []int64{int64(len(x.data) * 8 / x.dtype.Bits())},
			[2]int{at, len(data)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), data...)
}

// singles are n weights.
func singles(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 4))
	p := make([]byte, 0, 4*n)
	for range n {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(0.02*r.NormFloat64())))
	}
	return p
}

// halves are weights rounded to bfloat16.
func halves(t testing.TB, singles []byte) []byte {
	t.Helper()
	p, err := codec.DecodeAgainst(nil, codec.Rounded, []byte{1}, singles, len(singles)/2)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const elems = 300_000 // 3 chunks in half precision, 5 in single

// A copy in half precision takes nothing beside the one in single precision, whichever way they lie.
func TestRounded(t *testing.T) {
	w, v := singles(1, elems), singles(2, 1000)
	full := fileOf(t, tensor{"a.w", "F32", w}, tensor{"a.v", "F32", v})
	half := fileOf(t, tensor{"a.w", "BF16", halves(t, w)}, tensor{"a.v", "BF16", halves(t, v)})
	for name, files := range map[string]map[string][]byte{
		"in the folder": {"1/model.safetensors": full, "2/x": nil, "1/zhalf.safetensors": half},
		"alike":         {"full.safetensors": full, "zelsewhere/model.safetensors": half},
		"in the step":   {"runs/r/1/full.safetensors": full, "runs/r/1/sub/half.safetensors": half},
		"in the file, ahead": {"m.safetensors": fileOf(t, tensor{"master.a.w", "F32", w},
			tensor{"master.a.v", "F32", v}, tensor{"a.w", "BF16", halves(t, w)},
			tensor{"a.v", "BF16", halves(t, v)})},
		"in the file, after": {"m.safetensors": fileOf(t, tensor{"a.w", "BF16", halves(t, w)},
			tensor{"a.v", "BF16", halves(t, v)}, tensor{"optimizer.master.a.w", "F32", w},
			tensor{"optimizer.master.a.v", "F32", v})},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var names []string
			for p := range files {
				names = append(names, p)
			}
			slices.Sort(names)
			for _, p := range names {
				for k := range strings.Count(p, "/") {
					if dir := strings.Join(strings.Split(p, "/")[:k+1], "/"); !r.exists(dir) {
						r.mkdir(dir)
					}
				}
				if files[p] == nil {
					continue
				}
				r.write(p, files[p])
				r.pack(p)
				if name == "alike" {
					r = r.reopen() // it is found by what the segments end with
				}
			}
			last := names[len(names)-1]
			if name == "in the folder" {
				last = "1/zhalf.safetensors"
			}
			if n := r.rounded(last); n != 4 {
				t.Errorf("%d chunks are rounded", n)
			}
			if used, most := r.segmentBytes(), int64(len(full))*97/100; used > most {
				t.Errorf("%d bytes, at most %d", used, most)
			}
			check := func() {
				t.Helper()
				r.evictAll()
				for p, want := range files {
					if want != nil {
						r.same(p, want)
					}
				}
				r.sound()
			}
			check()
			r.prune(now)
			r = r.crashed()
			check()
			r = r.withoutIndex()
			check()
		})
	}
}

// What only looks like a rounding is stored as what it is: one element suffices.
func TestNotRounded(t *testing.T) {
	r := newRig(t)
	w := singles(1, elems)
	r.write("full.safetensors", fileOf(t, tensor{"w", "F32", w}))
	r.pack("full.safetensors")
	h := halves(t, w)
	h[2*elems-1] ^= 1
	half := fileOf(t, tensor{"w", "BF16", h})
	r.write("half.safetensors", half)
	r.packOut("half.safetensors")
	if n := r.rounded("half.safetensors"); n != 2 { // all but the last
		t.Errorf("%d chunks are rounded", n)
	}
	r.same("half.safetensors", half)
}

// One that came before its master is made smaller by a compaction; one whose master is gone is stored without
// it, so that it goes.
func TestCompactRounded(t *testing.T) {
	r := newRig(t)
	w := singles(1, elems)
	full, half := fileOf(t, tensor{"w", "F32", w}), fileOf(t, tensor{"w", "BF16", halves(t, w)})
	r.write("half.safetensors", half)
	r.pack("half.safetensors")
	r.write("full.safetensors", full)
	r.pack("full.safetensors")
	both := r.segmentBytes()
	c := r.compact(control.CompactOptions{})
	if n := r.rounded("half.safetensors"); n != 3 || c.Chunks != 3 {
		t.Errorf("%d chunks are rounded: %+v", n, c)
	}
	if got := both - r.segmentBytes(); got < int64(len(half))*6/10 {
		t.Errorf("%d bytes freed", got)
	}
	if c := r.compact(control.CompactOptions{}); c.Chunks != 0 {
		t.Errorf("again: %+v", c)
	}
	r.evictAll()
	r.same("half.safetensors", half)
	r.sound()
	r.unlink("full.safetensors")
	r.prune(now)
	r.same("half.safetensors", half)
	if got := r.segmentBytes(); got < int64(len(full))*8/10 {
		t.Errorf("%d bytes: the master is gone", got)
	}
	r.compact(control.CompactOptions{})
	r.prune(now)
	if got := r.segmentBytes(); got > int64(len(half))*8/10 {
		t.Errorf("%d bytes: the master is still there", got)
	}
	r.asm.Close()
	r.evictAll()
	r.same("half.safetensors", half)
	r.sound()
}

// A damaged master is damage of what is its rounding.
func TestDamagedMaster(t *testing.T) {
	r := newRig(t)
	w := singles(1, elems)
	r.write("full.safetensors", fileOf(t, tensor{"w", "F32", w}))
	r.pack("full.safetensors")
	r.write("half.safetensors", fileOf(t, tensor{"w", "BF16", halves(t, w)}))
	r.pack("half.safetensors")
	r.evictAll()
	r.damage(cas.Sum(w[cas.ChunkSize : 2*cas.ChunkSize]))
	named := map[string]bool{}
	for _, p := range r.check().Problems {
		named[p.Path] = true
	}
	if !named["full.safetensors"] || !named["half.safetensors"] {
		t.Errorf("named: %v", named)
	}
	if _, err := r.tryRead("half.safetensors"); err == nil {
		t.Error("it can be read")
	}
}

// A model is stored against the one that its step says it came from, and against one that is alike though not
// in all, also after a start.
func TestRelatedModels(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for name, c := range map[string]struct {
			base, tuned string
			more        tensor
			said        string
		}{
			"declared":    {"runs/base/1/model.safetensors", "runs/tune/1/model.safetensors", tensor{}, `{"parent": "runs/base/1"}`},
			"other names": {"runs/base/1/pretrained.safetensors", "runs/tune/1/model.safetensors", tensor{}, `{"parent": "runs/base/1"}`},
			"the file":    {"runs/base/1/a.safetensors", "runs/tune/1/b.safetensors", tensor{}, `{"parent": "runs/base/1/a.safetensors"}`},
			"alike":       {"base.safetensors", "runs/tune/1/model.safetensors", tensor{}, ""},
			"with a head": {"base.safetensors", "tuned.safetensors",
				tensor{"head", "F32", singles(3, 10_000)}, ""},
		} {
			t.Run(fmt.Sprint(name, ", restarted ", restart), func(t *testing.T) {
				r := newRig(t)
				for _, dir := range []string{"runs", "runs/base", "runs/base/1", "runs/tune", "runs/tune/1"} {
					r.mkdir(dir)
				}
				w := singles(1, elems)
				tuned := bytes.Clone(w)
				for i := 0; i < len(tuned); i += 4 { // a step or two
					x := binary.LittleEndian.Uint32(tuned[i:])
					binary.LittleEndian.PutUint32(tuned[i:], x+uint32(i)%16)
				}
				base := fileOf(t, tensor{"w", "F32", w}, tensor{"x", "F32", w[:4000]})
				tensors := []tensor{{"w", "F32", tuned}, {"x", "F32", tuned[:4000]}}
				if c.more.name != "" {
					tensors = append(tensors, c.more)
				}
				file := fileOf(t, tensors...)
				r.write(c.base, base)
				r.pack(c.base)
				if restart {
					r = r.reopen()
				}
				if c.said != "" {
					r.write(path.Join(path.Dir(c.tuned), steps.LineageFile), []byte(c.said))
					r.forgetBases() // found by what it says alone
				}
				r.write(c.tuned, file)
				r.pack(c.tuned)
				if n := r.deltas(c.tuned); n < 5 {
					t.Errorf("%d deltas", n)
				}
				r.evictAll()
				r.same(c.tuned, file)
				r.same(c.base, base)
			})
		}
	}
}

// What took the place of another file, or is saved where one was removed, has that one before it.
func TestReplaced(t *testing.T) {
	for name, replace := range map[string]func(r *rig){
		"renamed over": func(r *rig) {
			r.write("tmp", trained(t, 1, 1))
			r.rename("tmp", "latest.safetensors")
		},
		"removed": func(r *rig) { r.unlink("latest.safetensors") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("latest.safetensors", trained(t, 1, 0))
			r.pack("latest.safetensors")
			h, m := r.manifestOf("latest.safetensors")
			r.withoutPacking() // what replaces it would be packed meanwhile
			r.forgetBases()
			replace(r)
			if got, was, _ := r.bases.Related(t.Context(), "latest.safetensors", m.Layout()); len(got.Before) == 0 {
				t.Error("nothing before it")
			} else if !slices.Equal(was, []cas.Hash{h}) {
				t.Error("another")
			}
		})
	}
}
