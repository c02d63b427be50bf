package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// fixtures returns the files that the safetensors library wrote.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../testdata/safetensors/*.safetensors")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestRewrite writes each fixture's tensors again.
func TestRewrite(t *testing.T) {
	for path, p := range fixtures(t) {
		l, err := parse(p)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		rewrite(t, p, l)
	}
}

// TestLibraryBytes compares AppendHeader with the library where both sort alike: names in order within one
// type.
func TestLibraryBytes(t *testing.T) {
	p, err := os.ReadFile("../testdata/safetensors/flat.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	l, err := parse(p)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for _, x := range l.Tensors {
		entries = append(entries, Entry{x.Name, x.DType, x.Shape})
	}
	got, err := AppendHeader(nil, entries, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	if want := p[:l.Regions[0].Len]; !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
