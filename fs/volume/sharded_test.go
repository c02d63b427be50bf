package volume

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
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
		f, err := r.Show(t.Context(), index)
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
		_, err := r.Show(t.Context(), index)
		wantErr(t, what, err, c.want)
	}
	for what, text := range map[string]string{"none": "{}", "too many files": `{"weight_map":{` + strings.TrimSuffix(many(maxShards+1), ",") + `}}`} {
		r.write(index, []byte(text))
		if f, err := r.Show(t.Context(), index); err != nil || f.Format != "blob" {
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
