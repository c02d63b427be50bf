package volume

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

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
		r.buried() // the disk is short, and files may be looked at to be evicted
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

// What a program removed while another had it open comes back once that one closed it.
func TestRemovedWhileOpenComesBack(t *testing.T) {
	const size = int64(100 << 30)
	clock := time.Now()
	r := newRig(t, func(o *Options) {
		o.Disk = func() (int64, int64, error) { return size, size / 60, nil }
		o.Now = func() time.Time { return clock }
	})
	r.write("f", random(1<<20, 1))
	r.sync()
	h := r.open("f", unix.O_RDONLY)
	r.unlink("f")
	look := func() (freed int64) {
		t.Helper()
		before := r.segmentBytes()
		clock = clock.Add(time.Hour)
		r.keeper.Look(context.Background())
		return before - r.segmentBytes()
	}
	if freed := look(); freed > 1<<19 {
		t.Errorf("%d bytes of an open file were freed", freed)
	}
	r.release(h)
	r.buried()
	if freed := look(); freed < 1<<19 {
		t.Errorf("%d bytes came back", freed)
	}
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

// A sync for which there is no room has the store pruned before it gives up, also while another prune is
// under way that gives back nothing. Where none gives room it names the store, and says that and what to do.
func TestSyncPrunesForRoom(t *testing.T) {
	r, leave := onDiskOf(t, "64m", hotSize(0))
	const n = 4 << 20
	fill := func(from uint64) {
		t.Helper()
		for i := from; i < from+4; i++ {
			r.write(strconv.FormatUint(i, 10), random(n, i))
		}
		r.sync()
		r.evictAll()
	}
	fill(0)
	free := func() {
		t.Helper()
		for i := range 3 {
			r.unlink(strconv.Itoa(i))
		}
		leave(n + 2<<20)
	}
	free()
	r.write("new", random(n, 10))
	r.sync()
	r.same("new", random(n, 10))

	leave(32 << 20)
	fill(0)
	free()
	begun, goOn := make(chan struct{}), make(chan struct{})
	ctx := context.Background()
	var dry errgroup.Group
	dry.Go(func() error {
		_, err := r.Prune(ctx, control.PruneOptions{DryRun: true}, func(p control.Progress) {
			if p.Current != "" {
				close(begun)
				<-goOn
			}
		})
		return err
	})
	<-begun
	leave(1 << 20)
	r.keeper.Look(ctx)
	leave(n + 2<<20)
	r.write("new2", random(n, 11))
	err := r.Sync(ctx, func(p control.Progress) {
		if strings.HasPrefix(p.Phase, "pruning") {
			close(goOn)
		}
	})
	if err != nil {
		t.Fatalf("beside a prune: %v", err)
	}
	if err := dry.Wait(); err != nil {
		t.Error(err)
	}
	r.same("new2", random(n, 11))
	r.evictAll()

	leave(n + 1<<20)
	r.write("new3", random(n, 12))
	err = r.Sync(ctx, nil)
	for _, words := range []string{"new3", r.dir, "the store was pruned", "free at least", "`ckptfs sync`"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, without %q", err, words)
		}
	}
	r.same("new3", random(n, 12))
	r.unlink("new2")
	leave(1 << 20)
	r.keeper.Look(ctx) // it need not wait, for the prune that it met before was another's
	if st, err := r.Status(ctx); err != nil || st.LastPrune == nil || st.LastPrune.FreedBytes < n*99/100 {
		t.Errorf("%+v, %v", st.LastPrune, err)
	}
	r.sync()
	r.sound()
}

// Who prunes waits for a prune that is under way, and says so; unless that takes too long.
func TestPrunesOneByOne(t *testing.T) {
	r := newRig(t)
	r.write("f", random(1<<20, 1))
	r.sync()
	r.unlink("f")
	r.buried()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var first errgroup.Group
	first.Go(func() error {
		_, err := r.Prune(t.Context(), control.PruneOptions{DryRun: true}, func(p control.Progress) {
			if p.Current != "" {
				close(begun)
				<-goOn
			}
		})
		return err
	})
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	_, err := r.Prune(ctx, now, func(p control.Progress) {
		if strings.HasPrefix(p.Phase, "waiting") {
			cancel()
		}
	})
	wantErr(t, "a prune that waits too long", err, unix.EBUSY)
	before := r.segmentBytes()
	_, err = r.Prune(t.Context(), now, func(p control.Progress) {
		if strings.HasPrefix(p.Phase, "waiting") {
			close(goOn)
		}
	})
	if freed := before - r.segmentBytes(); err != nil || freed < 1<<19 {
		t.Errorf("%d bytes are given back, %v", freed, err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
}
