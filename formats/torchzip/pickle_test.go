package torchzip

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
	"ckptfs/formats/zipdir"
)

// floats is the storage of the tests below: 12 floats under key 0.
var floats = storageID("FloatStorage", "0", 12)

func vector(storage string) string { return tensorV2(storage, 0, []int64{12}, []int64{1}) }

func rebuildCall(name string, args ...string) string {
	return reduce(global("torch._utils", name), tuple(args...))
}

// untypedOf is a call of _rebuild_tensor_v3 over all 48 bytes.
func untypedOf(dtype string, size, stride []int64) string {
	return rebuildCall("_rebuild_tensor_v3", storageID(untyped, "0", 48), integer(0), ints(size...),
		ints(stride...), "\x89", "}",
		global("torch", dtype))
}

// TestTensors has one value under the key t of a file with a storage of 48 bytes, "0", and an empty one, "1".
func TestTensors(t *testing.T) {
	v := vector(floats)
	for _, c := range []struct{ name, value, want string }{
		{"plain", v, "t F32 [12]"},
		{"matrix with offset", tensorV2(floats, 2, []int64{2, 5}, []int64{5, 1}), "t F32 [2 5] at 8"},
		{"transposed", tensorV2(floats, 0, []int64{3, 4}, []int64{1, 3}), "t F32 [3 4] stride [1 3]"},
		{"expanded", tensorV2(floats, 11, []int64{100, 1}, []int64{0, 1}),
			"t F32 [100 1] stride [0 1] at 44"},
		{"scalar", tensorV2(floats, 11, nil, nil), "t F32 [] at 44"},
		{"empty view", tensorV2(floats, 12, []int64{0}, []int64{1}), "t F32 [0]"},
		{"of an empty storage", tensorV2(storageID("FloatStorage", "1", 0), 0, []int64{0, 3}, []int64{3, 1}),
			"t F32 [0 3]"},
		{"old function", rebuildCall("_rebuild_tensor", floats, integer(0), ints(12), ints(1)), "t F32 [12]"},
		{"untyped", untypedOf("float8_e4m3fn", []int64{48}, []int64{1}), "t F8_E4M3 [48]"},
		{"pairs of 4 bits", untypedOf("float4_e2m1fn_x2", []int64{2, 24}, []int64{24, 1}), "t F4 [2 48]"},
		{"strided pairs of 4 bits", untypedOf("float4_e2m1fn_x2", []int64{2, 24}, []int64{1, 2}), ""},
		{"complex32", untypedOf("complex32", []int64{12}, []int64{1}), ""},
		{"dtype of another module", strings.Replace(untypedOf("uint16", []int64{24}, []int64{1}),
			"ctorch\nuint16", "cevil\nuint16", 1), ""},
		{"quantised", rebuildCall("_rebuild_qtensor", storageID("QInt8Storage", "0", 48), integer(0),
			ints(48), ints(1), ints(), "\x89", "}"), "t I8 [48]"},
		{"packed quantised", rebuildCall("_rebuild_qtensor", storageID("QUInt4x2Storage", "0", 48),
			integer(0), ints(96), ints(1), ints(), "\x89", "}"), ""},
		{"parameter", rebuildCall("_rebuild_parameter", v, "\x88", "}"), "t F32 [12]"},
		{"parameter with state", rebuildCall("_rebuild_parameter_with_state", v, "\x88", "}", "}"),
			"t F32 [12]"},
		{"subclass of a parameter", reduce(global("torch._tensor", "_rebuild_from_type_v2"),
			tuple(global("torch._utils", "_rebuild_parameter"), global("m", "P"), tuple(v, "\x88", "}"),
				"}")), "t F32 [12]"},
		{"a parameter of parameters, too deep", strings.Repeat("ctorch._utils\n_rebuild_parameter\n(", 9) +
			v + strings.Repeat("\x88}tR", 9), ""},
		{"sparse", rebuildCall("_rebuild_sparse_tensor",
			reduce(global("torch.serialization", "_get_layout"), tuple(text("torch.sparse_coo"))),
			tuple(v, v, ints(12), "\x88")), "t.indices F32 [12], t.values F32 [12]"},
		{"sparse of an unknown layout", rebuildCall("_rebuild_sparse_tensor",
			reduce(global("torch.serialization", "_get_layout"), tuple(text("torch.x"))),
			tuple(v, v)), ""},
		{"nested in containers", dict(text("a"), "]("+v+tuple(v)+"e"), "t.a.0 F32 [12], t.a.1.0 F32 [12]"},
		{"OrderedDict", reduce(global("collections", "OrderedDict"), ")") + "(" + text("a") + v + "u}" +
			text("_metadata") + "}sb", "t.a F32 [12]"},
		{"object with state", global("m", "C") + ")\x81" + dict(text("w"), v) + "b", "t.w F32 [12]"},
		{"object with slots", global("m", "C") + ")\x81" + tuple("N", dict(text("w"), v)) + "b",
			"t.w F32 [12]"},
		{"arguments of an unknown call", reduce(global("m", "f"), tuple(v)), ""},
		{"a set", "\x8f(" + v + "\x90", ""},

		{"conjugated", rebuildCall("_rebuild_tensor_v2", floats, integer(0), ints(12), ints(1), "\x89", "}",
			dict(text("conj"), "\x88")), ""},
		{"empty metadata", rebuildCall("_rebuild_tensor_v2", floats, integer(0), ints(12), ints(1), "\x89",
			"}", "}"), "t F32 [12]"},
		{"metadata of another kind", rebuildCall("_rebuild_tensor_v2", floats, integer(0), ints(12), ints(1),
			"\x89", "}", "]"), ""},
		{"one element too many", tensorV2(floats, 0, []int64{13}, []int64{1}), ""},
		{"offset too far", tensorV2(floats, 1, []int64{12}, []int64{1}), ""},
		{"offset of 2^62", tensorV2(floats, 1<<62, []int64{1}, []int64{1}), ""},
		{"negative offset", tensorV2(floats, -1, []int64{1}, []int64{1}), ""},
		{"negative size", tensorV2(floats, 0, []int64{-1}, []int64{1}), ""},
		{"negative stride", tensorV2(floats, 11, []int64{2}, []int64{-1}), ""},
		{"stride too far", tensorV2(floats, 0, []int64{2}, []int64{12}), ""},
		{"stride of 2^62", tensorV2(floats, 0, []int64{3}, []int64{1 << 62}), ""},
		{"sizes that overflow", tensorV2(floats, 0, []int64{1 << 32, 1 << 32}, []int64{0, 0}), ""},
		{"too few strides", tensorV2(floats, 0, []int64{3, 4}, []int64{1}), ""},
		{"65 dimensions", tensorV2(floats, 0, slices.Repeat([]int64{1}, 65),
			slices.Repeat([]int64{1}, 65)), ""},
		{"size as a list", rebuildCall("_rebuild_tensor_v2", floats, integer(0), "](I12\ne", ints(1), "\x89",
			"}"), ""},
		{"size of a float", rebuildCall("_rebuild_tensor_v2", floats, integer(0), tuple("F12\n"), ints(1),
			"\x89", "}"), ""},
		{"too few arguments", rebuildCall("_rebuild_tensor_v2", floats, integer(0), ints(12), ints(1)), ""},
		{"too many arguments", rebuildCall("_rebuild_tensor", floats, integer(0), ints(12), ints(1),
			"N"), ""},
		{"another module's function", reduce(global("m", "_rebuild_tensor_v2"),
			tuple(floats, integer(0), ints(12), ints(1), "\x89", "}")), ""},
		{"changed by BUILD", v + "}b", ""},
		{"changed by SETITEM", v + text("a") + "Ns", ""},
		{"meta", rebuildCall("_rebuild_meta_tensor_no_storage", global("torch", "float32"), ints(12), ints(1),
			"\x89"), ""},

		{"fewer elements than the record", vector(storageID("FloatStorage", "0", 11)), ""},
		{"more elements than the record", vector(storageID("FloatStorage", "0", 13)), ""},
		{"elements that don't fit", vector(storageID("ComplexDoubleStorage", "0", 3)) + "0" +
			vector(storageID("DoubleStorage", "0", 5)), ""},
		{"no such record", vector(storageID("FloatStorage", "2", 12)), ""},
		{"unknown class", vector(storageID("FooStorage", "0", 12)), ""},
		{"class of another module", strings.Replace(v, "ctorch\nFloatStorage", "cevil\nFloatStorage", 1), ""},
		{"meta storage", strings.Replace(v, text("cpu"), text("meta"), 1), ""},
		{"id of another kind", strings.Replace(v, text("storage"), text("Storage"), 1), ""},
		{"v3 of a typed storage", rebuildCall("_rebuild_tensor_v3", floats, integer(0), ints(12), ints(1),
			"\x89", "}", global("torch", "float32")), ""},
		{"two classes", "](" + v + vector(storageID("IntStorage", "0", 12)) + "e", ""},
		{"two lengths", "](" + v + vector(storageID("FloatStorage", "0", 6)) + "e", ""},
		{"two classes of an empty storage", "](" + tensorV2(storageID("FloatStorage", "1", 0), 0, []int64{0},
			[]int64{1}) +
			tensorV2(storageID("IntStorage", "1", 0), 0, []int64{0}, []int64{1}) + "e",
			"t.0 F32 [0], t.1 I32 [0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustParse(t, checkpoint(dict(text("t"), c.value), 48, 0))
			if got := names(l); got != c.want {
				t.Errorf("tensors %q, want %q", got, c.want)
			}
			if got := dataRegions(l); fmt.Sprint(got) != "[48]" {
				t.Errorf("data %v", got)
			}
		})
	}
}

