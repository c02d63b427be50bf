package detect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
)

var update = flag.Bool("update", false, "write the expected layouts again")

const testdata = "../testdata"

// fixtures returns the files of the real libraries, by their path below testdata.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	dirs, err := os.ReadDir(testdata)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() || d.Name() == "__pycache__" {
			continue
		}
		dir := d.Name()
		entries, err := os.ReadDir(filepath.Join(testdata, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() { // orbax: tested where they are parsed
				continue
			}
			if strings.HasSuffix(e.Name(), ".layout.json") || strings.HasSuffix(e.Name(), ".tree.txt") {
				continue
			}
			p, err := os.ReadFile(filepath.Join(testdata, dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[dir+"/"+e.Name()] = p
		}
	}
	return files
}

// TestFixtures compares the layout of each fixture with its golden.
func TestFixtures(t *testing.T) {
	for name, file := range fixtures(t) {
		if !strings.HasPrefix(name, "torch/") && !strings.HasPrefix(name, "safetensors/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l, err := Detect(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Check(int64(len(file))); err != nil {
				t.Fatal(err)
			}
			want := "torch-zip"
			switch {
			case strings.HasSuffix(name, ".safetensors"):
				want = "safetensors"
			case strings.Contains(name, "legacy"):
				want = "torch-legacy"
			case strings.HasSuffix(name, ".distcp"):
				want = "distcp"
			case strings.Contains(name, "script"):
				want = "torchscript"
			case strings.HasSuffix(name, ".pt2"):
				want = "pt2"
			}
			if l.Format != want {
				t.Errorf("format %q, want %q", l.Format, want)
			}
			if !Sniff(file[:min(len(file), SniffLen)], int64(len(file))) && want != "blob" {
				t.Errorf("Sniff says no")
			}
			golden := filepath.Join(testdata, name+".layout.json")
			got := render(l)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			expected, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, expected) {
				t.Errorf("layout differs from %s:\n%s", golden, got)
			}
		})
	}
}

// TestLayouts compares the layouts of the fixtures that have no golden of their own with layouts.txt, a line
// for each.
func TestLayouts(t *testing.T) {
	var b strings.Builder
	files := fixtures(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "torch/") || strings.HasPrefix(name, "safetensors/") {
			continue
		}
		file := files[name]
		l, err := Detect(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Format != "blob" && !Sniff(file[:min(len(file), SniffLen)], int64(len(file))) {
			t.Errorf("%s: Sniff says no", name)
		}
		fmt.Fprintf(&b, "%s: %s", name, l.Format)
		if l.Partial {
			b.WriteString(" (partial)")
		}
		for i, r := range l.Regions {
			if i == 12 {
				fmt.Fprintf(&b, " … %d regions", len(l.Regions))
				break
			}
			fmt.Fprintf(&b, " %s %d", r.Kind, r.Len)
		}
		fmt.Fprintf(&b, "; %d tensors\n", len(l.Tensors))
	}
	golden := filepath.Join(testdata, "layouts.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	expected := strings.Split(string(want), "\n")
	for i := range max(len(got), len(expected)) {
		if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
			t.Fatalf("line %d of %s differs (-update if that is meant); have:\n%s", i+1, golden, b.String())
		}
	}
}

// render writes a layout as JSON, one region or tensor a line.
func render(l *formats.Layout) []byte {
	var b bytes.Buffer
	line := func(last bool, v any) {
		p, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "  %s%s\n", p, map[bool]string{false: ","}[last])
	}
	fmt.Fprintf(&b, "{\n \"format\": %q,\n \"partial\": %t,\n \"regions\": [\n", l.Format, l.Partial)
	for i, r := range l.Regions {
		line(i == len(l.Regions)-1, map[string]any{"off": r.Off, "len": r.Len, "kind": r.Kind.String()})
	}
	b.WriteString(" ],\n \"tensors\": [\n")
	for i := range l.Tensors {
		x := &l.Tensors[i]
		line(i == len(l.Tensors)-1, struct {
			Name   string        `json:"name"`
			DType  formats.DType `json:"dtype"`
			Shape  []int64       `json:"shape"`
			Stride []int64       `json:"stride"`
			Region int           `json:"region"`
			Offset int64         `json:"offset"`
		}{x.Name, x.DType, x.Shape, x.Stride, x.Region, x.Offset})
	}
	b.WriteString(" ]\n}\n")
	return b.Bytes()
}

// TestTruth reads every tensor through the layout and compares it with what the library that wrote it says.
func TestTruth(t *testing.T) {
	type tensor struct {
		DType  formats.DType
		Shape  []int64
		SHA256 string
	}
	truth := make(map[string]map[string]tensor)
	paths, err := filepath.Glob(filepath.Join(testdata, "truth*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no truth: %v", err)
	}
	for _, path := range paths {
		p, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(p, &truth); err != nil {
			t.Fatal(err)
		}
	}
	files := fixtures(t)
	for name, want := range truth {
		t.Run(name, func(t *testing.T) {
			file := files[name]
			l, err := Detect(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]bool)
			for i := range l.Tensors {
				x := &l.Tensors[i]
				w, ok := want[x.Name]
				if !ok || got[x.Name] {
					t.Errorf("tensor %q: not in the file, or twice", x.Name)
					continue
				}
				got[x.Name] = true
				if x.DType != w.DType || fmt.Sprint(x.Shape) != fmt.Sprint(w.Shape) {
					t.Errorf("tensor %q: %s %v, want %s %v", x.Name, x.DType, x.Shape, w.DType, w.Shape)
				}
				if sum := sha256.Sum256(gather(file, l, x)); hex.EncodeToString(sum[:]) != w.SHA256 {
					t.Errorf("tensor %q: other bytes", x.Name)
				}
			}
			for n := range want {
				if !got[n] {
					t.Errorf("tensor %q: not found", n)
				}
			}
		})
	}
}

// gather returns a tensor's elements in row-major order.
func gather(file []byte, l *formats.Layout, x *formats.Tensor) []byte {
	if x.Region < 0 {
		return nil
	}
	r := l.Regions[x.Region]
	data := file[r.Off+x.Offset : r.Off+r.Len]
	if x.Stride == nil {
		return data[:x.NumBytes()]
	}
	width := int64(x.DType.Bits() / 8)
	var out []byte
	var walk func(dim int, at int64)
	walk = func(dim int, at int64) {
		if dim == len(x.Shape) {
			out = append(out, data[at*width:(at+1)*width]...)
			return
		}
		for i := range x.Shape[dim] {
			walk(dim+1, at+i*x.Stride[dim])
		}
	}
	walk(0, 0)
	return out
}
