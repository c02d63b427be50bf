package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/formats/detect"
)

// tensorsOf reads a file's tensors, which are contiguous.
func tensorsOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := detect.Detect(bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, x := range l.Tensors {
		var b []byte
		if x.Region >= 0 {
			b = p[l.Regions[x.Region].Off+x.Offset:][:x.NumBytes()]
		}
		all[x.Name] = b
	}
	return all
}

func TestDropOptimizer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.pt")
	place := func(fixture string) {
		t.Helper()
		p, err := os.ReadFile(filepath.Join("../../formats/testdata/torch", fixture))
		if err == nil {
			err = os.WriteFile(path, p, 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	forget := func(args ...string) (string, int) {
		t.Helper()
		var out, said bytes.Buffer
		code := run(t.Context(), append([]string{"forget", "--drop-optimizer"}, args...), &out, &said)
		return out.String() + said.String(), code
	}
	place("adamw.pt")
	before := tensorsOf(t, path)
	weights := filepath.Join(dir, "model.weights.safetensors")
	if said, code := forget("--dry-run", path); code != 0 || !strings.Contains(said, "would be replaced") {
		t.Fatalf("%d: %s", code, said)
	}
	if _, err := os.Stat(weights); err == nil {
		t.Fatal("a dry run made a file")
	}
	if said, code := forget(path); code != 0 || !strings.Contains(said, "8 tensors kept, 15 of optimizer state dropped") {
		t.Fatalf("%d: %s", code, said)
	}
	after := tensorsOf(t, weights)
	if len(after) != 8 {
		t.Errorf("%d tensors", len(after))
	}
	for name, b := range after {
		if !bytes.Equal(b, before[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if st, err := os.Stat(weights); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the checkpoint is still there")
	}
	for what, c := range map[string]struct{ fixture, says string }{
		"the new file's name is taken": {"adamw.pt", "file of that name"},
		"no optimizer":                 {"flat.pt", "no optimizer state"},
	} {
		place(c.fixture)
		p, _ := os.ReadFile(path)
		if said, code := forget(path); code == 0 || !strings.Contains(said, c.says) ||
			!strings.Contains(said, "stays as it is") {
			t.Errorf("%s: %d: %s", what, code, said)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, p) {
			t.Errorf("%s: the file is not what it was: %v", what, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	if said, code := forget("--keep-best", "loss=3", path); code != exit.Usage {
		t.Errorf("%d: %s", code, said)
	}
}
