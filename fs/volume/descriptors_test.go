package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// fewDescriptors runs the test in a process of its own that may have so many descriptors: this one has many
// from other tests. It reports whether this is that process.
func fewDescriptors(t *testing.T, n uint64) bool {
	t.Helper()
	const sign = "CKPTFS_TEST_FEW_DESCRIPTORS"
	if os.Getenv(sign) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), sign+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return false
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	lim.Cur = n
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	return true
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// TestFewDescriptors: what the daemon keeps open of closed files and of folders is a quarter of what it may
// have, at most.
func TestFewDescriptors(t *testing.T) {
	const limit = 256
	if !fewDescriptors(t, limit) {
		return
	}
	r := newRig(t)
	before := openDescriptors(t)
	for i := range 600 {
		dir := fmt.Sprint("d", i%60)
		if i < 60 {
			r.mkdir(dir)
		}
		r.write(fmt.Sprint(dir, "/", i), random(1000, uint64(i)))
	}
	if n := openDescriptors(t) - before; n > limit/4+8 {
		t.Errorf("%d descriptors are kept", n)
	}
	r.sync()
	r.same("d7/7", random(1000, 7))
}

// TestNoDescriptors: when programs have all descriptors, they get EMFILE, no name is left of a file that
// could not be opened, and the daemon has some for itself. What it keeps goes first.
func TestNoDescriptors(t *testing.T) {
	const limit = 256
	if !fewDescriptors(t, limit) {
		return
	}
	r := newRig(t)
	for i := range 100 {
		r.write(fmt.Sprint("closed", i), random(1000, uint64(i)))
	}
	var handles []*Handle
	var err error
	for i := 0; err == nil; i++ {
		var h *Handle
		p := fmt.Sprint("open", i)
		if h, err = r.openFile(p, unix.O_RDWR|unix.O_CREAT); err == nil {
			handles = append(handles, h)
		}
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, want EMFILE", err)
	}
	if n := len(handles); n < limit-limit/8-64 {
		t.Errorf("programs have %d files open of %d", n, limit)
	}
	name := r.at("tree", fmt.Sprint("open", len(handles)))
	if err := unix.Access(name, unix.F_OK); !errors.Is(err, unix.ENOENT) {
		t.Error("there is the name of a file that could not be opened")
	}
	if !r.content.Missed() {
		t.Error("it is not known that inodes of unsynced files were let go of")
	}
	var own []*os.File
	for range 8 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, f)
	}
	if _, err := r.Status(context.Background()); err != nil {
		t.Error(err)
	}
	for _, f := range own {
		f.Close()
	}
	for _, h := range handles {
		r.release(h)
	}
	r.sync()
	r.same("closed7", random(1000, 7))
}
