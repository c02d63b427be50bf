package steps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/formats/dcp"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// A step that names files which are not there is arriving, until they are; what names none is complete.
func TestArriving(t *testing.T) {
	d := newTold(t)
	d.s.Files = plainFiles(filepath.Dir(filepath.Dir(d.run)))
	d.s.Writing = new(tree.Writing)
	const index = `{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`
	metadata, err := os.ReadFile("../../formats/testdata/dcp/two/.metadata")
	if err != nil {
		t.Fatal(err)
	}
	put := func(p, data string) {
		t.Helper()
		at := filepath.Join(d.run, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		step, names, data string
		parts             []string
	}{
		{"1", "sub/model.safetensors.index.json", index,
			[]string{"sub/model-00001-of-00002.safetensors", "sub/model-00002-of-00002.safetensors"}},
		{"2", ".metadata", string(metadata), []string{"__0_0.distcp", "__1_0.distcp"}},
		{"3", "model.safetensors.index.json", "no JSON", []string{"model.safetensors"}},
	} {
		put(c.step+"/"+c.names, c.data)
		put(c.step+"/"+c.parts[0], "bytes")
		want := control.StepArriving
		for i := range c.parts {
			if i == len(c.parts)-1 {
				want = control.StepComplete
			}
			put(c.step+"/"+c.parts[i], "bytes")
			if i > 0 {
				d.changed(c.step, c.step+"/"+filepath.Dir(c.parts[i]))
			}
			found, err := d.s.Of("r")
			if err != nil {
				t.Fatal(err)
			}
			st := found["r"][len(found["r"])-1]
			if got := d.s.State(st); st.Name != c.step || got != want {
				t.Errorf("step %s with %q is %s, want %s", st.Name, c.parts[:i+1], got, want)
			}
			if said := st.Said(); (said == nil) != (want == control.StepArriving) {
				t.Errorf("step %s, %s, says %x", st.Name, want, said)
			}
		}
		d.changed("")
	}
}

// A step without files that its .metadata names is complete if weights were made of this .metadata, and not
// if the folder was saved to again.
func TestReplaced(t *testing.T) {
	d := newTold(t)
	d.s.Files = plainFiles(filepath.Dir(filepath.Dir(d.run)))
	d.s.Writing = new(tree.Writing)
	metadata, err := os.ReadFile("../../formats/testdata/dcp/two/.metadata")
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		later time.Duration
		want  string
	}{
		{0, control.StepComplete},
		{time.Nanosecond, control.StepArriving},
		{-time.Second, control.StepArriving},
	} {
		err := os.MkdirAll(filepath.Join(d.run, "1"), 0o755)
		times := map[string]time.Time{dcp.Metadata: then.Add(c.later), DistributedWeights: then}
		for name, at := range times {
			file := filepath.Join(d.run, "1", name)
			err = errors.Join(err, os.WriteFile(file, metadata, 0o600),
				os.Chtimes(file, at, at))
		}
		if err != nil {
			t.Fatal(err)
		}
		d.changed("", "1")
		found, err := d.s.Of("r")
		if err != nil || len(found["r"]) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if got := d.s.State(found["r"][0]); got != c.want {
			t.Errorf(".metadata is %v later: %s, want %s", c.later, got, c.want)
		}
	}
}
