package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// refused is the one line of the status about what is refused; "" for none.
func (r *rig) refused() string {
	r.t.Helper()
	st, err := r.Status(context.Background())
	if err != nil || len(st.Sidecars) > 1 {
		r.t.Fatalf("%q, %v", st.Sidecars, err)
	}
	return strings.Join(st.Sidecars, "")
}

func (r *rig) setXattr(p, name string, value []byte) error {
	r.t.Helper()
	n := r.find(p)
	defer r.forget(n)
	return r.SetXattr(n, name, value, 0)
}

// A lineage.json that is none is refused as a whole, with a line in the status, whether it comes before the
// weights or after them.
func TestBadLineage(t *testing.T) {
	const before, after = "b/2 previous step 1; b/1 inferred 0; a/1 none 3", "b/2 declared 1; a/1 none 3"
	for sidecar, word := range map[string]string{
		`{"parent": "runs/a/1", "how": "guess"}`:                                            `"guess"`,
		`{"parent": "runs/a/1", "parent": "runs/a/1"}`:                                      "twice",
		`{"parent": "runs/a/1", "how": "transfer", "tensors": {"a": "b", "a": "c"}}`:        "twice",
		`{"parent": "runs/a/1", "how": "transfer", "tensors": {"nope": "a"}}`:               `the step has no tensor "nope"`,
		`{"parent": "runs/a/1", "how": "transfer", "tensors": {"a": "nope"}}`:               `the parent has no tensor "nope"`,
		`{"parent": "runs/a/1/m.safetensors", "how": "transfer", "tensors": {"a": "nope"}}`: `the parent has no tensor "nope"`,
		`{"parent": "runs/a/1", "tensors": {"nope": "a"}}`:                                  `"nope"`,
		`{"parent": "runs/a/1"`:                                "lineage.json",
		strings.Repeat(" ", 16<<20) + `{"parent": "runs/a/1"}`: "at most",
		`{"parent": "runs/b/2"}`:                               "no other step",
		`{"parent": "runs/b/3"}`:                               "saved after its child",
		`{"parent": "/etc/passwd"}`:                            "outside",
	} {
		t.Run(word, func(t *testing.T) {
			r := newRig(t)
			r.save("a/1", "ABCD")
			r.save("b/1", "ABCX")
			r.mkdir("runs/b/2")
			r.mkdir("runs/b/3")
			r.save("b/2", "ABCE")
			r.save("b/3", "ABCF")
			r.wantChain("runs/b/2", before)
			check := func(when string) {
				t.Helper()
				r.wantChain("runs/b/2", before)
				if got := r.refused(); !strings.HasPrefix(got, "runs/b/2: ") || !strings.Contains(got, word) {
					t.Errorf("%s: %q", when, got)
				}
				r.same("runs/b/2/m.safetensors", modelFile(t, "ABCE"))
			}
			r.write("runs/b/2/lineage.json", []byte(sidecar))
			check("after the weights")
			r = r.reopen()
			check("opened again")
			r.write("runs/b/2/lineage.json", []byte(`{"parent": "runs/a/1", "how": "declared", "tensors": {"a": "a"}}`))
			r.wantChain("runs/b/2", after)
			if got := r.refused(); got != "" {
				t.Error(got)
			}
		})
		if word == "saved after its child" {
			continue // there is none before the weights
		}
		t.Run("first "+word, func(t *testing.T) {
			r := newRig(t)
			r.save("a/1", "ABCD")
			r.save("b/1", "ABCX")
			r.mkdir("runs/b/2")
			r.write("runs/b/2/lineage.json", []byte(strings.ReplaceAll(sidecar, "b/3", "b/2")))
			r.wantChain("runs/b/1", "b/1 inferred 1; a/1 none 3")
			if got := r.refused(); strings.Contains(got, "no tensor") {
				t.Errorf("before the weights: %q", got)
			}
			r.save("b/2", "ABCE")
			if got := r.chain("runs/b/2"); !strings.HasPrefix(got, "b/2 previous step ") {
				t.Error(got)
			}
			if got := r.refused(); !strings.HasPrefix(got, "runs/b/2: ") || !strings.Contains(got, word) {
				t.Errorf("%q", got)
			}
		})
	}
}

