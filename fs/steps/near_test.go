package steps

import (
	"fmt"
	"slices"
	"testing"
)

// A change of an inode leads to the steps that have it and to no other, and the steps of inodes that lie side
// by side share what leads to them.
func TestNear(t *testing.T) {
	w, r := newWatch(), &run{steps: map[string]*Step{}}
	const all, each = 1000, 11
	of := map[uint64][]*Step{}
	for i := range uint64(all) {
		st := &Step{of: r, Name: fmt.Sprint(i), Dirs: []uint64{1000 + i*each}}
		of[st.Dirs[0]] = append(of[st.Dirs[0]], st)
		for k := range uint64(each - 1) {
			ino := 1000 + i*each + 1 + k
			if k == 5 {
				ino = 7 // in all of them, as hard links are
			}
			st.Files.add(File{Ino: ino})
			of[ino] = append(of[ino], st)
		}
		w.keep(st)
	}
	if n := len(w.steps); n > all*each/32 {
		t.Errorf("%d entries for %d inodes", n, all*each)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ino, want := range of {
		if got := w.withLocked(ino); !slices.Equal(got, want) {
			t.Fatalf("inode %d is of %d steps, want %d", ino, len(got), len(want))
		}
	}
	for _, st := range of[7] {
		w.dropLocked(st)
	}
	if len(w.steps) > 0 || len(w.withLocked(7)) > 0 {
		t.Errorf("%d entries are left", len(w.steps))
	}
}
