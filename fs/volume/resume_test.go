package volume

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// A process that takes a mount over has the files open that the kernel has open: what is being written is not
// packed until its last close, and what is read goes on where it was.
func TestResume(t *testing.T) {
	old := newRig(t)
	old.write("p", random(3<<20, 1))
	old.packOut("p")
	old.write("left", random(1<<20, 2)) // closed, and not packed when the process ends
	w := old.open("w", unix.O_WRONLY|unix.O_CREAT)
	old.writeAt(w, random(1<<20, 3), 0)
	defer old.release(w)

	var pass, served, read *Handle
	r := old.crashed(func(o *Options) {
		o.Resume = func(v *Volume) error {
			k := &rig{t: t, test: t, Volume: v, Requests: v.Requests()}
			n := k.find("w")
			defer k.forget(n)
			var err error
			flags := uint32(unix.O_WRONLY | unix.O_TRUNC | unix.O_CREAT)
			if served, err = v.Reopen(n, flags, content.Direct, 0); err != nil {
				return err
			}
			if pass, err = v.Reopen(n, unix.O_RDONLY, content.Direct, 0); err != nil {
				return err
			}
			p := k.find("p")
			defer k.forget(p)
			read, err = v.Reopen(p, unix.O_RDONLY, content.Cached, 0)
			return err
		}
	})
	<-r.surveyed
	r.sync()
	r.want("w", resident)
	if got, err := r.readHandle(read); err != nil || !bytes.Equal(got, random(3<<20, 1)) {
		t.Errorf("read on: %d bytes, %v", len(got), err)
	}
	read.Release()
	r.writeAt(served, random(1<<20, 4), 1<<20)
	r.release(served)
	pass.Release()
	r.pack("w")
	r.pack("left")
	r.evictAll()
	r.same("w", append(random(1<<20, 3), random(1<<20, 4)...))
	r.same("left", random(1<<20, 2))
	if n := r.content.Count.Handles.Load(); n != 0 {
		t.Errorf("%d handles are left", n)
	}
}

// A process that cannot take a mount over leaves the store's lock to the next one, and the store as it was
// left by the one before.
func TestResumeFails(t *testing.T) {
	for _, start := range []bool{false, true} {
		old := newRig(t)
		old.write("p", random(3<<20, 1))
		left := old.copyStore()
		folder, err := tree.OpenStore(left, false)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		l, err := tree.Acquire(folder, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := unix.FcntlInt(uintptr(l.Fd()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		held := os.NewFile(uintptr(kept), tree.LockFile)
		given, err := unix.FcntlInt(uintptr(kept), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil || l.Abandon() != nil {
			t.Fatal(err)
		}
		resume := func(*Volume) error { return nil }
		if !start {
			resume = func(*Volume) error { return unix.EMFILE }
		}
		v, err := Open(Options{Dir: left,
			Inherited: Inherited{Lock: os.NewFile(uintptr(given), tree.LockFile), Resume: resume}})
		if !start && !errors.Is(err, unix.EMFILE) || start && err != nil {
			t.Fatal(err)
		}
		if start {
			v.Abandon()
		}
		if _, err := tree.Acquire(folder, time.Now()); !errors.As(err, new(*tree.LockedError)) {
			t.Errorf("the store is free: %v", err)
		}
		next, err := tree.Inherit(folder, time.Now(), held)
		if err != nil {
			t.Fatal(err)
		}
		if next.Before.Clean {
			t.Errorf("%+v", next.Before)
		}
		next.Release(false)
	}
}
