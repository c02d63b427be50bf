package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
		if m == nil || m.Path != "runs/a/1/m.safetensors.index.json" || m.Length != 3 || len(m.Tensors) != 3 || m.Bytes != 3*70<<10 || m.Size < m.Bytes {
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

	// Another, whose architecture is guessed, and which comes from the first; it is asked about by any of its names.
	begin("b/1")
	r.write("runs/b/1/lineage.json", []byte(`{"parent": "runs/a/1/m.safetensors.index.json"}`))
	shard("b/1", 1)
	shard("b/1", 2)
	begin("c/1")
	shard("c/1", 1)
	shard("c/1", 2)
	for _, p := range []string{"runs/b/1", "runs/b/1/m-1.safetensors", "runs/b/1/m-2.safetensors", "runs/b/1/m.safetensors.index.json"} {
		a, err := r.Match(context.Background(), control.MatchOptions{Like: p})
		if err != nil || a.GraphKind != "bag" || a.Match == nil || a.Match.Path != "runs/c/1/m.safetensors.index.json" || len(a.Match.Tensors) != 3 {
			t.Errorf("%s: %+v, %v", p, a, err)
		}
	}
	l, err := r.Lineage(context.Background(), "runs/b/1")
	if err != nil || len(l.Models) != 2 || l.Problem != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, m := range l.Models {
		if m.How != "declared" || len(m.Chain) != 2 || m.Chain[0].OwnedTensors != 0 || strings.TrimPrefix(m.Chain[1].Path, "runs/a") != strings.TrimPrefix(m.Path, "runs/b") {
			t.Errorf("%s comes from %+v", m.Path, m.Chain)
		}
	}
	// A sidecar that does not fit all files together.
	r.write("runs/a/1/arch.json", chainGraph("xyzk", true))
	if got := r.matched("xyz"); got != "" {
		t.Errorf("%q", got)
	}
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 || !strings.Contains(st.Sidecars[0], `no tensor "d"`) {
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
