package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
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
	r.o.Reserve.least.Store(everything)
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
	r.o.Reserve.least.Store(everything)
	r.swept = time.Now() // the workers do not reclaim
	r.o.Reclaim = func(context.Context) (int64, error) {
		r.o.Reserve.least.Store(0) // as an attempt that ends now
		return 0, nil
	}
	r.Start()
	r.write("a", random(200<<10, 1))
	if err := r.PackAll(t.Context(), nil); err != nil || !r.packed("a") {
		t.Errorf("packed %v, %v", r.packed("a"), err)
	}
}

// A file that is packed alone has room made for it before, and gives its own back before the next is packed.
func TestAloneMakesRoom(t *testing.T) {
	for _, alone := range []bool{false, true} {
		evicted := 0
		r := newRig(t)
		r.o.Reserve.least.Store(everything)
		r.o.Evict = func(enough func() bool) {
			if evicted++; enough() {
				t.Error("there is room")
			}
			if r.o.Reserve.least.Store(0); !enough() {
				t.Error("there is no room")
			}
		}
		r.write("a", random(200<<10, 1))
		if !alone {
			r.o.Reserve.least.Store(0)
		}
		group, _ := r.take()
		r.packGroup(t.Context(), group, alone)
		f := r.file("a")
		f.Lock()
		is := f.StateLocked()
		f.Unlock()
		if !is.Packed() || is.Resident() == alone || (evicted == 1) != alone {
			t.Errorf("alone %v: packed %v, resident %v, room made %d times", alone, is.Packed(), is.Resident(), evicted)
		}
	}
}

// An attempt that fails for want of room takes back what it wrote.
func TestFailedAttemptTakesBack(t *testing.T) {
	for _, fails := range []disk.OpKind{disk.OpWrite, disk.OpSync} {
		r := newRig(t)
		r.write("a", random(3<<20, 1))
		before := r.o.Store.Stats().Bytes
		writes := 0
		r.mem.Inject(func(op disk.Op) *disk.Fault {
			if op.Kind == disk.OpWrite {
				writes++
			}
			if op.Kind == fails && writes > 4 {
				return &disk.Fault{Err: unix.ENOSPC}
			}
			return nil
		})
		group, _ := r.take()
		short := r.packGroup(t.Context(), group, false)
		r.mem.Inject(nil)
		var err error
		r.Failures(func(_ *content.File, why error, _ time.Time, _ int) { err = why })
		if !short || !errors.Is(err, unix.ENOSPC) || writes < 4 {
			t.Errorf("%v: short %v, %v, after %d writes", fails, short, err, writes)
		}
		if stay := r.o.Store.Stats().Bytes - before; stay > 4<<10 {
			t.Errorf("%v: %d bytes of the attempt stay", fails, stay)
		}
		r.Start()
		if err := r.PackAll(t.Context(), nil); err != nil || !r.packed("a") {
			t.Errorf("%v: packed %v, %v", fails, r.packed("a"), err)
		}
	}
}
