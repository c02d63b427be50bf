package names

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
)

// crowded reports whether Crowd tells.
func (r *rig) crowded() bool {
	select {
	case <-r.Crowd.Told():
		return true
	default:
		return false
	}
}

// Too many nodes are told of, once, and again when there are more. The oldest ones are named first, and those
// that stay, since they are in use, again when all others were.
func TestCrowded(t *testing.T) {
	r := newRig(t)
	r.Crowd.Bound(32)
	r.mkdir("d")
	var paths []string
	for i := range 40 {
		paths = append(paths, fmt.Sprint("d/", i))
	}
	r.write(paths...)
	r.crowded()
	told := 0
	r.KeepOpen(0)
	dir := r.find("d")
	var held []*Node
	for _, p := range paths {
		held = append(held, r.find(p))
		if r.crowded() {
			told++
		}
	}
	// Root and d are two; 33 are too many, then one more than four more each time.
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	want := func(which ...*Node) {
		t.Helper()
		var ids []content.NodeID
		for _, n := range which {
			ids = append(ids, n.ID())
		}
		slices.Reverse(ids)
		if got := r.Crowd.Oldest(); !slices.Equal(got, ids) {
			t.Errorf("%v, want %v", got, ids)
		}
	}
	// A quarter, 8, and those that are too many.
	want(append([]*Node{dir}, held[:17]...)...) // the folder came first
	held[1].Unpin()
	want(held[17:34]...)
	want(held[34:]...)
	want(append([]*Node{dir, held[0]}, held[2:17]...)...)
	for i, n := range held {
		if i != 1 {
			n.Unpin()
		}
	}
	dir.Unpin()
	n := r.find(paths[0])
	if r.crowded() {
		t.Error("two are too many")
	}
	n.Unpin()
}

// As long as memory is not short, there may be more nodes than are theirs. When it becomes short, they are
// told of.
func TestCrowdInAmpleMemory(t *testing.T) {
	r := newRig(t)
	r.Crowd.Bound(4)
	r.Crowd.Short(false)
	var held []*Node
	for i := range 8 {
		r.write(fmt.Sprint(i))
		held = append(held, r.find(fmt.Sprint(i)))
	}
	if r.crowded() {
		t.Error("told where memory is ample")
	}
	r.Crowd.Short(true)
	if !r.crowded() || len(r.Crowd.Oldest()) != 9-4+1 {
		t.Error("not told when memory became short")
	}
	for _, n := range held {
		n.Unpin()
	}
	r.Crowd.Short(false)
	r.Crowd.Short(true)
	if r.crowded() {
		t.Error("one is too many")
	}
}

// Where memory is ample there are no more nodes than the next process is left: it would not know the others,
// which programs may have open.
func TestCrowdIsHandedOn(t *testing.T) {
	r := newRig(t)
	r.Crowd.Bound(2)
	r.Crowd.Short(false)
	r.tab.mu.Lock()
	defer r.tab.mu.Unlock()
	for n, told := range map[int]bool{handover.MostNodes: false, handover.MostNodes + 1: true} {
		r.Crowd.cameLocked(n)
		if r.crowded() != told {
			t.Errorf("%d nodes: told %v", n, !told)
		}
		r.Crowd.wentLocked(1)
	}
}

// Of the files whose numbers are not asked for nothing is looked at.
func TestTourOnly(t *testing.T) {
	r := newRig(t)
	r.mkdir("a/b")
	r.write("f", "a/g", "a/b/h", "a/b/i")
	want := r.attr("a/b/h").Ino
	var met []string
	r.must("walk", r.Tour(t.Context(), Tour{Only: func(ino uint64) bool { return ino == want },
		File: func(p string, _ *Node, _ *unix.Stat_t) error {
			met = append(met, p)
			return nil
		}}))
	if !slices.Equal(met, []string{"a/b/h"}) {
		t.Errorf("%q", met)
	}
}
