package commands

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"ckptfs/cas/simd"
	"ckptfs/integration/mounttest"
)

// tensorFile is a safetensors file of one tensor, w.
func tensorFile(dtype string, elem int, data []byte) []byte {
	h, err := json.Marshal(map[string]any{"w": map[string]any{
		"dtype": dtype, "shape": []int{len(data) / elem}, "data_offsets": []int{0, len(data)},
	}})
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), data...)
}

// TestLevels packs with each level of kernels that this processor has, and reads with each other one. All
// store the same.
func TestLevels(t *testing.T) {
	files := map[string][]byte{}
	for i, p := range steps(7, 3, 3<<20) {
		files[fmt.Sprintf("runs/fp32/%d/model.safetensors", i)] = tensorFile("F32", 4, p)
		half := make([]byte, 0, len(p)/2)
		for k := 0; k < len(p); k += 4 {
			half = append(half, p[k+2], p[k+3])
		}
		files[fmt.Sprintf("runs/bf16/%d/model.safetensors", i)] = tensorFile("BF16", 2, half)
	}
	var levels []string
	simd.Each(func(l simd.Level) { levels = append(levels, l.String()) })
	var stored int64
	for _, packs := range levels {
		t.Run(packs, func(t *testing.T) {
			t.Setenv(simd.Env, packs)
			m := mounttest.New(t, "--hot-size", "0", "--pack-cpus", "1")
			for i := range 3 { // a step is written against the one before
				for _, run := range []string{"fp32", "bf16"} {
					name := fmt.Sprintf("runs/%s/%d/model.safetensors", run, i)
					m.Write(name, files[name])
					m.Sync()
				}
			}
			got := m.Stats().SegmentBytes // the index's pages depend on how many steps are packed at a time
			if stored == 0 {
				stored = got
			}
			if got != stored {
				t.Errorf("%s stores %d bytes, %s %d", packs, got, levels[0], stored)
			}
			for _, reads := range levels {
				t.Setenv(simd.Env, reads)
				m.Remount()
				m.EvictAll()
				for name, want := range files {
					m.Want(name, want)
				}
			}
		})
	}
}
