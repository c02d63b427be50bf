package volume

import (
	"testing"

	"ckptfs/fs/control"
)

// family are files that were trained from one, the first.
var family = []string{"base/m.safetensors", "chat/m.safetensors", "code/m.safetensors", "math/m.safetensors"}

// tuned is a file of the family.
func tuned(t *testing.T, i int) []byte { return trained(t, 1, i) }

// A base and fine-tunes that come at once take as little as one after the other.
func TestFamilyAtOnce(t *testing.T) {
	var took [2]int64
	for i, atOnce := range []bool{false, true} {
		r := newRig(t)
		if atOnce {
			r.withoutPacking()
		}
		for i, p := range family {
			r.mkdir(p[:4])
			r.write(p, tuned(t, i))
			if !atOnce {
				r.pack(p)
			}
		}
		if atOnce {
			r.queue.Start()
		}
		r.sync()
		st, err := r.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		took[i] = st.StoredBytes - st.IndexBytes - st.DeadBytes
		r.sound()
	}
	if took[1] > took[0]*105/100 {
		t.Errorf("%d bytes at once, %d one after the other", took[1], took[0])
	}
}

// What was stored alone although others are stored against it, beside what it might have been stored against,
// is mended by a compaction the other way round.
func TestCompactFamily(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoDelta = true })
	for i, p := range family[:2] {
		r.mkdir(p[:4])
		r.write(p, tuned(t, i))
		r.pack(p)
	}
	r.close()
	r = openRig(t, r.dir)
	r.write("chat/m2.safetensors", tuned(t, 2)) // by its number against the other one in chat
	r.pack("chat/m2.safetensors")
	deltas := func() int64 {
		t.Helper()
		st, err := r.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Deltas
	}
	were := deltas()
	before := r.segmentBytes()
	if c := r.compact(control.CompactOptions{}); c.Chunks != 2 || before-r.segmentBytes() < 100<<10 {
		t.Errorf("%+v; %d bytes before, %d after", c, before, r.segmentBytes())
	}
	if n := deltas(); n != were+2 {
		t.Errorf("%d chunks are stored against others, %d were", n, were)
	}
	r.evictAll()
	r.same("base/m.safetensors", tuned(t, 0))
	r.sound()
	r = r.withoutIndex()
	r.evictAll()
	r.same("base/m.safetensors", tuned(t, 0))
	r.same("chat/m.safetensors", tuned(t, 1))
	r.sound()
}
