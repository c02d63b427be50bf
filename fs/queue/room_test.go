package queue

import (
	"context"
	"testing"
	"time"

	"ckptfs/fs/content"
)

const everything = 1 << 60 // bytes that no disk has

// While a file is packed alone no other is, also if another group ends then, which began before.
func TestAloneBesideAnEnd(t *testing.T) {
	r := newRig(t)
	for i, name := range []string{"a", "b", "c"} {
		r.write(name, random(200<<10, uint64(i)))
	}
	first, alone := r.take()
	for _, f := range first {
		r.packGroup(t.Context(), []*content.File{f}, alone)
	}
	r.o.Reserve.least = everything
	large, isAlone := r.take()
	if alone || len(large) != 1 || !isAlone {
		t.Fatalf("%v, then %d files, %v", alone, len(large), isAlone)
	}
	r.endGroup(alone)
	r.mu.Lock()
	beside := r.alone
	r.mu.Unlock()
	if !beside {
		t.Error("others are packed beside a file that needs all the room")
	}
	r.packGroup(t.Context(), large, isAlone)
	r.endGroup(isAlone)
}

// A PackAll tries a file again once there is more room than it had, though nothing was packed since.
func TestRoomGivenBack(t *testing.T) {
	r := newRig(t)
	r.o.Reserve.least = everything
	r.swept = time.Now() // the workers do not reclaim
	r.o.Reclaim = func(context.Context) (int64, error) {
		r.o.Reserve.least = 0 // as an attempt that ends now
		return 0, nil
	}
	r.Start()
	r.write("a", random(200<<10, 1))
	if err := r.PackAll(t.Context(), nil); err != nil || !r.packed("a") {
		t.Errorf("packed %v, %v", r.packed("a"), err)
	}
}