// The names of a transfer are judged when all files of the step are packed, and may be behind a prefix, or
// tied to others.
func TestTransferNames(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABCD")
	file := func(names ...string) []byte {
		var data [][]byte
		for i := range names {
			data = append(data, random(70<<10, uint64('A'+i)))
		}
		return weights(t, names, data...)
	}
	save := func(step, sidecar string, files map[string][]byte) {
		t.Helper()
		r.mkdir("runs/" + step)
		r.write("runs/"+step+"/lineage.json", []byte(sidecar))
		for name, content := range files {
			r.write("runs/"+step+"/"+name, content)
			r.sync()
			r.refused() // it is looked at
		}
	}
	const said = `{"parent": "runs/a/1", "how": "transfer", "tensors": {"x": "a", "y": "b"}, "tied": {"y": ["z"]}}`
	for step, files := range map[string]map[string][]byte{
		"plain/1":  {"m.safetensors": file("x", "y")},
		"prefix/1": {"m.safetensors": file("model.x", "model.y", "opt.x")},
		"tied/1":   {"m.safetensors": file("x", "z")},
		"two/1":    {"1.safetensors": file("x"), "2.safetensors": file("w", "y")},
	} {
		save(step, said, files)
		l, err := r.Lineage(context.Background(), "runs/"+step)
		if err != nil || l.Problem != "" || len(l.Models) != len(files) {
			t.Fatalf("%s: %+v, %v", step, l, err)
		}
		inherited := int64(0)
		for _, m := range l.Models {
			if m.How != "transfer" || m.Chain[1].Path != "runs/a/1/m.safetensors" {
				t.Errorf("%s: %+v", step, m.Chain)
			}
			inherited += m.Chain[1].OwnedTensors
		}
		if inherited != 2 {
			t.Errorf("%s: %d tensors are the parent's", step, inherited)
		}
	}
	if got := r.refused(); got != "" {
		t.Error(got)
	}
}

// What is refused when it is set: an attribute with a graph that names what the file has not, once that is
// known.
func TestBadGraphAttribute(t *testing.T) {
	r := newRig(t)
	r.save("a/1", "ABC")
	const file = "runs/a/1/m.safetensors"
	for graph, word := range map[string]string{
		`{"v":1,"nodes":[{"id":"x","op":"X","params":["nothing"]}]}`: `"nothing"`,
		`{"v":1,"nodes":[{"id":"x","op":"X","id":"y"}]}`:             "twice",
	} {
		if err := r.setXattr(file, "user.ckptfs.arch", []byte(graph)); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", graph, err)
		}
		if got := r.refused(); !strings.HasPrefix(got, file+" user.ckptfs.arch: ") || !strings.Contains(got, word) {
			t.Errorf("%s: %q", graph, got)
		}
	}
	if err := r.setXattr(file, "user.ckptfs.arch", chainGraph("xyz", true)); err != nil {
		t.Error(err)
	}
	// Not packed yet, or a file of a set: it cannot be known.
	r.withoutPacking()
	r.mkdir("runs/b/1")
	r.write("runs/b/1/m.safetensors", modelFile(t, "ABC"))
	if err := r.setXattr("runs/b/1/m.safetensors", "user.ckptfs.arch", []byte(`{"v":1,"nodes":[{"id":"x","op":"X","params":["nothing"]}]}`)); err != nil {
		t.Error(err)
	}
}

// A graph in a file's own metadata that is none is news, too; without one there is nothing to say.
func TestBadGraphMetadata(t *testing.T) {
	r := newRig(t)
	withMetadata := func(graph string) []byte {
		p := modelFile(t, "ABC")
		n := binary.LittleEndian.Uint64(p)
		header := bytes.TrimRight(p[8:8+n], " ")
		header = append(fmt.Appendf(nil, `{"__metadata__":{"ckptfs.arch":%q},`, graph), header[1:]...)
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...),
			p[8+n:]...)
	}
	r.mkdir("runs/a/1")
	r.mkdir("runs/b/1")
	r.write("runs/a/1/m.safetensors", withMetadata(string(chainGraph("xyz", true))))
	r.write("runs/b/1/m.safetensors", withMetadata(`{"v":1,"nodes":[{"id":"x","op":"X","params":["nothing"]}]}`))
	r.sync()
	if got := r.matched("xyz"); got != "a/1 3" {
		t.Errorf("%q", got)
	}
	if got := r.refused(); !strings.HasPrefix(got, "runs/b/1: m.safetensors: ") || !strings.Contains(got, `"nothing"`) {
		t.Errorf("%q", got)
	}
}

// What is over 16 MiB is no query, whatever part of it came.
func TestLargeQuery(t *testing.T) {
	r := newRig(t)
	r.mkdir("runs")
	h := r.open(".ckptfs/query/large", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, chainGraph("xyz", false), 0)
	if _, err := h.Write([]byte(" "), control.MaxGraph); !errors.Is(err, unix.EFBIG) {
		t.Error(err)
	}
	if err := h.Answer(context.Background()); !errors.Is(err, unix.EINVAL) {
		t.Errorf("close: %v", err)
	}
	if got := r.refused(); !strings.Contains(got, ".ckptfs/query/large: ") || !strings.Contains(got, "which is the most") {
		t.Errorf("%q", got)
	}
	r.release(h)
	h = r.open(".ckptfs/query/large", unix.O_WRONLY|unix.O_TRUNC)
	r.writeAt(h, chainGraph("xyz", false), 0)
	if err := h.Answer(context.Background()); err != nil {
		t.Errorf("asked again: %v", err)
	}
	r.release(h)
}
