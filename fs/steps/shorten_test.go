package steps

import (
	"strings"
	"testing"
	"unsafe"

	"ckptfs/fs/tree"
)

// Steps with files of the same names share these, and their guards, and a step has no room to grow.
func TestShorten(t *testing.T) {
	s := New(Options{})
	var all []*Step
	for i := range 3 {
		st := &Step{Dirs: make([]uint64, 1, 100), Files: FileList{of: make([]inode, 0, 100)}}
		st.guard(tree.Guard{UID: 7})
		st.Files.add(File{Rel: strings.Clone("m.safetensors"), Ino: 7})
		if i == 2 {
			st.Files.add(File{Rel: "another", Ino: 8})
		}
		s.shorten(st)
		if cap(st.Files.of) > 2 || cap(st.Files.rels) > 2 || cap(st.Dirs) > 2 ||
			st.Files.At(0) != (File{Rel: "m.safetensors", Ino: 7}) {
			t.Errorf("%+v, room for %d and %d", st, cap(st.Files.of), cap(st.Dirs))
		}
		all = append(all, st)
	}
	if &all[0].Files.rels[0] != &all[1].Files.rels[0] || &all[0].Guards[0] != &all[2].Guards[0] {
		t.Error("the same names, or the same guards, are there twice")
	}
	if unsafe.StringData(all[0].Files.rels[0]) != unsafe.StringData(all[2].Files.rels[0]) {
		t.Error("the name is there twice")
	}
}
