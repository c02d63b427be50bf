package volume

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
)

// doubts are how it comes that bytes may be missing, and no file can be named.
var doubts = map[string]func(r *rig){
	"the filesystem": func(r *rig) {
		r.names.SyncTree = func() error { return unix.EIO }
		if err := r.durability.syncTree(); !errors.Is(err, unix.EIO) {
			r.t.Errorf("sync: %v", err)
		}
		r.names.SyncTree = func() error { return nil }
	},
	"names": func(r *rig) {
		r.names.SyncDir = func(int) error { return unix.EIO }
		d, err := r.OpenDir(r.Root())
		if err != nil {
			r.t.Fatal(err)
		}
		if err := d.Fsync(); err != unix.EIO {
			r.t.Errorf("fsync: %v", err)
		}
		d.Release()
		r.names.SyncDir = unix.Fsync
	},
}

// That bytes may be missing which no file tells of is said for as long as the mount is there, whichever
// process serves it, and its end is not in order.
func TestDoubtOutlivesTheDaemon(t *testing.T) {
	took := func(o *Options) { o.Resume = func(*Volume) error { return nil } }
	for name, doubt := range doubts {
		for _, next := range []func(*Options){took, func(*Options) {}} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				r.write("f", random(200<<10, 1))
				r.sync()
				doubt(r)
				for range 2 {
					last := r
					r = last.crashed(next)
					last.badEnd()
					<-r.surveyed
					err := r.Sync(t.Context(), nil)
					if err == nil || !strings.Contains(err.Error(), "may be wrong") {
						t.Errorf("sync: %v", err)
					}
					if s, err := r.Status(t.Context()); err != nil || s.Loss == nil || s.Loss.Other == "" {
						t.Errorf("status: %+v, %v", s.Loss, err)
					}
				}
				r.same("f", random(200<<10, 1))
				r.badEnd()
				r = openRig(t, r.dir)
				if r.lock.Before.Clean {
					t.Error("closed in order")
				}
				<-r.surveyed
				r.sync()
				r.same("f", random(200<<10, 1))
				if err := r.Close(context.Background()); err != nil {
					t.Errorf("the end of the next mount: %v", err)
				}
			})
		}
	}
}

// What is read by the kernel when a mount is taken over stays where it is, whatever is in doubt.
func TestDoubtUnderReader(t *testing.T) {
	old := newRig(t)
	data := random(200<<10, 1)
	old.write("f", data)
	old.sync()
	doubts["names"](old)
	old.want("f", both)
	var h *Handle
	r := old.crashed(func(o *Options) {
		o.Resume = func(v *Volume) error {
			k := &rig{t: t, test: t, Volume: v, Requests: v.Requests()}
			n := k.find("f")
			defer k.forget(n)
			var err error
			h, err = v.Reopen(n, unix.O_RDONLY, content.Passthrough, 1)
			return err
		}
	})
	old.badEnd()
	<-r.surveyed
	r.want("f", both)
	h.Release()
	r.same("f", data)
	r.badEnd()
}

// A daemon that is killed after the kernel has told it of a failure, and before it has found out what that
// means, leaves the doubt. One that found out that a file tells of it leaves none.
func TestKilledWhenTold(t *testing.T) {
	r := newRig(t)
	r.write("f", random(200<<10, 1))
	r.sync()
	report, left := r.report, ""
	r.report = func(level slog.Level, msg string, args ...any) {
		if left == "" && strings.Contains(msg, "did not take all that was written;") {
			left = r.copyStore()
		}
		report(level, msg, args...)
	}
	fsync := r.content.Fsync
	r.content.Fsync = func(fd int, data bool) error { return unix.EIO }
	r.names.SyncTree = func() error { return unix.EIO }
	r.write("small", []byte("small"))
	r.durability.syncTree()
	r.content.Fsync = fsync
	r.names.SyncTree = func() error { return nil }
	next := openRig(t, left, func(o *Options) { o.Resume = func(*Volume) error { return nil } })
	if s, err := next.Status(t.Context()); err != nil || s.Loss == nil || s.Loss.Other == "" {
		t.Errorf("killed when it was told: %+v, %v", s.Loss, err)
	}
	next.badEnd()
	next = r.crashed(func(o *Options) { o.Resume = func(*Volume) error { return nil } })
	<-next.surveyed
	if s, err := next.Status(t.Context()); err != nil || s.Loss == nil || s.Loss.Other != "" ||
		len(s.Loss.Files) != 1 {
		t.Errorf("a file is named: %+v, %v", s.Loss, err)
	}
	next.badEnd()
	r.badEnd()
}

