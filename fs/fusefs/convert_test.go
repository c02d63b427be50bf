package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// The one errno table. What nobody foresaw is EIO and is logged.
func TestStatus(t *testing.T) {
	logged := 0
	s := &Server{log: func(slog.Level, string, ...any) { logged++ }}
	_, notThere := os.Open("/no/such/file")
	for _, c := range []struct {
		err  error
		want fuse.Status
		log  bool
	}{
		{nil, fuse.OK, false},
		{unix.ENOENT, fuse.ENOENT, false},
		{fmt.Errorf("write stub record: %w", unix.ENOSPC), fuse.Status(unix.ENOSPC), false},
		{&fs.PathError{Op: "open", Path: "x", Err: unix.ESTALE}, fuse.Status(unix.ESTALE), false},
		{notThere, fuse.ENOENT, false},
		{errors.Join(unix.EIO, errors.New("more")), fuse.EIO, false},
		{&cas.ChunkError{Hash: cas.Sum(nil), Err: cas.ErrCorrupt}, fuse.EIO, false},
		{fmt.Errorf("x: %w", cas.ErrNotFound), fuse.EIO, false},
		{cas.ErrTooLarge, fuse.EIO, false},
		{errors.New("nobody foresaw this"), fuse.EIO, true},
	} {
		logged = 0
		if got := s.status(c.err); got != c.want || (logged > 0) != c.log {
			t.Errorf("%v: %v, logged %d", c.err, got, logged)
		}
	}
}

func TestSetAttr(t *testing.T) {
	in := &fuse.SetAttrIn{}
	if a := setAttrOf(in); *a != (tree.SetAttr{}) {
		t.Errorf("of nothing: %+v", a)
	}
	in.Valid = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_SIZE |
		fuse.FATTR_ATIME | fuse.FATTR_MTIME
	in.Mode, in.Size = 0o640, 1<<40
	in.Uid, in.Gid = 7, 8
	in.Atime, in.Atimensec, in.Mtime, in.Mtimensec = 1, 2, ^uint64(0), 999_999_999 // a second before 1970
	a := setAttrOf(in)
	if *a.Mode != 0o640 || *a.UID != 7 || *a.GID != 8 || *a.Size != 1<<40 || a.KillSUID ||
		*a.Atime != (unix.Timespec{Sec: 1, Nsec: 2}) ||
		*a.Mtime != (unix.Timespec{Sec: -1, Nsec: 999_999_999}) {
		t.Errorf("%+v", a)
	}
	in.Valid = fuse.FATTR_ATIME | fuse.FATTR_ATIME_NOW | fuse.FATTR_KILL_SUIDGID
	a = setAttrOf(in)
	if a.Atime.Nsec != unix.UTIME_NOW || a.Mtime != nil || !a.KillSUID || a.Mode != nil {
		t.Errorf("%+v", a)
	}
}

func TestFillAttr(t *testing.T) {
	a := tree.Attr{
		Ino: 1<<62 | 5, Size: 1 << 40, Blocks: 1 << 31, Mode: unix.S_IFREG | 0o644, Nlink: 3, UID: 7,
		GID: 8, Rdev: 9,
		Atime: unix.Timespec{Sec: 1, Nsec: 2}, Mtime: unix.Timespec{Sec: -3, Nsec: 4},
		Ctime: unix.Timespec{Sec: 5, Nsec: 6},
	}
	var out fuse.AttrOut
	fillAttrOut(&out, &a)
	b := out.Attr
	if b.Ino != a.Ino || b.Size != 1<<40 || b.Blocks != 1<<31 || b.Mode != a.Mode || b.Nlink != 3 ||
		b.Uid != 7 || b.Gid != 8 ||
		b.Rdev != 9 || b.Atime != 1 || b.Atimensec != 2 || int64(b.Mtime) != -3 || b.Mtimensec != 4 ||
		b.Ctime != 5 || b.Ctimensec != 6 {
		t.Errorf("%+v", b)
	}
	if out.AttrValid != 0 || out.AttrValidNsec != 0 {
		t.Error("what is not settled is kept")
	}
	a.Settled = true
	fillAttrOut(&out, &a)
	if out.AttrValid == 0 {
		t.Error("what is settled is not kept")
	}
}

func TestHandles(t *testing.T) {
	m := newMemory(t)
	h := newHandles(m.Handles())
	file, dir := &volume.Handle{}, &names.DirHandle{}
	by := &fuse.InHeader{Unique: 8}
	what := handover.Handle{Kind: handover.KindFile, Node: 3, Flags: unix.O_RDWR}
	a := h.add(file, by, what)
	b := h.add(dir, &fuse.InHeader{Unique: 10}, handover.Handle{Kind: handover.KindDir})
	if a == 0 || b == 0 || a == b {
		t.Errorf("numbers %d and %d", a, b)
	}
	if h.file(a) != file || h.dir(b) != dir || h.file(b) != nil || h.dir(a) != nil || h.file(0) != nil {
		t.Error("found under a wrong number, or as what it is not")
	}
	what.Unique = 8
	if is, ok := m.Handles().Get(a); !ok || is != what {
		t.Errorf("written down: %+v", is)
	}
	h.restore(a, 8, file) // as the next process does
	if fh, got := h.again(&fuse.InHeader{Unique: 8 | resent}); fh != a || got != file {
		t.Errorf("again: %d, %v", fh, got)
	}
	for _, unique := range []uint64{8, 10 | resent} {
		if _, got := h.again(&fuse.InHeader{Unique: unique}); got != nil {
			t.Errorf("%x was opened before", unique)
		}
	}
	if h.take(a) != file || h.file(a) != nil || h.take(a) != nil {
		t.Error("still there")
	}
	if _, ok := m.Handles().Get(a); !ok {
		t.Error("not written down any more, and not released yet")
	}
	if h.release(a); len(maps.Collect(m.Handles().All())) > 1 {
		t.Error("still written down")
	}
	if _, got := h.again(&fuse.InHeader{Unique: 8 | resent}); got != nil {
		t.Error("what was closed is opened again")
	}
	if c := h.add(file, by, what); c == a {
		t.Error("a number was used twice")
	}
}

func newMemory(t *testing.T) *handover.Memory {
	t.Helper()
	m, err := handover.New()
	if err != nil {
		t.Fatal(err)
	}
	m.BeginLife(false)
	t.Cleanup(func() { m.Close() })
	return m
}
