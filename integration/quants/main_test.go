// Package quants tests what models take that are stored in many precisions: safetensors and GGUF in half
// precision, GGUF quantised by ggml's own code, FP8, and what bitsandbytes and compressed-tensors make.
// Whatever a store makes of them, each file reads back as it was saved: whether the base came first or last,
// after the base is gone, and from the segments alone.
package quants

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ckptfs/integration/mounttest"
)

// work is a folder for what the tests of this package share.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "ckptfs-quants-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rc := mounttest.Main(m)
	os.RemoveAll(work)
	os.Exit(rc)
}

// file is one that programs/quants.py writes; its docstring says more.
type file struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"`
	Importance bool   `json:"importance"`
	Fused      bool   `json:"fused"`
	Seven      bool   `json:"seven"`

	size int64
	sum  string
}

func (f file) String() string {
	s := f.Kind
	if f.Importance {
		s += ", importance matrix"
	}
	if f.Fused {
		s += ", fused"
	}
	return s
}

// model is a folder of files, the base first.
type model struct {
	dir   string
	files []file
}

var llama struct {
	once sync.Once
	*model
}

// tiny is the small Llama, made once.
func tiny(t *testing.T) *model {
	t.Helper()
	needQuantisers(t)
	llama.once.Do(func() { llama.model = makeModel(t, filepath.Join(work, "llama")) })
	if llama.model == nil {
		t.Fatal("the model could not be made: see the first test that asked for it")
	}
	return llama.model
}

// needQuantisers skips the test where scripts/setup-ggml built none.
func needQuantisers(t *testing.T) {
	t.Helper()
	mounttest.NeedFUSE(t)
	found, err := filepath.Glob(filepath.Join(cache(t), "tools", "ggml-*", "libggml.so"))
	if err != nil || found == nil {
		mounttest.Missing(t, "no quantisers of llama.cpp here: scripts/setup-ggml builds them")
	}
}

// cache is where scripts/setup and what it calls put things.
func cache(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "ckptfs")
}

// makeModel runs programs/quants.py.
func makeModel(t *testing.T, dir string, flags ...string) *model {
	t.Helper()
	out := mounttest.RunPython(t, "quants.py", append([]string{dir}, flags...)...)
	m := &model{dir: dir}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var f file
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("quants.py said %q: %v", line, err)
		}
		f.size, f.sum = digest(t, filepath.Join(dir, f.Path))
		m.files = append(m.files, f)
	}
	return m
}

// digest is a file's size and its SHA-256.
func digest(t *testing.T, path string) (int64, string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		t.Fatal(err)
	}
	return n, hex.EncodeToString(h.Sum(nil))
}
