package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

var ggufTypes = []string{"f32", "f16", "bf16"}

// needConverter skips the test where scripts/setup-ggml has put no converter.
func needConverter(t *testing.T) {
	t.Helper()
	mounttest.NeedFUSE(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "ckptfs/tools/converter-*/convert_hf_to_gguf.py"))
	if err != nil || found == nil {
		mounttest.Missing(t, "no converter of llama.cpp here: scripts/setup-ggml puts it there")
	}
}

// written is where the converter writes to.
func written(to, typ, folder string) string {
	return filepath.Join(to, typ+"-"+strings.ReplaceAll(folder, "/", "-"))
}

// convert runs llama.cpp's converter on folders below dir, in all types, and returns what it wrote by the
// path below .ckptfs/make/gguf. What it fails on is missing.
func convert(t *testing.T, dir string, folders ...string) map[string][]byte {
	t.Helper()
	to := t.TempDir()
	args := []string{"convert"}
	for _, f := range folders {
		for _, typ := range ggufTypes {
			args = append(args, filepath.Join(dir, f), typ, written(to, typ, f))
		}
	}
	said := mounttest.RunPython(t, "converted.py", args...)
	failed := 0
	for line := range strings.Lines(said) {
		var x struct{ Folder, Failed string }
		if json.Unmarshal([]byte(line), &x) == nil && x.Failed != "" {
			failed++
			t.Logf("the converter fails on %s: %s", filepath.Base(x.Folder), x.Failed)
		}
	}
	out := map[string][]byte{}
	for _, f := range folders {
		for _, typ := range ggufTypes {
			p, err := os.ReadFile(written(to, typ, f))
			if err == nil {
				out[typ+"/"+f+".gguf"] = p
			}
		}
	}
	if len(out)+failed != len(folders)*len(ggufTypes) {
		t.Fatalf("%d files and %d failures of %d:\n%s", len(out), failed, len(folders)*len(ggufTypes), said)
	}
	return out
}

// fewModels are those that are converted unless CKPTFS_CLIENTS=all asks for all: the converter takes a
// second for each file, and much longer for vocabularies of 130,000 tokens.
var fewModels = []string{"llama", "tied", "mistral", "codellama", "qwen3", "mixtral", "resaved", "older",
	"distilled"}

// TestMakeGGUF: files below .ckptfs/make/gguf have the bytes that llama.cpp's converter writes, read and
// mapped, whatever became of their sources, and take no space.
func TestMakeGGUF(t *testing.T) {
	t.Parallel()
	needConverter(t)
	m := mounttest.New(t)
	args := []string{"models", m.Path("runs")}
	if os.Getenv("CKPTFS_CLIENTS") != "all" {
		args = append(args, fewModels...)
	}
	mounttest.RunPython(t, "converted.py", args...)
	m.Sync()
	var folders []string
	for _, name := range m.Names("runs") {
		folders = append(folders, "runs/"+name)
	}
	want := convert(t, m.Path(), folders...)
	m.Sync()
	before := m.Taken()
	states := 0
	everyState(t, m, func() {
		states++
		for p, file := range want {
			if states > 1 && (strings.Contains(p, "qwen") || strings.Contains(p, "distilled")) {
				continue // a large vocabulary, as llama3 has one
			}
			p = m.Path(".ckptfs/make/gguf", p)
			got, err := os.ReadFile(p)
			if err != nil {
				why, _ := os.ReadFile(p + ".why")
				t.Fatalf("%v: %s", err, why)
			}
			if !bytes.Equal(got, file) {
				t.Errorf("%s has other bytes than the converter's", p)
			}
			if got := mapped(t, p); !bytes.Equal(got, file) {
				t.Errorf("%s has other bytes where it is mapped", p)
			}
		}
	})
	for _, typ := range ggufTypes {
		names := m.Names(".ckptfs/make/gguf/" + typ + "/runs")
		for p := range want {
			if name := filepath.Base(p); strings.HasPrefix(p, typ+"/") && !slices.Contains(names, name) {
				t.Errorf("%s is not listed: %v", name, names)
			}
		}
	}
	if now := m.Taken(); now > before+1<<20 {
		t.Errorf("the store grew from %d to %d bytes", before, now)
	}
}

// mapped is a file as a mapping has it.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(p)
	return bytes.Clone(p)
}
