package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/virtual"
)

// What a query answers is readable as long as the query has its name, though the model be removed and swept;
// and no other query answers it any more.
func TestPinned(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xqq")
	ask := func() (a control.MatchAnswer) {
		t.Helper()
		h := r.open(".ckptfs/query/new", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		r.writeAt(h, chainGraph("xyw", true), 0)
		if err := h.Answer(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.release(h)
		if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := ask()
	if a.Match == nil || a.Match.Path != "runs/a/1/m.safetensors" || a.Match.Pinned != ".ckptfs/query/new.safetensors" {
		t.Fatalf("%+v", a.Match)
	}
	want := r.read(a.Match.Pinned)
	r.evictAll()
	r.unlink("runs/a/1/arch.json")
	r.removeStep("runs/a/1")
	r.prune(now)
	if got := r.read(a.Match.Pinned); !bytes.Equal(got, want) || len(got) < 3*70<<10 {
		t.Errorf("%d bytes, %d before", len(got), len(want))
	}
	r.unlink(".ckptfs/query/new")
	if r.exists(a.Match.Pinned) {
		t.Error("there without its query")
	}
	if b := ask(); b.Match == nil || b.Match.Path != "runs/a/2/m.safetensors" || b.Match.Length != 1 {
		t.Errorf("%+v", b.Match)
	}
	r.unlink(".ckptfs/query/new")
	r.onlyRoot()
}

// A request by the control socket can have its answer pinned by a name, as a program that writes there has.
func TestPinnedByName(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	r.saveGraph("a/2", "xqq")
	m := r.match(control.MatchOptions{Graph: chainGraph("xyw", true), Pin: "new"})
	if m == nil || m.Path != "runs/a/1/m.safetensors" || m.Pinned != ".ckptfs/query/new.safetensors" {
		t.Fatalf("%+v", m)
	}
	var a control.MatchAnswer
	if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil || a.Match == nil ||
		a.Match.Path != m.Path || a.Match.Pinned != m.Pinned {
		t.Errorf("%+v, %v", a, err)
	}
	want := r.read(m.Pinned)
	r.evictAll()
	r.unlink("runs/a/1/arch.json")
	r.removeStep("runs/a/1")
	r.prune(now)
	if got := r.read(m.Pinned); !bytes.Equal(got, want) || len(got) < 3*70<<10 {
		t.Errorf("%d bytes, %d before", len(got), len(want))
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("k", true), Pin: "new"}); m != nil || r.exists(".ckptfs/query/new.safetensors") {
		t.Errorf("%+v", m)
	}
	if m := r.match(control.MatchOptions{Graph: chainGraph("x", true), Pin: "new"}); m == nil ||
		m.Path != "runs/a/2/m.safetensors" || !r.exists(m.Pinned) {
		t.Errorf("%+v", m)
	}
	for _, o := range []control.MatchOptions{{Pin: ".."}, {Pin: "a/b"}, {Pin: strings.Repeat("n", 250)},
		{Pin: "bad", Graph: []byte("{")}} {
		if _, err := r.Match(context.Background(), o); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%q: %v", o.Pin, err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	r.unlink(".ckptfs/query/new")
	r.unlink(".ckptfs/query/bad")
	// A name that is removed while a handle is open pins nothing.
	h := r.open(".ckptfs/query/late", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, chainGraph("x", true), 0)
	r.unlink(".ckptfs/query/late")
	if err := h.Answer(context.Background()); err != nil {
		t.Error(err)
	}
	r.release(h)
	r.onlyRoot()
	r = r.reopen(func(o *Options) { o.NoViews = true })
	pinned := control.MatchOptions{Graph: chainGraph("x", true), Pin: "new"}
	if _, err := r.Match(context.Background(), pinned); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// A graph that is written below .ckptfs/query is answered there.
func TestQueryFiles(t *testing.T) {
	r := newRig(t)
	r.saveGraph("a/1", "xyz")
	ask := func(name string, graph []byte) error {
		t.Helper()
		h := r.open(".ckptfs/query/"+name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
		for len(graph) > 0 { // in pieces, as programs do
			n := min(len(graph), 20)
			r.writeAt(h, graph[:n], int64(h.Node.Synth().Size()))
			graph = graph[n:]
		}
		err := h.Answer(context.Background())
		r.release(h)
		return err
	}
	for range 2 {
		if err := ask("new", chainGraph("xyw", true)); err != nil {
			t.Fatal(err)
		}
		var a control.MatchAnswer
		if err := json.Unmarshal(r.read(".ckptfs/query/new"), &a); err != nil || a.Match == nil ||
			a.Match.Path != "runs/a/1/m.safetensors" || a.Match.Length != 2 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != 1 || got[0] != "new" {
		t.Errorf("%q", got)
	}
	wantErr(t, "no graph", ask("bad", []byte(`{"v":1,"nodes":[{}]}`)), unix.EINVAL)
	_, err := r.openFile(".ckptfs/query/bad", unix.O_RDONLY)
	wantErr(t, "an answer to none", err, unix.EINVAL)
	if st, err := r.Status(context.Background()); err != nil || len(st.Sidecars) != 1 ||
		!strings.Contains(st.Sidecars[0], "query/bad") {
		t.Errorf("%q, %v", st.Sidecars, err)
	}
	h := r.open(".ckptfs/query/bad", unix.O_WRONLY|unix.O_TRUNC)
	if _, err := h.Write([]byte("x"), 16<<20); err != unix.EFBIG {
		t.Errorf("beyond what a graph may be: %v", err)
	}
	_, err = h.CopyRange(0, h, 0, 1, 0)
	wantErr(t, "copy_file_range", err, unix.EOPNOTSUPP)
	r.release(h)
	r.unlink(".ckptfs/query/bad")
	if r.exists(".ckptfs/query/bad") {
		t.Error("it was removed")
	}
	for i := range virtual.MaxQueries + 5 {
		if err := ask(fmt.Sprint(i), chainGraph("q", false)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.listing(".ckptfs/query"); len(got) != virtual.MaxQueries {
		t.Errorf("%d names", len(got))
	}
	r.onlyRoot()
}

// What the names of .ckptfs/query hold is bounded, in bytes: the oldest go, and a write to one that went
// fails.
func TestQueriesInBytes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheBytes = 64 << 20 }) // of which they may have an eighth
	graph := make([]byte, 3<<20)
	first := r.open(".ckptfs/query/0", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(first, graph, 0)
	for i := range 5 {
		h := r.open(fmt.Sprint(".ckptfs/query/", i+1), unix.O_WRONLY|unix.O_CREAT)
		r.writeAt(h, graph, 0)
		defer r.release(h)
	}
	if got := r.listing(".ckptfs/query"); len(got) != 2 || got[1] != "5" {
		t.Errorf("%q are kept", got)
	}
	_, err := first.Write([]byte("x"), int64(len(graph)))
	wantErr(t, "a write to one that went", err, unix.ENOMEM)
	wantErr(t, "its close", first.Answer(t.Context()), unix.EINVAL)
	r.release(first)
	h := r.open(".ckptfs/query/large", unix.O_WRONLY|unix.O_CREAT) // one of any size
	r.writeAt(h, make([]byte, 10<<20), 0)
	r.release(h)
	if got := r.listing(".ckptfs/query"); len(got) != 1 {
		t.Errorf("%q are kept", got)
	}
}
