package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/idle"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// summed makes the checksums of what wants one.
func (r *rig) summed() {
	r.t.Helper()
	if err := r.sumAll(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wantSum(p string, want bool) {
	r.t.Helper()
	if rec := r.recordOf(p); rec.Summed != want {
		r.t.Errorf("%s: %+v", p, rec)
	}
}

// rots changes a byte of a file in the store and nothing else.
func rots(t *testing.T, path string, off int64) {
	t.Helper()
	flip{file: filepath.Base(path), off: off, bit: 3}.apply(t, filepath.Dir(path))
}

// plainKinds are files that are never packed.
func plainKinds(r *rig) map[string][]byte {
	r.t.Helper()
	files := map[string][]byte{"tiny": []byte("x"), "small": random(4<<10, 1)}
	for p, data := range files {
		r.write(p, data)
	}
	h := r.open("holes", unix.O_WRONLY|unix.O_CREAT)
	r.writeAt(h, []byte("behind a hole"), 300<<10)
	r.release(h)
	files["holes"] = append(make([]byte, 300<<10), "behind a hole"...)
	return files
}

// Files that are never packed get a checksum when they rest, which no program sees. A byte that changes in
// one is found.
func TestSumsOfPlainFiles(t *testing.T) {
	r := newRig(t)
	files := plainKinds(r)
	r.write("empty", nil)
	r.write("packed", random(300<<10, 2))
	r.sync()
	before := map[string]tree.Attr{}
	for p := range files {
		before[p] = r.stat(p)
	}
	r.summed()
	sound := func(r *rig) {
		t.Helper()
		c := r.check()
		if len(c.Problems) > 0 || c.Verified != int64(len(files)) || c.PlainFiles != int64(len(files))+1 {
			t.Errorf("%+v", c)
		}
		for p, data := range files {
			r.wantSum(p, true)
			r.same(p, data)
			if a := r.stat(p); a.Ctime != before[p].Ctime || a.Mtime != before[p].Mtime || !a.Settled {
				t.Errorf("%s: %+v, was %+v", p, a, before[p])
			}
			n := r.find(p)
			if k, err := r.ListXattr(n, nil, true); err != nil || k != 0 {
				t.Errorf("%s: %d bytes of attributes, %v", p, k, err)
			}
			r.forget(n)
		}
	}
	sound(r)
	r.wantSum("empty", false)
	r.wantSum("packed", false)
	sound(r.crashed())
	r = r.reopen()
	sound(r)
	for p, data := range files {
		rots(t, r.at("tree", p), int64(len(data))/2)
		c := r.check()
		if ps := about(c, p); len(ps) != 1 || len(c.Problems) != 1 ||
			!strings.Contains(ps[0].What, "checksum") || ps[0].Repair != "" {
			t.Errorf("%s: %+v", p, c.Problems)
		}
		if c, err := r.Check(context.Background(), control.CheckOptions{}, nil); err != nil ||
			len(c.Problems) > 0 {
			t.Errorf("%s, not read: %+v, %v", p, c, err)
		}
		rots(t, r.at("tree", p), int64(len(data))/2)
	}
	sound(r)
	// What was written past the mount is not damage.
	patchFile(t, r.at("tree", "small"), []byte("y"))
	if c := r.check(); len(c.Problems) > 0 {
		t.Errorf("%+v", c.Problems)
	}
	r.summed()
	if c := r.check(); len(c.Problems) > 0 || c.Verified != int64(len(files)) {
		t.Errorf("%+v", c)
	}
}

// The checksum is removed before a program may write the file, and with every change of the inode. It comes
// back when the file rests.
func TestSumGoes(t *testing.T) {
	mode, far, size := uint32(0o600), unix.Timespec{Sec: 5}, int64(10)
	onNode := func(do func(r *rig, n *names.Node) error) func(r *rig) {
		return func(r *rig) {
			n := r.find("small")
			defer r.forget(n)
			if err := do(r, n); err != nil {
				r.t.Error(err)
			}
		}
	}
	set := func(s tree.SetAttr) func(r *rig) {
		return onNode(func(r *rig, n *names.Node) error { _, err := r.Setattr(n, &s); return err })
	}
	for name, do := range map[string]func(r *rig){
		"open":     func(r *rig) { r.release(r.open("small", unix.O_WRONLY)) },
		"empty":    func(r *rig) { r.release(r.open("small", unix.O_WRONLY|unix.O_TRUNC)) },
		"truncate": set(tree.SetAttr{Size: &size}),
		"chmod":    set(tree.SetAttr{Mode: &mode}),
		"utimes":   set(tree.SetAttr{Mtime: &far}),
		"setxattr": onNode(func(r *rig,
			n *names.Node) error {
			return r.SetXattr(n, "user.a", []byte("b"), 0)
		}),
		"link":   func(r *rig) { r.link("small", "other") },
		"rename": func(r *rig) { r.rename("small", "other"); r.rename("other", "small") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("small", random(4<<10, 1))
			r.summed()
			before := r.stat("small").Ctime
			r.wantSum("small", true)
			r.release(r.open("small", unix.O_RDONLY))
			r.wantSum("small", true)
			r.eventually("the host's clock moves", func() bool {
				r.write("clock", nil)
				now := r.stat("clock").Mtime
				return now.Nano() > before.Nano()
			})
			do(r)
			r.wantSum("small", false)
			if after := r.stat("small").Ctime; after == before {
				t.Errorf("the change time stays %v", after)
			}
			want := r.read("small")
			r.summed()
			r.same("small", want)
			if c := r.check(); len(c.Problems) > 0 {
				t.Errorf("%+v", c.Problems)
			}
		})
	}
}

// Whoever writes while the checksum is made has the file without one.
func TestSumOvertaken(t *testing.T) {
	r := newRig(t)
	r.write("f", random(4<<10, 1))
	r.content.Step = func(what string) error {
		if what == "sum: read" {
			r.patch("f", []byte("new"), 0)
		}
		return nil
	}
	n := r.find("f")
	defer r.forget(n)
	if _, err := n.File().Sum(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.wantSum("f", false)
	r.content.Step = func(string) error { return nil }
	h := r.open("f", unix.O_WRONLY)
	r.summed()
	r.wantSum("f", false)
	r.release(h)
	r.summed()
	r.wantSum("f", true)
	r.sound()
}

// After a power cut, which may have kept a record and lost the bytes, or the other way round, no file is
// called damaged. A file that fits its checksum is vouched for again.
func TestSumsAfterAPowerCut(t *testing.T) {
	r := newRig(t)
	files := plainKinds(r)
	r.sync()
	r.summed()
	dir := r.copyStore()
	replace(t, filepath.Join(dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
	rots(t, filepath.Join(dir, "tree", "small"), 100)
	c := openRig(t, dir)
	if ck := c.check(); len(ck.Problems) > 0 || ck.Verified != int64(len(files))-1 {
		t.Errorf("%+v", ck)
	}
	c.summed()
	if !c.log.has("WARN", "path small") || c.log.has("path tiny") {
		t.Errorf("reported: %s", c.log)
	}
	if ck := c.check(); len(ck.Problems) > 0 || ck.Verified != int64(len(files)) {
		t.Errorf("%+v", ck)
	}
	rots(t, filepath.Join(dir, "tree", "tiny"), 0)
	if ps := about(c.check(), "tiny"); len(ps) != 1 {
		t.Errorf("%+v", ps)
	}
	// A kill alone does not make checksums doubtful, nor does a start of the host after a clean end.
	k := c.crashed()
	if ps := about(k.check(), "tiny"); len(ps) != 1 {
		t.Errorf("%+v", ps)
	}
	k.close()
	replace(t, filepath.Join(k.dir, "lock"), tree.BootID(), "00000000-0000-0000-0000-000000000000")
	k = openRig(t, k.dir)
	if ps := about(k.check(), "tiny"); len(ps) != 1 {
		t.Errorf("%+v", ps)
	}
}

// A transition of a checksum that fails, or is killed, leaves a file that is called sound.
func TestSumCutOff(t *testing.T) {
	for _, at := range []string{"sum: read", "sum: record", "unsum"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t)
			old := random(4<<10, 1)
			r.write("f", old)
			if at == "unsum" {
				r.summed()
			}
			var left string
			r.content.Step = func(what string) error {
				if what == at {
					left = r.copyStore()
					return errStop
				}
				return nil
			}
			if at == "unsum" {
				_, err := r.openFile("f", unix.O_RDWR)
				wantErr(t, "open", err, errStop)
			} else {
				wantErr(t, "sum", r.sumAll(context.Background()), errStop)
			}
			r.content.Step = func(string) error { return nil }
			for _, r := range []*rig{r, openRig(t, left)} {
				r.same("f", old)
				r.sound()
				r.patch("f", []byte("new"), 5)
				r.sound()
				r.summed()
				r.sound()
			}
		})
	}
}

// The background finds the files that rest, also more than it remembers and those of the last session, and
// nothing else is read.
func TestSumsInTheBackground(t *testing.T) {
	r := newRig(t)
	const files = idle.MaxResting + 50
	for i := range files {
		r.write(fmt.Sprint("f", i), []byte{byte(i)})
	}
	r.write("big", random(300<<10, 1))
	r = r.reopen(func(o *Options) { o.SumAfter = 10 * time.Millisecond })
	r.write("new", []byte("x"))
	r.eventually("every file has its checksum", func() bool {
		for i := files - 1; i >= 0; i-- {
			if rec, err := tree.ReadRecord(r.at("tree", fmt.Sprint("f", i))); err != nil || !rec.Summed {
				return false
			}
		}
		return true
	})
	r.sync()
	if rec := r.recordOf("big"); rec.Summed || !rec.Packed() {
		t.Errorf("%+v", rec)
	}
	r.release(r.open("new", unix.O_WRONLY))
	r.eventually("it has one again", func() bool { return r.recordOf("new").Summed })
	r.sound()
}

// sumAll makes the checksums of all files that want one, now.
func (r *rig) sumAll(ctx context.Context) error {
	<-r.surveyed
	return r.walkFiles(ctx, "", func(_ string, f *content.File) error {
		_, err := f.Sum(ctx)
		return err
	})
}
