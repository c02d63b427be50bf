package volume

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

func (r *rig) stats() *control.Stats {
	r.t.Helper()
	s, err := r.Stats(context.Background())
	if err != nil {
		r.t.Fatalf("stats: %v", err)
	}
	var deltas, raw, bytes int64
	for _, e := range s.Encodings {
		if slices.Contains([]string{"patch", "delta", "rounded", "low rank", "recipe"}, e.Codec) {
			deltas, raw, bytes = deltas+e.Records, raw+e.RawBytes, bytes+e.Bytes
		}
	}
	if deltas != s.Deltas || raw != s.DeltaRawBytes || bytes != s.DeltaBytes {
		r.t.Errorf("by codec %d deltas of %d bytes take %d: %+v", deltas, raw, bytes, s)
	}
	return s
}

func TestStats(t *testing.T) {
	r := newRig(t)
	if s := r.stats(); s.Files != 0 || s.LogicalBytes != 0 || s.UniqueBytes != 0 || s.Chunks != 0 ||
		s.Ratio != 0 || s.Runs == nil {
		t.Errorf("of nothing: %+v", s)
	}
	frozen, a, b := random(512<<10, 1), random(256<<10, 2), random(256<<10, 3)
	one := weights(t, []string{"frozen", "head"}, frozen, a)
	two := weights(t, []string{"frozen", "head"}, frozen, b)
	for _, d := range []string{"runs/x/1", "runs/x/2", "runs/y/1", "d"} {
		r.mkdir(d)
	}
	r.write("runs/x/1/m.safetensors", one)
	r.write("runs/x/2/m.safetensors", two)
	r.write("runs/y/1/m.safetensors", two)
	r.write("runs/y/1/metrics.json", []byte(`{}`))
	r.write("runs/y/readme", nil)
	r.write("d/plain", []byte("12345"))
	r.link("runs/x/1/m.safetensors", "d/link")
	r.write("d/holes", nil)
	r.truncate("d/holes", 1<<30)
	r.sync()
	s := r.stats()
	size := int64(len(one))
	if s.CopiesBytes < 3*size || s.CopiesBytes > s.LocalBytes {
		t.Errorf("%d bytes of copies of %d, %d local", s.CopiesBytes, 3*size, s.LocalBytes)
	}
	r.unlink("d/holes")
	s = r.stats()
	header := size - 768<<10
	unique := int64(1<<20) + header // the two headers are one chunk
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"files", s.Files, 6},
		{"packed", s.Packed, 3},
		{"manifests", s.Manifests, 2},
		{"tensors", s.Tensors, 4},
		{"logical", s.LogicalBytes, 3*size + 2 + 5},
		{"packed bytes", s.PackedBytes, 3 * size},
		{"plain", s.PlainBytes, 2 + 5},
		{"unique", s.UniqueBytes, unique},
		{"chunks", s.Chunks, 2 + 1 + 1 + 1},
		{"stored", s.StoredBytes, s.SegmentBytes + s.IndexBytes},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	if s.SegmentBytes < unique || s.SegmentBytes > unique+64<<10 {
		t.Errorf("%d bytes of segments for %d of chunks", s.SegmentBytes, unique)
	}
	if s.LocalBytes < 3*size || s.DeadBytes > 32<<10 || s.Ratio <= 1 {
		t.Errorf("%+v", s)
	}
	slices.SortFunc(s.Runs, func(a, b control.RunStats) int { return int(a.Run[0]) - int(b.Run[0]) })
	if len(s.Runs) != 2 {
		t.Fatalf("runs: %+v", s.Runs)
	}
	x, y := s.Runs[0], s.Runs[1]
	if x.Run != "x" || x.Steps != 2 || x.Files != 2 || x.LogicalBytes != 2*size || x.UniqueBytes != unique {
		t.Errorf("%+v", x)
	}
	if y.Run != "y" || y.Steps != 1 || y.Files != 3 || y.LogicalBytes != size+2 || y.UniqueBytes != size {
		t.Errorf("%+v", y)
	}
	if x.NewBytes+y.NewBytes != unique {
		t.Errorf("new: %d and %d, of %d", x.NewBytes, y.NewBytes, unique)
	}

	r.evictAll()
	if e := r.stats(); e.LocalBytes >= 64<<10 || e.StoredBytes < s.UniqueBytes ||
		e.LogicalBytes != s.LogicalBytes {
		t.Errorf("evicted: %+v", e)
	}
	// What no file refers to any more is dead.
	r.unlink("runs/x/1/m.safetensors")
	r.unlink("d/link")
	if e := r.stats(); e.UniqueBytes != size || e.DeadBytes < 256<<10 || e.DeadBytes > 288<<10 {
		t.Errorf("removed: %+v", e)
	}
	again := r.reopen().stats()
	if again.UniqueBytes != size || again.Chunks != 4 {
		t.Errorf("reopened: %+v", again)
	}
}

