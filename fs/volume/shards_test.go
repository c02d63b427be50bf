package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// TestShardedModel: the files of a set are one model to a match, with one architecture.
func TestShardedModel(t *testing.T) {
	r := newRig(t)
	const index = `{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}}`
	shard := func(step string, i int) {
		t.Helper()
		names, data := []string{"a"}, [][]byte{random(70<<10, 1)}
		if i == 2 {
			names, data = []string{"b", "c"}, [][]byte{random(70<<10, 2), random(70<<10, 3)}
		}
		r.write(fmt.Sprintf("runs/%s/m-%d.safetensors", step, i), weights(t, names, data...))
		r.sync()
	}
	begin := func(step string) {
		t.Helper()
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/m.safetensors.index.json", []byte(index))
	}
	begin("a/1")
	r.write("runs/a/1/arch.json", chainGraph("xyz", true))
	shard("a/1", 1)
	if got := r.matched("xyz"); got != "" {
		t.Errorf("half of it: %q", got)
	}
	shard("a/1", 2)
	check := func(r *rig, when string) {
		t.Helper()
		m := r.match(control.MatchOptions{Graph: chainGraph("xyzk", true)})
		if m == nil || m.Path != "runs/a/1/m.safetensors.index.json" || m.Length != 3 ||
			len(m.Tensors) != 3 || m.Bytes != 3*70<<10 || m.Size < m.Bytes {
			t.Errorf("%s: %+v", when, m)
		}
		if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 0 {
			t.Errorf("%s: %q, %v", when, st.Sidecars, err)
		}
	}
	check(r, "saved")
	r.evictAll()
	r = r.reopen()
	check(r, "opened again")
	r = r.withoutIndex()
	check(r, "without its index")

	// Another, whose architecture is guessed, and which comes from the first; it is asked about by any of its
	// names.
	begin("b/1")
	r.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/1/m.safetensors.index.json"}`))
	shard("b/1", 1)
	shard("b/1", 2)
	begin("c/1")
	shard("c/1", 1)
	shard("c/1", 2)
	for _, p := range []string{"runs/b/1", "runs/b/1/m-1.safetensors", "runs/b/1/m-2.safetensors", "runs/b/1/m.safetensors.index.json"} {
		a, err := r.Match(context.Background(), control.MatchOptions{Like: p})
		if err != nil || a.GraphKind != "bag" || a.Match == nil ||
			a.Match.Path != "runs/c/1/m.safetensors.index.json" || len(a.Match.Tensors) != 3 {
			t.Errorf("%s: %+v, %v", p, a, err)
		}
	}
	l, err := r.Lineage(context.Background(), "runs/b/1")
	if err != nil || len(l.Models) != 2 || l.Problem != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, m := range l.Models {
		if m.How != "declared" || len(m.Chain) != 2 || m.Chain[0].OwnedTensors != 0 ||
			strings.TrimPrefix(m.Chain[1].Path, "runs/a") != strings.TrimPrefix(m.Path, "runs/b") {
			t.Errorf("%s comes from %+v", m.Path, m.Chain)
		}
	}
	// A sidecar that does not fit all files together.
	r.write("runs/a/1/arch.json", chainGraph("xyzk", true))
	if got := r.matched("xyz"); got != "" {
		t.Errorf("%q", got)
	}
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 ||
		!strings.Contains(st.Sidecars[0], `no tensor "d"`) {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
	// Files by themselves, when the index goes.
	r.unlink("runs/c/1/m.safetensors.index.json")
	if a, err := r.Match(context.Background(), control.MatchOptions{Like: "runs/c/1/m-2.safetensors"}); err != nil || a.Match != nil {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := r.Match(context.Background(), control.MatchOptions{Like: "runs/c/1"}); err == nil {
		t.Errorf("%+v", a)
	}
}

// The files of a set are pinned together, as one file.
func TestPinnedSet(t *testing.T) {
	r := newRig(t)
	const index = `{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}}`
	a, b, c := random(70<<10, 1), random(700<<10, 2), random(70<<10, 3)
	r.mkdir("runs/a/1")
	r.write("runs/a/1/m.safetensors.index.json", []byte(index))
	r.write("runs/a/1/arch.json", chainGraph("xyz", true))
	// The first has a tensor that the index does not count.
	r.write("runs/a/1/m-1.safetensors", weights(t, []string{"a", "b"}, a, c))
	r.write("runs/a/1/m-2.safetensors", weights(t, []string{"b", "c"}, b, c))
	r.sync()
	m := r.match(control.MatchOptions{Graph: chainGraph("xyw", true), Pin: "new"})
	if m == nil || m.Path != "runs/a/1/m.safetensors.index.json" || m.Pinned != ".ckptfs/query/new.safetensors" {
		t.Fatalf("%+v", m)
	}
	want := weights(t, []string{"a", "b", "c"}, a, b, c)
	data := func(p []byte) []byte { return p[8+binary.LittleEndian.Uint64(p):] }
	check := func(when string) {
		t.Helper()
		if got := r.read(m.Pinned); !bytes.Equal(data(got), data(want)) {
			t.Errorf("%s: %d bytes, want %d", when, len(got), len(want))
		}
	}
	check("at first")
	for off := range 40 { // across the files
		got, whole := make([]byte, 100<<10), r.read(m.Pinned)
		h := r.open(m.Pinned, unix.O_RDONLY)
		n, err := h.Read(got, int64(off)*25<<10)
		if end := min(len(whole), off*25<<10+len(got)); err != nil ||
			off*25<<10 < len(whole) && !bytes.Equal(got[:n], whole[off*25<<10:end]) {
			t.Errorf("at %d: %d bytes, %v", off*25<<10, n, err)
		}
		r.release(h)
	}
	for _, name := range []string{"arch.json", "m.safetensors.index.json", "m-1.safetensors", "m-2.safetensors"} {
		r.unlink("runs/a/1/" + name)
	}
	r.prune(now)
	check("removed")
	h := r.open(m.Pinned, unix.O_RDONLY)
	r.unlink(".ckptfs/query/new")
	if r.exists(m.Pinned) {
		t.Error("there without its query")
	}
	got := make([]byte, len(want)+1000)
	if n, err := h.Read(got, 0); err != nil || !bytes.Equal(data(got[:n]), data(want)) {
		t.Errorf("an open handle reads %d bytes, %v", n, err)
	}
	r.release(h)
	r.onlyRoot()

	// One that is written meanwhile is not shown, and an open handle says so.
	r.write("runs/a/1/m.safetensors.index.json", []byte(index))
	r.write("runs/a/1/arch.json", chainGraph("xyz", true))
	r.write("runs/a/1/m-1.safetensors", weights(t, []string{"a"}, a))
	r.write("runs/a/1/m-2.safetensors", weights(t, []string{"b", "c"}, b, c))
	r.sync()
	if m := r.match(control.MatchOptions{Graph: chainGraph("xyw", true), Pin: "new"}); m == nil ||
		m.Pinned == "" {
		t.Fatalf("%+v", m)
	}
	h = r.open(m.Pinned, unix.O_RDONLY)
	r.patch("runs/a/1/m-2.safetensors", []byte("x"), 300<<10)
	if n, err := h.Read(got, 0); err == nil {
		t.Errorf("%d bytes of a file that changed", n)
	}
	r.release(h)
	if r.exists(m.Pinned) {
		t.Error("it is there, with other bytes")
	}
	r.unlink(".ckptfs/query/new")
}

// A child in one file of a set: by the set's index, and by its step, also when that is gone.
func TestChildOfSet(t *testing.T) {
	r := newRig(t)
	a, b := random(70<<10, 1), random(70<<10, 2)
	r.mkdir("runs/a/1")
	r.write("runs/a/1/m.safetensors.index.json", []byte(`{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}`))
	r.write("runs/a/1/m-1.safetensors", weights(t, []string{"a"}, a))
	r.write("runs/a/1/m-2.safetensors", weights(t, []string{"b"}, b))
	r.sync()
	child := func(step, parent string) {
		t.Helper()
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/lineage.json", fmt.Appendf(nil, `{"parent": %q, "how": "transfer", "tensors": {"x": "a", "y": "b"}}`, parent))
		r.write("runs/"+step+"/other.safetensors", weights(t, []string{"x", "y"}, a, b))
		r.sync()
		l, err := r.Lineage(context.Background(), "runs/"+step)
		if err != nil || l.Problem != "" || len(l.Models) != 1 || l.Models[0].How != "transfer" ||
			len(l.Models[0].Chain) != 2 || !strings.HasPrefix(l.Models[0].Chain[1].Path, "runs/a/1/m-") {
			t.Errorf("%s of %s: %+v, %v", step, parent, l, err)
		}
	}
	child("b/1", "runs/a/1/m.safetensors.index.json")
	child("c/1", "runs/a/1")
	if c := r.lineage("runs/b/1").Chain; c[1].Path != "runs/a/1/m-1.safetensors" || c[1].OwnedTensors != 1 {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"m.safetensors.index.json", "m-1.safetensors", "m-2.safetensors"} {
		r.unlink("runs/a/1/" + name)
	}
	child("d/1", "runs/a/1/m.safetensors.index.json")
	child("e/1", "runs/a/1")
}