// TestNames has the keys of dicts.
func TestNames(t *testing.T) {
	v, w := vector(floats), tensorV2(floats, 0, nil, nil)
	for _, c := range []struct{ name, value, want string }{
		{"the tensor itself", v, " F32 [12]"},
		{"the last of equal keys", dict(text("a"), v, text("b"), v, text("a"), w), "b F32 [12], a F32 []"},
		{"integers", dict(integer(7), v, integer(-7), v), "7 F32 [12], -7 F32 [12]"},
		{"an integer and its text", dict(integer(7), v, text("7"), w), "7 F32 [12], 7#2 F32 []"},
		{"True is 1", dict(integer(1), v, "\x88", w), ""},
		{"1 is True", dict("\x88", v, integer(1), w), "1 F32 []"},
		{"1.0 is 1", dict(integer(1), v, "F1\n", w), ""},
		{"other keys", dict("N", v, "F1.5\n", v, ")", v, "B\x01\x00\x00\x00a", v), ""},
		{"a key with escapes makes the others doubtful", dict(text("a"), v, "V\\u0061\n", w), ""},
		{"not UTF-8", dict(text("\xff"), v, text("a"), v), "a F32 [12]"},
		{"a dot in a key", dict(text("a"), dict(text("b"), v), text("a.b"), w), "a.b#2 F32 [12], a.b F32 []"},
		{"a taken number", dict(text("a"), dict(text("b"), v), text("a.b"), w, text("a.b#2"), w),
			"a.b#3 F32 [12], a.b F32 [], a.b#2 F32 []"},
		{"one object, two names", dict(text("a"), v+"q\x07", text("b"), "h\x07"), "a F32 [12], b F32 [12]"},
		{"one dict, two names", dict(text("a"), dict(text("x"), v)+"q\x07", text("b"), "h\x07"),
			"a.x F32 [12], b.x F32 [12]"},
		{"a cycle", dict(text("a"), "]q\x07(h\x07"+v+"e"), "a.1 F32 [12]"},
		{"a name of 4095 bytes", dict(text(strings.Repeat("n", maxName-1)), v),
			strings.Repeat("n", maxName-1) + " F32 [12]"},
		{"a name of 4096 bytes", dict(text(strings.Repeat("n", maxName)), v), ""},
		{"400 lists deep", strings.Repeat("](", maxDepth) + v + strings.Repeat("e", maxDepth),
			strings.Repeat("0.", maxDepth-1) + "0 F32 [12]"},
		{"401 lists deep", strings.Repeat("](", maxDepth+1) + v + strings.Repeat("e", maxDepth+1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustParse(t, checkpoint(c.value, 48))
			if got := names(l); got != c.want {
				t.Errorf("tensors %q, want %q", got, c.want)
			}
		})
	}
}