// The first sync of a daemon that takes a mount over asks by the descriptor of the lock, which was open all
// the time: it is told of what the kernel has told others meanwhile.
func TestFirstSyncOfTheNext(t *testing.T) {
	r := newRig(t)
	r.write("f", random(200<<10, 1))
	asked := 0
	next := r.crashed(func(o *Options) {
		o.Resume = func(v *Volume) error {
			ask := func() error {
				asked++
				return unix.EIO
			}
			v.durability.ofBefore.Store(&ask)
			return nil
		}
	})
	<-next.surveyed
	if err := next.Sync(t.Context(), nil); !errors.Is(err, unix.EIO) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if next.Sync(t.Context(), nil) == nil || asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	next.badEnd()
}

// A local copy that was rejected is not believed by the next process, though the record could not say so.
func TestRejectedIsNotBelieved(t *testing.T) {
	r := newRig(t)
	data := random(200<<10, 1)
	r.write("f", data)
	r.pack("f")
	r.content.Step = func(what string) error {
		if what == "distrust: record" {
			return unix.EIO
		}
		return nil
	}
	r.loses("f", nil)
	if err := r.durability.syncTree(); err == nil {
		t.Fatal("synced")
	}
	left := r.copyStore()
	r.badEnd()
	next := openRig(t, left, func(o *Options) { o.Resume = func(*Volume) error { return nil } })
	next.same("f", data)
	next.badEnd()

	// also when it was the sync of a file that found out
	r = newRig(t)
	r.write("f", data)
	r.pack("f")
	at := r.at("tree", "f")
	r.content.Step = func(what string) error {
		if what == "distrust: record" {
			return unix.EIO
		}
		return nil
	}
	fsync := r.content.Fsync
	r.content.Fsync = func(int, bool) error { return unix.EIO }
	n := r.find("f")
	if err := n.File().Sync(); err != unix.EIO {
		t.Errorf("sync: %v", err)
	}
	r.forget(n)
	r.content.Fsync = fsync
	st, err := os.Stat(at)
	if err == nil {
		err = os.WriteFile(at, make([]byte, len(data)), 0)
	}
	if err = errors.Join(err, os.Chtimes(at, time.Time{}, st.ModTime())); err != nil {
		t.Fatal(err)
	}
	next = r.crashed(func(o *Options) { o.Resume = func(*Volume) error { return nil } })
	next.same("f", data)
	next.badEnd()
	r.Close(t.Context())
}

// A process that cannot open the store takes no doubt away.
func TestDoubtStaysWhenOpenFails(t *testing.T) {
	r := newRig(t)
	doubts["names"](r)
	left := r.copyStore()
	r.badEnd()
	tree := filepath.Join(left, "tree")
	if err := os.Rename(tree, tree+".away"); err != nil {
		t.Fatal(err)
	}
	if v, err := Open(Options{Dir: left}); err == nil {
		v.Close(t.Context())
		t.Fatal("opened")
	}
	if err := os.Rename(tree+".away", tree); err != nil {
		t.Fatal(err)
	}
	r = openRig(t, left)
	if r.Sync(t.Context(), nil) == nil {
		t.Error("nothing is in doubt")
	}
	r.badEnd()
}
