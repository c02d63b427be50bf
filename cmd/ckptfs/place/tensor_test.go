package place

import (
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cmd/ckptfs/place/placetest"
)

func TestTensor(t *testing.T) {
	dir := t.TempDir()
	placetest.MakeFile(t, filepath.Join(dir, "a:b.pt"), "")
	placetest.MakeFile(t, filepath.Join(dir, "x"), "")
	if err := os.Mkdir(filepath.Join(dir, "set"), 0o755); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string][2]string{
		"x:layer.weight": {"x", "layer.weight"},
		"a:b.pt:w:0":     {"a:b.pt", "w:0"},
		"set:w:0":        {"set", "w:0"},
		"set/x:y":        {"set/x", "y"},
		"gone:w:0":       {"gone", "w:0"},
	} {
		file, tensor, err := Tensor(filepath.Join(dir, arg))
		if err != nil || file != filepath.Join(dir, want[0]) || tensor != want[1] {
			t.Errorf("%s: %s, %s, %v", arg, file, tensor, err)
		}
	}
	for _, bad := range []string{"", "x", ":w", "x:"} {
		if file, tensor, err := Tensor(bad); err == nil {
			t.Errorf("%s: %s, %s", bad, file, tensor)
		}
	}
}
