package volume

import (
	"context"
	"strconv"
	"testing"
	"time"

	"ckptfs/fs/control"
)

// A store whose disk fills up is pruned by nobody: what is past its grace first, and all when it is nearly
// full; not again before something was removed, and not all the time.
func TestFillingDiskIsPruned(t *testing.T) {
	const size = int64(100 << 30)
	free, clock := size/2, time.Now()
	r := newRig(t, func(o *Options) {
		o.Disk = func() (int64, int64, error) { return size, free, nil }
		o.Now = func() time.Time { return clock }
	})
	ctx := context.Background()
	// dead makes something that no file needs, in a segment that is sealed or not.
	n := uint64(0)
	dead := func(sealed bool) {
		t.Helper()
		n++
		r.write("f", random(1<<20, n))
		r.sync()
		if sealed {
			r.prune(now)
		}
		r.unlink("f")
	}
	// looks fails unless a look at the disk frees about so many MiB, or does nothing.
	looks := func(what string, mib int64) {
		t.Helper()
		before := r.passes.Last.Prune.Load()
		segments := r.segmentBytes()
		r.keeper.Look(ctx)
		last, freed := r.passes.Last.Prune.Load(), segments-r.segmentBytes()
		ran := last != before
		if ran != (mib >= 0) || ran && (!last.ByItself || last.FreedBytes > freed+64<<10) ||
			freed>>19 != max(0, 2*mib) && freed>>19 != 2*mib+1 {
			t.Errorf("%s: %d bytes freed, %+v", what, freed, last)
		}
	}
	const nothing = -1
	dead(true)
	looks("with room", nothing)
	free = size / 20
	looks("it is younger than the grace", 0)
	clock = clock.Add(control.DefaultGrace + time.Minute)
	looks("it is past the grace", 1)
	if st, err := r.Status(ctx); err != nil || st.LastPrune == nil || !st.LastPrune.ByItself ||
		st.LastPrune.FreedBytes < 1<<19 || st.FreeBytes != free || st.DiskBytes != size {
		t.Errorf("%+v, %v", st.Upkeep, err)
	}
	if !r.log.has("the disk fills up: the store was pruned", "freed") {
		t.Error("the log does not say so")
	}
	clock = clock.Add(2 * time.Hour)
	looks("nothing was removed", nothing)
	dead(true)
	clock = clock.Add(control.DefaultGrace + time.Minute)
	looks("something was", 1)
	dead(true)
	looks("too soon", nothing)
	free = size / 60
	looks("it is nearly full", 1)
	dead(false)
	looks("too soon again", nothing)
	clock = clock.Add(11 * time.Minute)
	looks("and again", 1)
}

// What is past its grace comes back on a disk that has a tenth free, so that nobody finds it full.
func TestPastGraceComesBack(t *testing.T) {
	clock := time.Now()
	r, leave := onDiskOf(t, "64m", hotSize(0), func(o *Options) { o.Now = func() time.Time { return clock } })
	const n = 4 << 20
	for i := range uint64(8) {
		r.write(strconv.Itoa(int(i)), random(n, i))
		r.sync()
	}
	r.evictAll()
	r.prune(now) // seals them
	for i := range 7 {
		r.unlink(strconv.Itoa(i))
	}
	clock = clock.Add(control.DefaultGrace + time.Minute)
	leave(5 << 20)
	before := r.segmentBytes()
	r.keeper.Look(context.Background())
	if freed := before - r.segmentBytes(); freed < 6*n {
		t.Fatalf("%d bytes came back\n%s", freed, r.log)
	}
	for i := range uint64(4) {
		r.write("new"+strconv.Itoa(int(i)), random(n, 10+i))
	}
	r.sync()
	r.same("7", random(n, 7))
	r.same("new3", random(n, 13))
	r.sound()
}
