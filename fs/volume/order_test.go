package volume

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// there is a file of a folder that comes at once.
type there struct {
	path string
	data []byte
}

// fill makes files of the host, each a minute younger than the one before.
func fill(t testing.TB, dir string, files []there) {
	t.Helper()
	at := time.Unix(1_700_000_000, 0)
	for _, f := range files {
		p := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, f.data, 0o644); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Minute)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// takes is how many bytes the files of a store take in segments.
func (r *rig) takes() int64 {
	r.t.Helper()
	st, err := r.Stats(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return st.StoredBytes - st.IndexBytes - st.DeadBytes
}

// What others are made of is packed ahead of them, however old they are and whatever they are called: a
// folder that comes at once takes what its files take one after the other in the best order, before any
// compaction.
func TestFoundOrder(t *testing.T) {
	var files []there
	for i, name := range []string{"a", "b", "c"} {
		w := singles(uint64(10+i), elems*(i+1))
		codes, scale := eights(t, w)
		files = append(files,
			there{name + "/single/model.safetensors", fileOf(t, tensor{"m." + name + ".w", "F32", w})},
			there{name + "/half/model.safetensors", fileOf(t, tensor{"m." + name + ".w", "BF16", halves(t, w)})},
			there{name + "/eight/model.safetensors", fileOf(t, tensor{"m." + name + ".w", "F8_E4M3", codes},
				tensor{"m." + name + ".w_scale", "F32", scale})})
	}
	files = append(files, there{"noise", random(2<<20, 3)})
	var raw, best int64
	r := newRig(t)
	for _, f := range files {
		raw += int64(len(f.data))
		for _, dir := range []string{filepath.Dir(filepath.Dir(f.path)), filepath.Dir(f.path)} {
			if dir != "." && !r.exists(dir) {
				r.mkdir(dir)
			}
		}
		r.write(f.path, f.data)
		r.pack(f.path)
	}
	best = r.takes()
	var worst []there
	for i := range files {
		worst = append(worst, files[len(files)-1-i])
	}
	check := func(t *testing.T, r *rig, below string) {
		t.Helper()
		r.sync()
		if d := 100 * float64(r.takes()-best) / float64(raw); d > 3 {
			t.Errorf("%d of %d bytes, %d in the best order: %.1f points more", r.takes(), raw, best, d)
		}
		r.evictAll()
		for _, f := range files {
			r.same(below+f.path, f.data)
		}
		r.sound()
	}
	t.Run("found by a start", func(t *testing.T) {
		r := newRig(t)
		dir := r.dir
		r.close()
		fill(t, filepath.Join(dir, tree.TreeDir), worst)
		check(t, openRig(t, dir), "")
	})
	t.Run("after a crash", func(t *testing.T) {
		r := newRig(t)
		r.withoutPacking()
		fill(t, filepath.Join(r.dir, tree.TreeDir), worst)
		check(t, r.crashed(), "")
	})
	t.Run("taken in", func(t *testing.T) {
		r := newRig(t)
		from := filepath.Join(filepath.Dir(r.dir), "from")
		t.Cleanup(func() { os.RemoveAll(from) })
		fill(t, from, worst)
		if err := r.TakeIn(t.Context(), from, "in"); err != nil {
			t.Fatal(err)
		}
		check(t, r, "in/")
		if c := r.compact(control.CompactOptions{}); 100*(c.BytesBefore-c.BytesAfter) > raw {
			t.Errorf("a compaction saves still: %+v", c)
		}
	})
}
