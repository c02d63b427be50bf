package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// onSmallDisk is a store on a disk of 16 MiB, which leave fills up to so many free bytes.
func onSmallDisk(t *testing.T) (r *rig, leave func(n int64)) {
	t.Helper()
	return onDiskOf(t, "16m", hotSize(0), func(o *Options) { o.NoDelta = true })
}

// onDiskOf is onSmallDisk for a disk of a size as mount(8) takes it.
func onDiskOf(t *testing.T, size string, set ...func(*Options)) (r *rig, leave func(n int64)) {
	t.Helper()
	disk := t.TempDir()
	onTmpfs(t, disk, size)
	if err := unix.Setxattr(disk, "user.test", []byte("x"), 0); err != nil {
		t.Skipf("tmpfs without attributes: %v", err)
	}
	r = openRig(t, filepath.Join(disk, "store"), append(set, asTheDiskIs)...)
	t.Cleanup(r.close) // before the unmount
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ballast.Close() })
	leave = func(n int64) {
		t.Helper()
		for try := 0; ; try++ {
			var st unix.Statfs_t
			var is unix.Stat_t
			if err := errors.Join(unix.Statfs(disk, &st), unix.Fstat(int(ballast.Fd()), &is)); err != nil {
				t.Fatal(err)
			}
			// What it takes: its size may be that of a try that there was no room for.
			size := max(0, is.Blocks*512+int64(st.Bavail)*st.Bsize-n)
			err := ballast.Truncate(size)
			if size > 0 && err == nil {
				err = unix.Fallocate(int(ballast.Fd()), 0, 0, size)
			}
			if err == nil {
				return
			}
			if err != unix.ENOSPC || try > 1000 { // packing took some of it meanwhile
				t.Fatal(err)
			}
		}
	}
	return r, leave
}

// A compaction leaves the last of the disk alone and works in steps where there is little more; a prune gets
// out also when nothing is left.
func TestCompactOnFullDisk(t *testing.T) {
	r, leave := onSmallDisk(t)
	const steps = 10
	step := func(i int) string { return fmt.Sprintf("%d.safetensors", 10*i) }
	for i := range steps {
		r.write(step(i), trained(t, 1, i))
		r.packOut(step(i))
	}
	same := func(r *rig, what string) {
		t.Helper()
		for i := range steps {
			if r.exists(step(i)) {
				r.same(step(i), trained(t, 1, i))
			}
		}
		if r.sound(); t.Failed() {
			t.Fatal(what)
		}
	}
	dir := r.dir
	r.close()
	r = openRig(t, dir, hotSize(0), asTheDiskIs)
	t.Cleanup(r.close)
	free := func() int64 {
		st, err := r.names.StatFS()
		if err != nil {
			t.Fatal(err)
		}
		return int64(st.Bavail) * st.Bsize
	}

	leave(100 << 10)
	_, err := r.Compact(context.Background(), control.CompactOptions{}, nil)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("with too little room: %v", err)
	}
	for _, word := range []string{r.dir, "100 KiB free", "ckptfs prune"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("with too little room: %v, without %q", err, word)
		}
	}
	if free() < 90<<10 {
		t.Errorf("%d bytes are free", free())
	}
	same(r, "too little room")

	leave(0)
	for i := range steps / 2 {
		r.unlink(step(2 * i))
	}
	before := r.segmentBytes()
	r.prune(now)
	if got := r.segmentBytes(); got > before*3/4 {
		t.Errorf("pruned on a full disk: %d bytes of %d", got, before)
	}
	same(r, "pruned")

	full := r.segmentBytes()
	leave(350 << 10)
	c := r.compact(control.CompactOptions{})
	if c.Chunks < steps/2 || r.segmentBytes() >= full {
		t.Errorf("in small steps: %+v, %d bytes of %d", c, r.segmentBytes(), full)
	}
	same(r, "compacted")
	leave(0)
	r.unlink(step(9))
	r.prune(now)
	same(r, "pruned again")
	r = r.crashed()
	same(r, "after a crash")
	r = r.withoutIndex()
	same(r, "without index")
}
