package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas/segment"
	"ckptfs/fs/tree"
)

// A segment is no file: the store opens, also to be read only, serves what lies elsewhere, and says what is
// damaged; a repair moves it aside. When it comes back all is there.
func TestSegmentIsNoFile(t *testing.T) {
	for what, bad := range map[string]func(string) error{
		"fifo":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":   func(p string) error { return os.Symlink("/etc/passwd", p) },
		"loop":   func(p string) error { return os.Symlink(filepath.Base(p), p) },
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			names := []string{"one", "two"}
			data := [][]byte{random(700<<10, 1), random(700<<10, 2)}
			for i, name := range names {
				r.write(name, data[i])
				r.packOut(name)
				r = r.reopen() // a segment of its own
			}
			path := r.at(tree.SegmentsDir, segment.Name(2))
			away := filepath.Join(t.TempDir(), "away")
			r.close()
			if err := os.Rename(path, away); err != nil {
				t.Fatal(err)
			}
			if err := bad(path); err != nil {
				t.Fatal(err)
			}
			ro := openRig(r.test, r.dir, func(o *Options) { o.ReadOnly = true })
			ro.same("one", data[0])
			ro.close()

			r = openRig(r.test, r.dir)
			<-r.surveyed
			r.same("one", data[0])
			if !r.log.has("segment cannot be read") {
				t.Errorf("%v", r.log)
			}
			c := r.check()
			if ps := about(c, ""); len(ps) != 1 || ps[0].Repair != RepairSegments ||
				!strings.Contains(ps[0].What, segment.Name(2)) {
				t.Errorf("%+v", ps)
			}
			if len(about(c, "two")) != 1 || len(about(c, "one")) != 0 {
				t.Errorf("%+v", c.Problems)
			}
			// What was lost is packed again.
			r.write("again", data[1])
			r.packOut("again")
			r.same("again", data[1])

			r, rep := r.repair(RepairSegments)
			if len(rep.Actions) != 2 || rep.Left != 0 {
				t.Errorf("%+v", rep)
			}
			if _, err := os.Lstat(r.at(tree.LostFound, segment.Name(2))); err != nil {
				t.Error(err)
			}
			r.same("one", data[0])
			r.same("again", data[1])
			r.close()
			if err := os.Rename(away, path); err != nil {
				t.Fatal(err)
			}
			r, _ = openRig(r.test, r.dir).repair(RepairIndex)
			for i, name := range names {
				r.same(name, data[i])
			}
			r.sound()
		})
	}
}

// What can be neither read nor moved stays where it is, and the repair says so.
func TestSegmentStuck(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	r := newRig(t)
	r.write("one", random(700<<10, 1))
	r.packOut("one")
	r.close()
	path := r.at(tree.SegmentsDir, segment.Name(1))
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	// A mountpoint can be neither opened as a file nor renamed.
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", path, "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	o := Options{Dir: r.dir, HotSize: -1, Log: r.log.report}
	rep, err := Repair(context.Background(), RepairSegments, o, nil)
	if uerr := unix.Unmount(path, 0); uerr != nil {
		t.Fatal(uerr)
	}
	if err != nil || rep.Left != 1 || !strings.Contains(rep.Actions[len(rep.Actions)-1].Did, "fsck") {
		t.Fatalf("%+v, %v", rep, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	r, _ = openRig(r.test, r.dir).repair(RepairIndex)
	r.same("one", random(700<<10, 1))
	r.sound()
}
