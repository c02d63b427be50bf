package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loses has the next sync of the filesystem fail, once, as the kernel has it, with the local copy of a file
// lost. other, which may be nil, runs before the error is known.
func (r *rig) loses(p string, other func()) {
	var syncs atomic.Int64
	r.names.SyncTree = func() error {
		if syncs.Add(1) > 1 {
			return nil
		}
		at := r.at("tree", p)
		st, err := os.Stat(at)
		if err == nil {
			err = os.WriteFile(at, make([]byte, st.Size()), 0)
		}
		if err == nil {
			err = os.Chtimes(at, time.Time{}, st.ModTime())
		}
		if err != nil {
			r.t.Error(err)
		}
		if other != nil {
			other()
		}
		return unix.EIO
	}
}

// recovered looks whether a file whose local copy was lost is read and written by its manifest.
func (r *rig) recovered(p string, data []byte) {
	r.t.Helper()
	r.want(p, packed)
	r.same(p, data)
	r.patch(p, []byte("new"), 100)
	data = slices.Clone(data)
	copy(data[100:], "new")
	r.same(p, data)
}

// badEnd closes the store, and fails unless that says that the end is not in order.
func (r *rig) badEnd() {
	r.t.Helper()
	if err := r.Close(context.Background()); err == nil {
		r.t.Error("closed in order")
	}
}

// Where there is no journal that keeps the order, a sync of the names is one of the whole filesystem. Its
// error is told once, and is treated as such.
func TestSyncWithoutJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	onTmpfs(t, dir, "40m")
	if err := unix.Setxattr(dir, "user.test", []byte("x"), 0); err != nil {
		t.Skipf("tmpfs without attributes: %v", err)
	}
	unix.Removexattr(dir, "user.test")
	r := openRig(t, dir)
	data := random(200<<10, 1)
	r.write("f", data)
	r.loses("f", nil)
	if err := r.Sync(t.Context(), nil); !errors.Is(err, unix.EIO) {
		t.Errorf("sync: %v", err)
	}
	if err := r.Sync(t.Context(), nil); err == nil {
		t.Error("the second sync knows nothing of what the first one was told")
	}
	r.recovered("f", data)
	r.badEnd()
}

// The kernel is asked by itself what it could not write, though no program syncs anything.
func TestKernelIsAskedByItself(t *testing.T) {
	r := newRig(t)
	data := random(200<<10, 1)
	r.write("f", data)
	r.pack("f")
	r.durability.stop()
	r.loses("f", nil)
	r.durability.every = time.Millisecond
	r.durability.start()
	r.eventually("the local copy is rejected", func() bool { return r.state("f") == packed })
	r.recovered("f", data)
	r.badEnd()
}

// Of two syncs of the filesystem at a time one is told of a failure. The other does not hold for durable what
// was lost.
func TestSyncsAtOnce(t *testing.T) {
	r := newRig(t)
	data := random(200<<10, 1)
	r.write("f", data)
	r.pack("f")
	failing := make(chan bool)
	r.loses("f", func() {
		close(failing)
		time.Sleep(50 * time.Millisecond)
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.durability.syncTree(); !errors.Is(err, unix.EIO) {
			t.Errorf("sync: %v", err)
		}
	})
	<-failing
	wg.Go(func() { r.durability.syncTree() })
	wg.Wait()
	r.recovered("f", data)
	r.badEnd()
}

// After the disk did not take the names of a folder no sync succeeds, though it did not call that sync.
func TestNamesNotWritten(t *testing.T) {
	r := newRig(t)
	r.names.SyncDir = func(int) error { return unix.EIO }
	d, err := r.OpenDir(r.Root())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fsync(); err != unix.EIO {
		t.Errorf("fsync: %v", err)
	}
	d.Release()
	if err := r.Sync(t.Context(), nil); !errors.Is(err, unix.EIO) {
		t.Errorf("sync: %v", err)
	}
	r.badEnd()
}

// Where the kernel may have forgotten that it could not write a file, the filesystem is asked. So it is at an
// end after which a start believes all that is there, and after an end that was not in order.
func TestFilesystemIsAsked(t *testing.T) {
	count := func(r *rig) *atomic.Int64 {
		var n atomic.Int64
		r.names.SyncTree = func() error { n.Add(1); return nil }
		return &n
	}
	r := newRig(t)
	syncs := count(r)
	h := r.open("f", unix.O_WRONLY|unix.O_CREAT)
	h.Write([]byte("one"), 0)
	r.durability.syncTree() // as once a minute
	h.Write([]byte("two"), 0)
	r.release(h)
	r.content.Miss()
	if r.sync(); syncs.Load() != 2 {
		t.Errorf("%d syncs after a sync", syncs.Load())
	}
	h = r.open("f", unix.O_WRONLY)
	r.durability.syncTree()
	h.Write([]byte("three"), 0)
	r.release(h)
	left := r.copyStore()
	if r.close(); syncs.Load() != 4 {
		t.Errorf("%d syncs after the end", syncs.Load())
	}
	r = openRig(t, left)
	syncs = count(r)
	if r.sync(); syncs.Load() != 1 {
		t.Errorf("%d syncs after the end of another process", syncs.Load())
	}
}

// A file that may have lost bytes is named by every daemon until it was written again, and by check.
func TestLostIsNamed(t *testing.T) {
	r := newRig(t)
	fails := true
	fsync := r.content.Fsync
	r.content.Fsync = func(fd int, data bool) error {
		if fails {
			return unix.EIO
		}
		return fsync(fd, data)
	}
	r.write("small", []byte("small"))
	named := func(when string, want ...string) {
		t.Helper()
		err := r.Sync(t.Context(), nil)
		s, serr := r.Status(t.Context())
		if serr != nil {
			t.Fatal(serr)
		}
		var got, found []string
		if s.Loss != nil {
			for _, f := range s.Loss.Files {
				got = append(got, f.Path)
			}
		}
		for _, p := range r.check().Problems {
			found = append(found, p.Path)
		}
		st, serr := r.Stats(t.Context())
		if serr != nil || int(st.Lost) != len(want) {
			t.Errorf("%s: %d lost, %v", when, st.Lost, serr)
		}
		slices.Sort(found)
		if !slices.Equal(got, want) || !slices.Equal(found, want) || (err != nil) != (len(want) > 0) {
			t.Errorf("%s: status names %q, check %q, sync: %v", when, got, found, err)
		}
	}
	if err := r.Sync(t.Context(), nil); err == nil {
		t.Error("synced")
	}
	fails = false
	next := func() {
		r.badEnd()
		r = openRig(t, r.dir)
		<-r.surveyed
	}
	named("at once", "small")
	next()
	named("a start later", "small")
	left := r.copyStore()
	r.badEnd()
	r = openRig(t, left)
	named("a kill later", "small")
	r.patch("small", []byte("b"), 0)
	named("written over", "small")
	next()
	r.write("small", []byte("anew"))
	named("written anew")
	r = r.reopen()
	named("then")
}

// That a file was not packed for want of room explains no failure of the disk.
func TestUnexplained(t *testing.T) {
	r := newRig(t)
	r.content.Count.PackErrs.Add(1)
	r.content.Count.RoomErrs.Add(1)
	r.names.SyncTree = func() error { return unix.EIO }
	r.durability.syncTree()
	r.names.SyncTree = func() error { return nil }
	if err := r.Sync(t.Context(), nil); err == nil {
		t.Error("the second sync knows nothing of what the first one was told")
	}
	r.badEnd()
}
