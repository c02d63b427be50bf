package volume

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
)

// A sharded set is shown by its index.
func TestShowSharded(t *testing.T) {
	r := newRig(t)
	const index = "model.safetensors.index.json"
	r.write("1.safetensors", weights(t, []string{"a", "b"}, random(100, 1), random(50, 2)))
	r.write("2.safetensors", weights(t, []string{"a", "c"}, random(4, 4), random(200<<10, 3)))
	r.write(index, []byte(`{"metadata":{},"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}}`))
	check := func(when string) {
		t.Helper()
		f, err := r.Show(t.Context(), index, nil)
		if err != nil || f.Format != "safetensors-index" || f.Size < 200<<10 {
			t.Fatalf("%s: %+v, %v", when, f, err)
		}
		if got := r.tensorsOf(index); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%s: %q", when, got)
		}
		if f.Tensors[0].Bytes != 100 {
			t.Errorf("%s: a of another file: %+v", when, f.Tensors[0])
		}
	}
	check("resident")
	r.sync()
	r.evictAll()
	check("packed")
	for what, c := range map[string]struct {
		index string
		want  error
	}{
		"a file that is not there": {`{"weight_map":{"a":"3.safetensors"}}`, unix.ENOENT},
		"a tensor that is not":     {`{"weight_map":{"z":"1.safetensors"}}`, formats.ErrNotFormat},
		"itself":                   {`{"weight_map":{"z":"` + index + `"}}`, formats.ErrNotFormat},
	} {
		r.write(index, []byte(c.index))
		_, err := r.Show(t.Context(), index, nil)
		wantErr(t, what, err, c.want)
	}
	for what, text := range map[string]string{"none": "{}", "too many files": `{"weight_map":{` +
		strings.TrimSuffix(many(inspect.MaxShards+1), ",") + `}}`} {
		r.write(index, []byte(text))
		if f, err := r.Show(t.Context(), index, nil); err != nil || f.Format != "blob" {
			t.Errorf("%s: %+v, %v", what, f, err)
		}
	}
}

// many is entries of an index, each of a file of its own.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		name := strings.Repeat("x", i%100) + string(rune('a'+i/100%26)) + strings.Repeat("y", i/2600)
		b.WriteString(`"` + name + `":"` + name + `",`)
	}
	return b.String()
}

// A sharded set is one thing to compare, read and look for, however it is cut.
func TestSets(t *testing.T) {
	r := newRig(t)
	a, b, c, d := random(100<<10, 1), random(50<<10, 2), random(200<<10, 3), random(200<<10, 4)
	for _, dir := range []string{"runs/a/1", "runs/a/2", "runs/b/1"} {
		r.mkdir(dir)
	}
	index := func(dir, text string) {
		r.write(dir+"/model.safetensors.index.json", []byte(`{"weight_map":{`+text+`}}`))
	}
	r.write("runs/a/1/1.safetensors", weights(t, []string{"a", "b"}, a, b))
	r.write("runs/a/1/2.safetensors", weights(t, []string{"c"}, c))
	index("runs/a/1", `"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"`)
	r.write("runs/a/2/1.safetensors", weights(t, []string{"a"}, a))
	r.write("runs/a/2/2.safetensors", weights(t, []string{"b"}, b))
	r.write("runs/a/2/3.safetensors", weights(t, []string{"c"}, d))
	index("runs/a/2", `"a":"1.safetensors","b":"2.safetensors","c":"3.safetensors"`)
	r.write("runs/a/2/optimizer.safetensors", weights(t, []string{"m"}, b))
	r.write("runs/b/1/model.safetensors", weights(t, []string{"a", "b", "c"}, a, b, c))
	const set, other, file = "runs/a/1/model.safetensors.index.json", "runs/a/2/model.safetensors.index.json", "runs/b/1/model.safetensors"
	check := func(when string, packed bool) {
		t.Helper()
		for _, p := range []string{set, "runs/a/1"} {
			for _, q := range []string{file, "runs/b/1", "runs/b"} {
				for _, x := range [][2]string{{p, q}, {q, p}} {
					e := r.diff(x[0], x[1])
					if e.Equal != 3 || packed && e.ReadBytes != 0 ||
						len(e.Changed)+len(e.Reshaped)+len(e.Added)+len(e.Removed)+len(e.Others) != 0 {
						t.Errorf("%s: %s: %+v", when, x, e)
					}
				}
			}
		}
		for _, p := range []string{set, "runs/a/1"} {
			e := r.diff(p, "runs/a")
			if e.Equal != 2 || len(e.Changed) != 1 || e.Changed[0].Name != "c" ||
				e.Changed[0].File != other || len(e.Added) != 1 || len(e.Others) != 0 {
				t.Errorf("%s: %s: %+v", when, p, e)
			}
		}
		for _, p := range []string{set, "runs/a/1"} {
			f, err := r.Inspect(t.Context(), p, control.InspectOptions{Stats: true}, nil, nil)
			if err != nil || f.Format != "safetensors-index" || len(f.Tensors) != 3 ||
				f.Tensors[2].Stats == nil || f.Tensors[2].Stats.Count != 200<<10 {
				t.Fatalf("%s: %s: %+v, %v", when, p, f, err)
			}
			if shared := f.Tensors[2].SharedWith; packed && !slices.Equal(shared, []string{file}) {
				t.Errorf("%s: %s: c is shared with %q", when, p, shared)
			}
			x, err := r.Tensor(t.Context(), p, "c", false)
			if err != nil {
				t.Fatalf("%s: %s: %v", when, p, err)
			}
			got, err := io.ReadAll(x)
			x.Close()
			if err != nil || !bytes.Equal(got, c) {
				t.Errorf("%s: %s: %d bytes, %v", when, p, len(got), err)
			}
			if found, err := r.Find(t.Context(), control.FindOptions{Path: p, Tensor: "c"}); packed &&
				(err != nil || len(found.Tensors) != 2) {
				t.Errorf("%s: %s: %+v, %v", when, p, found, err)
			}
			if o, err := r.Owner(t.Context(), p, "c"); packed && (err != nil || o.Owner.Path != "runs/a/1/2.safetensors") {
				t.Errorf("%s: %s: %+v, %v", when, p, o, err)
			}
			if _, err := r.Tensor(t.Context(), p, "z", false); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s: z: %v", when, p, err)
			}
		}
	}
	check("resident", false)
	r.sync()
	r.evictAll()
	check("packed", true)

	// Two sets in one folder keep their names apart, and one that lacks a file is no set.
	r.write("runs/a/1/ema.safetensors.index.json", []byte(`{"weight_map":{"a":"1.safetensors"}}`))
	if got := r.tensorsOf("runs/a/1"); !slices.Equal(got, []string{"ema.safetensors/a", "model.safetensors/a", "model.safetensors/b", "model.safetensors/c"}) {
		t.Errorf("%q", got)
	}
	r.unlink("runs/a/1/ema.safetensors.index.json")
	r.unlink("runs/a/1/2.safetensors")
	_, err := r.Show(t.Context(), "runs/a/1", nil)
	wantErr(t, "a set without a file", err, unix.ENOENT)
	if e := r.diff("runs/a/1", "runs/a/2"); len(e.Added) != 4 || len(e.Removed) != 2 || len(e.Others) != 1 {
		t.Errorf("%+v", e)
	}
	r.onlyRoot()
}

