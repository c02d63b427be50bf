package steps

import (
	"strings"
	"testing"
	"unsafe"
)

// Steps with files of the same names share these, and a step has no room to grow.
func TestShorten(t *testing.T) {
	s := New(Options{})
	var names []string
	for range 2 {
		st := &Step{Files: make([]File, 0, 100), Dirs: make([]uint64, 1, 100)}
		st.Files = append(st.Files, File{Rel: strings.Clone("m.safetensors"), Ino: 7})
		s.shorten(st)
		if cap(st.Files) > 2 || cap(st.Dirs) > 2 || st.Files[0] != (File{Rel: "m.safetensors", Ino: 7}) {
			t.Errorf("%+v, room for %d and %d", st, cap(st.Files), cap(st.Dirs))
		}
		names = append(names, st.Files[0].Rel)
	}
	if unsafe.StringData(names[0]) != unsafe.StringData(names[1]) {
		t.Error("the name is there twice")
	}
}