// TestPickleNotUnderstood has files whose regions stand though their pickle says nothing.
func TestPickleNotUnderstood(t *testing.T) {
	sound := dict(text("a"), vector(floats))
	doubled := "]q\x00(" + vector(floats) + "e"
	for range 100 { // each list has the one before twice: 2^100 paths
		doubled += "q\x000](h\x00h\x00e"
	}
	for name, p := range map[string][]byte{
		"none":            nil,
		"no pickle":       []byte("hello"),
		"cut off":         file(sound)[:40],
		"bytes after it":  append(file(sound), 'x'),
		"unknown opcode":  file("\x00" + sound),
		"2^100 paths":     file(doubled),
		"endless":         bytes.Repeat([]byte("N"), 1<<20),
		"nothing":         file("N"),
		"only a class":    file(global("os", "system")),
		"only a bad call": file(reduce(global("os", "system"), tuple(text("true")))),
	} {
		t.Run(name, func(t *testing.T) {
			z := checkpoint("N", 48)
			z.records[0].data = p
			start := time.Now()
			l := mustParse(t, z)
			if got := names(l); got != "" || fmt.Sprint(dataRegions(l)) != "[48]" {
				t.Errorf("tensors %q, data %v", got, dataRegions(l))
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		z := checkpoint("N", 48)
		z.records[0].zero = maxPickle
		if l := mustParse(t, z); len(l.Tensors) != 0 || fmt.Sprint(dataRegions(l)) != "[48]" {
			t.Errorf("tensors %q, data %v", names(l), dataRegions(l))
		}
	})
}

func BenchmarkParse100kTensors(b *testing.B) {
	const n = 100_000
	var pairs []string
	for i := range n {
		pairs = append(pairs, text(fmt.Sprintf("model.layers.%d.weight", i)),
			tensorV2(storageID("FloatStorage", fmt.Sprint(i), 1), 0, []int64{1}, []int64{1}))
	}
	f := checkpoint(dict(pairs...), slices.Repeat([]int64{4}, n)...).build()
	r := bytes.NewReader(f.bytes())
	b.ReportAllocs()
	for b.Loop() {
		if l, err := (Parser{}).Parse(r, f.size); err != nil || len(l.Tensors) != n {
			b.Fatal(err)
		}
	}
}

// bound is what a file may take.
var bound = fixture.Bound{Fixed: 4 << 20, PerByte: 500}

// FuzzParse checks that what is accepted covers the file.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("../testdata/torch/*")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, path := range paths {
		p, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if len(p) < 5000 && !strings.HasSuffix(path, ".json") {
			f.Add(p)
		}
	}
	f.Add(simple().build().bytes())
	f.Fuzz(func(t *testing.T, p []byte) { fixture.Check(t, Parser{}, p, bound) })
}

// FuzzPickle puts a pickle into a sound zip: the container's checks let no mutation of it through otherwise.
func FuzzPickle(f *testing.F) {
	paths, err := filepath.Glob("../testdata/torch/*.pt")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, path := range paths {
		p, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		r := bytes.NewReader(p)
		records, err := zipdir.Read(r, r.Size())
		if err != nil {
			continue // another format
		}
		if a, err := newArchive(records); err == nil {
			f.Add(p[a.pickle.Off : a.pickle.Off+a.pickle.Len])
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		z := checkpoint("N", 48, 0, 4, 64)
		z.records[0].data = p
		seen := make(map[string]bool)
		var l *formats.Layout
		fixture.Within(t, bound, len(p), func() { l = mustParse(t, z) })
		for _, x := range l.Tensors {
			if seen[x.Name] {
				t.Fatalf("name %q twice", x.Name)
			}
			seen[x.Name] = true
		}
		if fmt.Sprint(dataRegions(l)) != "[48 4 64]" {
			t.Fatalf("data %v", dataRegions(l))
		}
	})
}
