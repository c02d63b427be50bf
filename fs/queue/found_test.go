package queue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/order"
)

// finds has a file that was found unpacked.
func (r *rig) finds(name string, data []byte, mtime int64) {
	r.t.Helper()
	f := r.file(name)
	if err := os.WriteFile(r.known[name].at(), data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		r.t.Fatal(err)
	}
	f.SetDirtyLocked()
	r.Found(f, mtime)
}

// arrange puts what was found in order.
func (r *rig) arrange() {
	r.Settle()
	r.Queue.mu.Lock()
	defer r.Queue.mu.Unlock()
	if r.found.isDue() {
		arrangeLocked(r.Queue)
	}
}

// weights is a file of one tensor.
func weights(t *testing.T, typ formats.DType) []byte {
	t.Helper()
	n := int64(order.LeastModel / 2)
	p, err := safetensors.AppendHeader(nil, []safetensors.Entry{
		{Name: "a.w", DType: typ, Shape: []int64{n}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(p, random(int(n)*typ.Bits()/8, 1)...)
}

func (r *rig) wantGroups(want ...[]string) {
	r.t.Helper()
	if got := r.groups(); !slices.EqualFunc(got, want, slices.Equal) {
		r.t.Errorf("%q, want %q", got, want)
	}
}

// What is found waits until all of it is found, and comes in order then, sources first; what programs close
// meanwhile does not wait for it. A file is passed over until those of its family that are ahead of it are in
// the store.
func TestFound(t *testing.T) {
	r := newRig(t)
	r.finds("half", weights(t, formats.F16), 1)
	r.finds("old", random(64<<10, 2), 2)
	r.write("closed", random(64<<10, 3))
	r.finds("single", weights(t, formats.F32), 4)
	r.finds("older", random(64<<10, 5), 0)
	if w := WaitingIn(r.Queue); w.Queued.Files != 5 || len(r.Pending()) != 5 {
		t.Errorf("%+v", w)
	}
	for f := range r.Pending() { // twice: each call pins them
		f.Unpin()
		f.Unpin()
	}
	r.wantGroups([]string{"closed"})
	r.arrange()
	r.write("new", random(64<<10, 6))
	r.wantGroups([]string{"older", "single", "old"}, []string{"new"})
	r.stored(r.file("old"))
	r.wantGroups()
	r.stored(r.file("single"))
	r.wantGroups([]string{"half"})
	for f := range r.packing {
		r.finish(f, 0)
	}
	if len(r.found.family) > 0 || len(r.found.files) > 0 {
		t.Errorf("%v and %v are left", r.found.family, r.found.files)
	}
}

// A source that cannot be packed now keeps nothing waiting.
func TestFoundSourceFails(t *testing.T) {
	r := newRig(t)
	r.finds("half", weights(t, formats.F16), 1)
	r.finds("single", weights(t, formats.F32), 2)
	r.arrange()
	r.wantGroups([]string{"single"})
	r.putOff(r.file("single"), errNoFile)
	r.wantGroups([]string{"half"})
	r.finish(r.file("half"), 0)
}

// Files that were found may be removed at any time, and a queue may stop with some.
func TestFoundForgotten(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.finds(fmt.Sprint(i), weights(t, []formats.DType{formats.F16, formats.F32}[i%2]), int64(i))
	}
	r.remove("0", 0)
	r.arrange()
	r.remove("1", 0)
	r.remove("2", 0)
	r.wantGroups([]string{"3"})
	r.remove("3", 0)
	r.nothing()
	if len(r.found.family) > 0 || len(r.found.files) > 0 {
		t.Errorf("%v and %v are left", r.found.family, r.found.files)
	}
	r.finds("4", random(64<<10, 4), 4)
	r.Settle() // newRig's cleanup looks for pins
}

// All workers pack, and what is found later is put in order by one of them; a sync waits for all of it.
func TestFoundAgain(t *testing.T) {
	r := newRig(t)
	r.Start()
	for round := range 20 {
		name := func(i int) string { return fmt.Sprintf("%d-%d", round, i) }
		for i := range 4 {
			r.finds(name(i), weights(t, []formats.DType{formats.F16, formats.F32}[i%2]), int64(i))
		}
		if round%2 == 0 {
			r.remove(name(1), 0)
		}
		r.Settle()
		if err := r.PackAll(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if !r.packed(name(i)) && (round%2 != 0 || i != 1) {
				t.Errorf("%s is not packed", name(i))
			}
		}
	}
}

// A queue that stops while files are put in order lets go of them.
func TestFoundStops(t *testing.T) {
	r := newRig(t)
	for i := range 50 {
		r.finds(fmt.Sprint(i), weights(t, formats.F16), int64(i))
	}
	r.Start()
	r.Settle()
}

// When so many are found they are put in order without those to come.
func TestFoundMany(t *testing.T) {
	r := newRig(t)
	r.found.most = 3
	r.finds("a", random(64<<10, 1), 3)
	r.finds("b", random(64<<10, 2), 2)
	r.wantGroups()
	r.finds("c", random(64<<10, 3), 1)
	group, _ := r.take()
	if len(group) != 2 || group[0] != r.file("c") || group[1] != r.file("b") {
		t.Errorf("%v", group)
	}
	r.finds("d", random(64<<10, 4), 0)
	r.wantGroups([]string{"a"})
	r.arrange()
	r.wantGroups([]string{"d"})
	for f := range r.packing {
		r.finish(f, 0)
	}
}
