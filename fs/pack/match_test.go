package pack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// tensorsOf are tensors of one region each, by NAME or NAME:LENGTH.
func tensorsOf(names ...string) (ts []formats.Tensor) {
	for i, s := range names {
		n := int64(100)
		name, length, ok := strings.Cut(s, ":")
		if ok {
			fmt.Sscan(length, &n)
		}
		ts = append(ts, formats.Tensor{Name: name, DType: "F32", Shape: []int64{n}, Region: i})
	}
	return ts
}

func TestSeek(t *testing.T) {
	for name, c := range map[string]struct {
		there, here string
		want        []string // for each way that here is found, names there
	}{
		"equal":             {"a.w b.w", "b.w a.w c.w", []string{"b.w a.w -"}},
		"wrapped":           {"a.w b.w", "model.a.w model.b.w", []string{"a.w b.w"}},
		"unwrapped":         {"state_dict.a.w state_dict.b.w", "a.w b.w", []string{"state_dict.a.w state_dict.b.w"}},
		"other prefix":      {"net.a.w net.b.w", "x.y.a.w x.y.b.w", []string{"net.a.w net.b.w"}},
		"parallel":          {"a.w module.b", "module.a.w b", []string{"a.w module.b"}},
		"inside":            {"l.0.a.w l.1.a.w", "l.0._orig_mod.a.w module.l.1._orig_mod.a.w", []string{"l.0.a.w l.1.a.w"}},
		"adapters":          {"model.l.0.q.weight", "base_model.model.model.l.0.q.base_layer.weight", []string{"model.l.0.q.weight"}},
		"one part":          {"w", "model.w", []string{"w"}},
		"one part of two":   {"a.weight", "b.weight", nil},
		"other layer":       {"layers.0.q.w layers.0.k.w", "layers.1.q.w layers.1.k.w", nil},
		"other list":        {"layers.0.q.w layers.1.q.w", "enc.layers.1.q.w enc.layers.2.q.w", []string{"layers.1.q.w -"}},
		"a list around it":  {"q.w k.w", "0.q.w 0.k.w", []string{"q.w k.w"}},
		"other shape":       {"a.w b.w:3", "model.a.w model.b.w", []string{"a.w -"}},
		"twice there":       {"model.a.w ema.a.w", "a.w", []string{"ema.a.w", "model.a.w"}},
		"twice here":        {"a.w b.w", "model.a.w model.b.w ema.a.w", []string{"a.w b.w -", "- - a.w"}},
		"some by own name":  {"model.a.w model.b.w", "model.a.w ema.a.w ema.b.w", []string{"model.a.w - -", "- model.a.w model.b.w"}},
		"equal names twice": {"a.w a.w", "a.w", []string{"a.w"}},
		"slashes":           {"a/w b/w", "m/a/w m/b/w", []string{"a/w b/w"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &manifest.Manifest{Tensors: tensorsOf(strings.Fields(c.there)...)}
			here := tensorsOf(strings.Fields(c.here)...)
			var got []string
			for k, f := range Seek(here).In(m) {
				var names []string
				var bytes int64
				for i, at := range f.At {
					if at < 0 {
						names = append(names, "-")
						continue
					}
					names = append(names, m.Tensors[at].Name)
					bytes += here[i].NumBytes()
				}
				if bytes != f.Bytes || f.Renamed == (k == 0 && here[0].Name == m.Tensors[0].Name) &&
					name != "equal" {
					t.Errorf("%+v", f)
				}
				got = append(got, strings.Join(names, " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestPlainName(t *testing.T) {
	for name, want := range map[string]string{
		"module.a.w": "a.w", "module.module.a": "a", "a.module": "a.module", "modules.a": "modules.a",
		"my_module.a":            "my_module.a",
		"a._orig_mod.b.module.c": "a.b.c", "a/_orig_mod/b": "a/b", "": "", "module": "module",
	} {
		if got := plainName(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// Names are chosen by users: what they cost is bounded.
func TestSeekHostileNames(t *testing.T) {
	var same, long []string
	for i := range 20_000 {
		same = append(same, fmt.Sprintf("%d.a.weight", i))
		long = append(long, fmt.Sprintf("%d.weight", i))
	}
	for _, names := range [][]string{same, long, {strings.Repeat("module.", 1<<17)},
		{strings.Repeat(".", 1<<20)}} {
		m := &manifest.Manifest{Tensors: tensorsOf(names...)}
		for i := range names {
			names[i] = "x" + names[i]
		}
		Seek(tensorsOf(names...)).In(m)
		Signs(m.Tensors)
	}
}

// The signs of a file are among those of the same one with more before its names, in another type, and of a
// part of it.
func TestSigns(t *testing.T) {
	whole := Signs(tensorsOf("l.0.a.w", "l.0.b.w", "l.1.a.w", "h"))
	wrapped := tensorsOf("module.model.l.0.a.w", "module.model.l.0.b.w", "module.model.l.1.a.w", "module.model.h")
	wrapped[0].DType = "BF16"
	for _, s := range Signs(tensorsOf("l.0.a.w", "l.0.b.w")) {
		if _, ok := slices.BinarySearch(whole, s); !ok {
			t.Error("a part has others")
		}
	}
	missing := 0
	for _, s := range whole {
		if _, ok := slices.BinarySearch(Signs(wrapped), s); !ok {
			missing++
		}
	}
	if missing != 1 || !slices.IsSorted(whole) { // h alone ends nothing
		t.Errorf("%d of %d are missing", missing, len(whole))
	}
	for _, s := range Signs(tensorsOf("l.0.a.w:7")) {
		if _, ok := slices.BinarySearch(whole, s); ok {
			t.Error("other shapes have the same")
		}
	}
}
