package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// losses are the names of the files that may have lost bytes.
func (r *rig) losses() string {
	var names []string
	r.Losses(func(f *content.File, err error, since time.Time, attempts int) {
		if !errors.Is(err, unix.EIO) || since.IsZero() || attempts == 0 {
			r.t.Errorf("%s: %v, %v, %d times", f.Path(), err, since, attempts)
		}
		names = append(names, f.Path())
	})
	return strings.Join(names, " ")
}

// A file that the disk did not take is named until it is written again from nothing, or removed: later syncs
// succeed, and say nothing.
func TestLosses(t *testing.T) {
	r := newRig(t)
	fails := true
	fsync := r.files.Fsync
	r.files.Fsync = func(fd int, data bool) error {
		if fails {
			fails = false
			return unix.EIO
		}
		return fsync(fd, data)
	}
	nothing := func() error { return nil }
	durable := func(want string) {
		t.Helper()
		if err := r.MakeDurable(nothing, nothing); err != nil {
			t.Error(err)
		}
		if got := r.losses(); got != want {
			t.Errorf("%q lost bytes, want %q", got, want)
		}
	}
	r.Start()
	r.write("a", []byte("small"))
	r.packAll()
	durable("a")
	durable("a")
	if !r.reported("may have lost bytes path a") {
		t.Error("it is not reported")
	}
	r.write("a", []byte("over it")) // the same page
	r.packAll()
	durable("a")
	again := func(name string) {
		h, err := r.file(name).Open(unix.O_WRONLY|unix.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		h.Write([]byte("again"), 0)
		h.Release()
		r.packAll()
	}
	fails = true
	again("a")
	durable("a")
	again("a")
	durable("")

	fails = true
	r.write("b", []byte("small"))
	r.packAll()
	durable("b")
	r.Forget(r.file("b"))
	durable("")

	// What is known at the end is not forgotten, though no file is kept for it.
	fails = true
	r.write("c", []byte("small"))
	r.packAll()
	durable("c")
	r.Stop()
	if more := r.Losses(func(*content.File, error, time.Time, int) {}); more != 1 {
		t.Errorf("%d lost bytes after the end", more)
	}
}

// No more files are kept than are named.
func TestManyLosses(t *testing.T) {
	r := newRig(t)
	for i := range maxLost + 5 {
		f := content.NewFile(r.files, &inode{root: r.dir, name: strings.Repeat("x", 1+i%200)})
		f.Lock()
		r.Lost(f, unix.EIO)
		f.Unlock()
	}
	named := 0
	more := r.Losses(func(*content.File, error, time.Time, int) { named++ })
	if named != maxLost || more != 5 {
		t.Errorf("%d named and %d more", named, more)
	}
}
