package dcp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// What two ranks wrote: tensors in parts along either dimension, whole ones, and objects.
func TestParse(t *testing.T) {
	files, err := Parse(fixture.Read(t, "dcp/two/.metadata"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	got := map[string]bool{}
	for file, items := range files {
		for _, x := range items {
			got[fmt.Sprint(file, " ", x.Name, x.Shape, x.Origin, x.Size)] = x.Tensor()
		}
	}
	for _, want := range []string{"__0_0.distcp model.rows[5 40] [0 0] [3 40]",
		"__1_0.distcp model.rows[5 40] [3 0] [2 40]", "__0_0.distcp model.cols[40 7] [0 0] [40 4]",
		"__1_0.distcp model.cols[40 7] [0 4] [40 3]"} {
		if !got[want] {
			t.Errorf("no %s in %v", want, got)
		}
	}
	objects, tensors := 0, 0
	for _, tensor := range got {
		if tensor {
			tensors++
		} else {
			objects++
		}
	}
	if tensors != 9 || objects != 1 {
		t.Errorf("%d tensors, %d objects: %v", tensors, objects, got)
	}
}

// What is cut off, changed or something else has no items, or those of a pickle that says so; nothing panics.
func TestRefused(t *testing.T) {
	p := fixture.Read(t, "dcp/two/.metadata")
	for i := range p {
		if _, err := Parse(p[:i]); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%d bytes: %v", i, err)
		}
		q := bytes.Clone(p)
		q[i] ^= 0x15
		if _, err := Parse(q); err != nil && !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	for from, to := range map[string]string{"__1_0.distcp": "/_1_0.distcp", "relative_path": "relative_lath",
		"Metadata\x94": "Netadata\x94", "offsets": "offsetz"} {
		_, err := Parse(bytes.ReplaceAll(p, []byte(from), []byte(to)))
		if !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"dcp/one/.metadata", "dcp/two/.metadata"} {
		f.Add(fixture.Read(f, name))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if _, err := Parse(p); err != nil && !errors.Is(err, formats.ErrNotFormat) {
			t.Error(err)
		}
	})
}

// A key is above all names if the paths say so, and none is guessed by dots.
func TestOnlyKey(t *testing.T) {
	if OnlyKey(map[string][]string{"a.b": {"a", "b"}}, map[string][]Item{"f": {{Name: "a.b"}}}) != "a." {
		t.Error("one key above all")
	}
	for _, paths := range []map[string][]string{nil, {"a.b": {"a.b"}}, {"a.b": {"a", "c"}}} {
		if k := OnlyKey(paths, map[string][]Item{"f": {{Name: "a.b"}}}); strings.Trim(k, ".") != "" {
			t.Errorf("%v: %q", paths, k)
		}
	}
	if Paths(nil)["x"] != nil {
		t.Error("paths of nothing")
	}
}
