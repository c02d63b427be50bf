package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place/placetest"
	"ckptfs/formats/npy"
	"ckptfs/fs/volume"
)

// TestTensorsUnmounted: show --stats and cat-tensor open the store themselves.
func TestTensorsUnmounted(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	v, err := volume.Open(volume.Options{Dir: store, Create: true, HotSize: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile("../../formats/testdata/numpy/several.npz")
	if err != nil {
		t.Fatal(err)
	}
	file := store + "/tree/a:b.npz"
	placetest.MakeFile(t, file, string(src))
	code, out, errs := command(t, "show", "--stats", "--artifact", file)
	if code != exit.OK || !strings.Contains(out, "mi2:b") || !strings.Contains(out, "MEAN") || errs != "" {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, args := range [][]string{{file, "b"}, {file + ":b"}} {
		code, out, errs := command(t, append([]string{"cat-tensor"}, args...)...)
		if code != exit.OK || len(out) != 24 || errs != "" {
			t.Errorf("%v: exit %d, %d bytes\n%s", args, code, len(out), errs)
		}
	}
	code, out, errs = command(t, "cat-tensor", "--npy", file, "b")
	if l, err := (npy.Parser{}).Parse(bytes.NewReader([]byte(out)), int64(len(out))); code != exit.OK ||
		err != nil || len(l.Tensors) != 1 {
		t.Errorf("exit %d, %v\n%s", code, err, errs)
	}
	for want, args := range map[string][]string{
		"no tensor called":   {file, "nope"},
		"after the file a":   {file[:len(file)-8]},
		"nothing: no such f": {store + "/tree/nothing:x"},
		"no such file or di": {store + "/tree/nothing", "x"},
	} {
		code, _, errs := command(t, append([]string{"cat-tensor"}, args...)...)
		if code == exit.OK || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %q, want %q", args, code, errs, want)
		}
	}
}
