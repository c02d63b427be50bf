package volume

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"ckptfs/fs/control"
)

// BenchmarkDu asks of a run of 100 steps of 8 MiB, of which each shares half with all, and of one of its
// steps, with 2,000 other files in the store.
func BenchmarkDu(b *testing.B) {
	r := newRig(b, hotSize(0))
	frozen, head := random(4<<20, 1), random(4<<20, 2)
	for _, d := range []string{"runs", "runs/a", "other"} {
		r.mkdir(d)
	}
	for i := range 100 {
		binary.LittleEndian.PutUint64(head, uint64(i))
		for off := 0; off < len(head); off += 256 << 10 {
			binary.LittleEndian.PutUint64(head[off:], uint64(i))
		}
		step := fmt.Sprint("runs/a/", i)
		r.mkdir(step)
		r.write(step+"/m.safetensors", weights(b, []string{"frozen", "head"}, frozen, head))
		r.sync()
	}
	for i := range 2000 {
		r.write(fmt.Sprint("other/", i), random(100<<10, uint64(i)))
	}
	r.sync()
	r.stats()
	for name, p := range map[string]string{"run": "runs/a", "step": "runs/a/50", "store": ""} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Du(context.Background(), control.DuOptions{Paths: []string{p}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