// A variant beside the whole is a set of its own, whatever its index is called.
func TestVariants(t *testing.T) {
	for _, index := range []string{"model.safetensors.index.fp16.json", "model.safetensors.fp16.index.json", "model.fp16.safetensors.index.json"} {
		r := newRig(t)
		r.mkdir("runs/a/1")
		var data [][]byte
		for i := range 4 {
			data = append(data, random(70<<10, uint64(i)))
		}
		r.write("runs/a/1/model-1.safetensors", weights(t, []string{"a"}, data[0]))
		r.write("runs/a/1/model-2.safetensors", weights(t, []string{"b"}, data[1]))
		r.write("runs/a/1/model.fp16-1.safetensors", weights(t, []string{"a"}, data[2]))
		r.write("runs/a/1/model.fp16-2.safetensors", weights(t, []string{"b"}, data[3]))
		r.write("runs/a/1/model.safetensors.index.json", []byte(`{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}`))
		r.write("runs/a/1/"+index, []byte(`{"weight_map":{"a":"model.fp16-1.safetensors","b":"model.fp16-2.safetensors"}}`))
		r.mkdir("runs/b/1")
		r.write("runs/b/1/model.fp16.safetensors", weights(t, []string{"a", "b"}, data[2], data[0]))
		r.sync()
		r.evictAll()
		if got := r.tensorsOf("runs/a/1/" + index); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: %q", index, got)
		}
		if got := r.tensorsOf("runs/a/1"); !slices.Equal(got, []string{"model.fp16.safetensors/a", "model.fp16.safetensors/b", "model.safetensors/a", "model.safetensors/b"}) {
			t.Errorf("%s: the folder: %q", index, got)
		}
		if got := r.cat("runs/a/1/"+index, "b"); !bytes.Equal(got, data[3]) {
			t.Errorf("%s: %d bytes of b", index, len(got))
		}
		if got := r.cat("runs/a/1", "model.fp16.safetensors/a"); !bytes.Equal(got, data[2]) {
			t.Errorf("%s: %d bytes of a by the folder", index, len(got))
		}
		if e := r.diff("runs/a/1", "runs/b/1"); e.Equal != 1 || len(e.Changed) != 1 ||
			e.Changed[0].Name != "b" || len(e.Removed) != 2 || len(e.Added)+len(e.Others) != 0 {
			t.Errorf("%s: %+v", index, e)
		}
		found, err := r.Find(t.Context(), control.FindOptions{Path: "runs/a/1/" + index, Tensor: "a"})
		if err != nil || len(found.Tensors) != 2 {
			t.Errorf("%s: %+v, %v", index, found, err)
		}
		if o, err := r.Owner(t.Context(), "runs/a/1/"+index, "a"); err != nil || o.Owner.Path != "runs/a/1/model.fp16-1.safetensors" {
			t.Errorf("%s: %+v, %v", index, o, err)
		}
		for p, want := range map[string]string{
			index: "model.safetensors.index.json", "model.fp16-2.safetensors": "model.safetensors.index.json",
			"model.safetensors.index.json": index, "model-2.safetensors": index,
		} {
			a, err := r.Match(t.Context(), control.MatchOptions{Like: "runs/a/1/" + p})
			if err != nil || a.Match == nil || a.Match.Path != "runs/a/1/"+want &&
				a.Match.Path != "runs/b/1/model.fp16.safetensors" || len(a.Match.Tensors) != 2 {
				t.Errorf("%s: like %s: %+v, %v", index, p, a, err)
			}
		}
		r.onlyRoot()
	}
}
