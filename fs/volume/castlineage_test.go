package volume

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

// trainedOn are weights after some steps of training.
func trainedOn(singles []byte, steps uint64) []byte {
	for k := range steps {
		for i := 0; i < len(singles); i += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(singles[i:]))
			x += 1e-3 * float32(math.Sin(float64(uint64(i)*(k+1))))
			binary.LittleEndian.PutUint32(singles[i:], math.Float32bits(x))
		}
	}
	return singles
}

// A copy in half precision of an earlier step, in another run, comes from that step, though it is stored
// with the help of a copy of a later one. One of other weights has no parent.
func TestCastHasParent(t *testing.T) {
	r := newRig(t)
	file := func(seed, step uint64, n int, half bool) []byte {
		var all []tensor
		for i := range 6 {
			w := trainedOn(singles(seed+uint64(i), n), step)
			if half {
				all = append(all, tensor{fmt.Sprintf("l.%d.w", i), "BF16", halves(t, w)})
			} else {
				all = append(all, tensor{fmt.Sprintf("l.%d.w", i), "F32", w})
			}
		}
		return fileOf(t, all...)
	}
	save := func(step string, b []byte) {
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/m.safetensors", b)
		r.sync()
	}
	for step := range uint64(4) {
		save(fmt.Sprint("base/", step+1), file(0, step, 60_000, false))
	}
	save("later/1", file(0, 3, 60_000, true))
	save("small/1", file(5000, 0, 700, false))
	save("cast/1", file(0, 1, 60_000, true))
	save("little/1", file(5000, 0, 700, true))
	save("none/1", file(9000, 0, 60_000, true))
	for of, want := range map[string]string{"later": "runs/base/4/m.safetensors",
		"cast": "runs/base/2/m.safetensors", "little": "runs/small/1/m.safetensors",
		"none": ""} {
		l := r.lineage("runs/" + of + "/1/m.safetensors")
		parent := ""
		if len(l.Chain) > 1 {
			parent = l.Chain[1].Path
		}
		if parent != want {
			t.Errorf("%s comes from %q, as is said by %s, and not %q", of, parent, l.How, want)
		}
	}
}