// A second checkpoint that differs in one tensor stores that one tensor.
func TestStoredOnce(t *testing.T) {
	r := newRig(t)
	frozen, a, b := random(2<<20, 1), random(256<<10, 2), random(256<<10, 3)
	r.write("1", weights(t, []string{"frozen", "head"}, frozen, a))
	r.sync()
	before := r.stats()
	r.write("2", weights(t, []string{"frozen", "head"}, frozen, b))
	r.sync()
	after := r.stats()
	if d := after.UniqueBytes - before.UniqueBytes; d != 256<<10 {
		t.Errorf("%d bytes more", d)
	}
	if d := after.SegmentBytes - before.SegmentBytes; d > 256<<10+16<<10 {
		t.Errorf("%d bytes more in the segments", d)
	}
}

func TestShow(t *testing.T) {
	r := newRig(t)
	a, b, c := random(300<<10, 1), random(100<<10, 2), random(100<<10, 3)
	r.mkdir("d")
	one := weights(t, []string{"a", "b"}, a, b)
	for _, p := range []string{"z", "m", "d/k", "1"} {
		r.write(p, one)
	}
	r.write("two", weights(t, []string{"c", "other"}, c, a))
	r.write("small", []byte("x"))
	r.sync()
	r.evictAll()
	show := func(p string) *control.File {
		t.Helper()
		f, err := r.Show(context.Background(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := show("two")
	if f.Path != "two" || f.Format != "safetensors" || f.State != control.StatePacked ||
		f.Size != int64(len(r.read("two"))) ||
		f.View || f.Manifest == "" || f.Stored < 400<<10 || f.Stored > 420<<10 || len(f.Tensors) != 2 {
		t.Errorf("%+v", f)
	}
	for _, x := range f.Tensors {
		want, n := []string{"1", "d/k", "m", "z"}, 300<<10
		if x.Name == "c" {
			want, n = []string{}, 100<<10
		}
		if !slices.Equal(x.SharedWith, want) || x.Shared != len(want) || x.Bytes != int64(n) ||
			x.DType != "U8" ||
			!slices.Equal(x.Shape, []int64{int64(n)}) || x.Hash == "" || x.SharedWith == nil {
			t.Errorf("%+v", x)
		}
	}
	data := r.read("two")
	for _, x := range f.Tensors {
		want := a
		if x.Name == "c" {
			want = c
		}
		r.equal(x.Name, data[x.Offset:x.Offset+x.Bytes], want)
	}
	if f := show("small"); f.Format != "blob" || f.State != control.StatePlain || f.Size != 1 ||
		len(f.Tensors) != 0 || f.Tensors == nil {
		t.Errorf("%+v", f)
	}
	link, _, err := r.Symlink(r.names.Root(), "link", "two", r.me)
	if err != nil {
		t.Fatal(err)
	}
	r.forget(link)
	for p, want := range map[string]string{"none": "no such file", "d": "without a checkpoint",
		"": "without a checkpoint", "link": tree.ErrNotRegular.Error()} {
		_, err := r.Show(context.Background(), p, nil)
		var pe *os.PathError
		if !errors.As(err, &pe) || !strings.Contains(err.Error(), want) {
			t.Errorf("show %q: %v", p, err)
		}
	}
}

func TestShowStates(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs/a")
	src := fixture(t, "views.pt")
	h := r.open("runs/a/m.pt", unix.O_RDWR|unix.O_CREAT)
	r.writeAt(h, src, 0)
	names := func(f *control.File) (out []string) {
		for _, x := range f.Tensors {
			out = append(out, x.Name)
		}
		slices.Sort(out)
		return out
	}
	var want []string
	for _, state := range []string{control.StatePlain, control.StateResident, control.StatePacked} {
		f, err := r.Show(context.Background(), "runs/a/m.pt", nil)
		if err != nil || f.State != state || f.Format != "torch-zip" || f.Size != int64(len(src)) {
			t.Errorf("%s: %+v, %v", state, f, err)
		}
		if want == nil {
			want = names(f)
		}
		if len(want) == 0 || !slices.Equal(names(f), want) {
			t.Errorf("%s: tensors %v, want %v", state, names(f), want)
		}
		switch state {
		case control.StatePlain:
			r.release(h)
			r.sync()
		case control.StateResident:
			r.evictAll()
		}
	}
	f, err := r.Show(context.Background(), "runs/a/m.safetensors", nil)
	if err != nil || !f.View || f.Format != "safetensors" || f.Size != int64(len(viewBytes(t, src))) ||
		!slices.Equal(names(f), want) {
		t.Errorf("%+v, %v", f, err)
	}
}
