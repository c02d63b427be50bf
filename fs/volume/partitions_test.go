package volume

import (
	"fmt"
	"slices"
	"testing"

	"ckptfs/formats"
)

// Parts of a model that ranks have take little beside it, and it beside them: rows of tensors, and a flat
// buffer of all, which begins with a chunk of the first of them, or of a part of each. That of a second rank,
// of the same name and shape, is no version of the first one's, though its path looks like that of the next
// step.
func TestPartitions(t *testing.T) {
	q, k, v := gauss(1, 1056), gauss(2, 1056), gauss(3, 1056) // rows that do not end where chunks do
	model := weightsFile{formats.F32, wide, map[string][]float32{"q": q, "k": k, "v": v}}.bytes(t)
	const ranks = 2
	var rows, flat, each [][]byte
	all := slices.Concat(q, k, v)
	for rank := range ranks {
		part := func(x []float32) []float32 { return x[rank*len(x)/ranks : (rank+1)*len(x)/ranks] }
		rows = append(rows, weightsFile{formats.F32, wide,
			map[string][]float32{"q": part(q), "k": part(k), "v": part(v)}}.bytes(t))
		flat = append(flat, weightsFile{formats.F32, 0, map[string][]float32{"flat": part(all),
			"exp_avg": make([]float32, len(all)/ranks)}}.bytes(t))
		each = append(each, weightsFile{formats.F32, 0, map[string][]float32{
			"flat": slices.Concat(part(q), part(k), part(v))}}.bytes(t))
	}
	for name, parts := range map[string][][]byte{"rows": rows, "flat": flat, "parts of each": each} {
		for _, first := range []bool{true, false} {
			if name == "parts of each" && !first {
				continue // of which the model's tensors are made is not found
			}
			r := newRig(t)
			want := map[string][]byte{}
			put := func(p string, b []byte) int64 {
				before := r.segmentBytes()
				r.write(p, b)
				r.pack(p)
				want[p] = b
				return r.segmentBytes() - before
			}
			base := int64(0)
			if first {
				base = put("model.safetensors", model)
			}
			took := int64(0)
			for rank, b := range parts {
				took += put(fmt.Sprintf("zero_pp_rank_%d.safetensors", rank), b)
			}
			if !first {
				base, took = took, put("model.safetensors", model)
			}
			if took > base/50 {
				t.Errorf("%s, the model first: %v: %d bytes beside %d", name, first, took, base)
			}
			r.evictAll()
			for p, b := range want {
				r.same(p, b)
			}
			r.sound()
		}
	}
}
