package outlive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"
)

// The kinds of requests, of linux/fuse.h.
const (
	opLookup      = 1
	opGetattr     = 3
	opSetattr     = 4
	opSymlink     = 6
	opMknod       = 8
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opLink        = 13
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opRelease     = 18
	opFsync       = 20
	opSetxattr    = 21
	opGetxattr    = 22
	opRemovexattr = 24
	opFlush       = 25
	opOpendir     = 27
	opReaddir     = 28
	opCreate      = 35
	opFallocate   = 43
	opReaddirplus = 44
	opRename2     = 45
	opLseek       = 46
	opCopy        = 47
	opTmpfile     = 51
)

// faults is a mount whose daemon can be killed at a place in a request.
type faults struct {
	*mounttest.Mount
	file string // says where
	n    int    // of the case
}

// faultCase is a request, and what there must be after it.
type faultCase struct {
	what string
	op   int
	// prepare makes what there is before. do makes the request, once. check looks at what came of it.
	prepare, check func(f *faults) error
	do             func(f *faults) error
	plain          bool // it may be done twice: nothing is written of it
	made           bool // there is a place behind what it makes
	did            bool // there is a place behind what it does
	served         bool // only a mount without passthrough has it
}

func (f *faults) at(name string) string { return f.Path(fmt.Sprint("case", f.n), name) }

// view is the view of a checkpoint in a run of this case.
func (f *faults) view() string { return f.Path("runs/view", fmt.Sprint(f.n), "model.safetensors") }

// checkpoint writes a checkpoint that has a view, which is there once the kernel has told that nobody has the
// checkpoint open.
func (f *faults) checkpoint() error {
	dir := filepath.Dir(f.view())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "model.npz"), npz(1, 100_000), 0o644); err != nil {
		return err
	}
	return daemon.Until("the view to be listed", func() bool {
		all, err := os.ReadDir(dir)
		return err == nil && len(all) == 2
	})
}

// rename is renameat2(2).
func rename(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}

func (f *faults) put(name, data string) error { return os.WriteFile(f.at(name), []byte(data), 0o644) }

// is reports an error unless a file has these bytes.
func (f *faults) is(name, data string) error {
	got, err := os.ReadFile(f.at(name))
	if err == nil && string(got) != data {
		err = fmt.Errorf("%s has %q, not %q", name, got, data)
	}
	return err
}

func (f *faults) gone(name string) error {
	if _, err := os.Lstat(f.at(name)); !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s is there, or: %v", name, err)
	}
	return nil
}

func (f *faults) kind(name string, mode uint32, links int) error {
	var st unix.Stat_t
	if err := unix.Lstat(f.at(name), &st); err != nil {
		return err
	}
	if st.Mode != mode || int(st.Nlink) != links {
		return fmt.Errorf("%s: mode %o, %d links, not %o, %d", name, st.Mode, st.Nlink, mode, links)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func nothing(*faults) error { return nil }

// faultCases are all kinds of requests.
func faultCases() []faultCase {
	var fd, fd2 int // of the case that runs
	big := strings.Repeat("0123456789abcdef", 8192)
	open := func(f *faults, name string, flags int) (err error) {
		fd, err = unix.Open(f.at(name), flags|unix.O_CLOEXEC, 0o640)
		return err
	}
	ghost := func(data string) error { // fd is of a removed file
		defer unix.Close(fd)
		var st unix.Stat_t
		got := make([]byte, len(data)+1)
		n, err := unix.Pread(fd, got, 0)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && (string(got[:max(n, 0)]) != data || st.Nlink != 0) {
			err = fmt.Errorf("a removed file has %q, and %d links", got[:n], st.Nlink)
		}
		return err
	}
	create := func(flags int) func(f *faults) error {
		return func(f *faults) error {
			if err := open(f, "x", unix.O_CREAT|unix.O_RDWR|flags); err != nil {
				return err
			}
			_, err := unix.Pwrite(fd, []byte("new"), 0)
			return first(err, unix.Close(fd))
		}
	}
	return []faultCase{
		{what: "mkdir", op: opMkdir, prepare: nothing,
			do:    func(f *faults) error { return unix.Mkdir(f.at("d"), 0o1750) },
			check: func(f *faults) error { return f.kind("d", unix.S_IFDIR|0o1750, 2) }},
		{what: "mknod, a fifo", op: opMknod, prepare: nothing,
			do:    func(f *faults) error { return unix.Mknod(f.at("p"), unix.S_IFIFO|0o604, 0) },
			check: func(f *faults) error { return f.kind("p", unix.S_IFIFO|0o604, 1) }},
		{what: "mknod, a file", op: opMknod, prepare: nothing,
			do:    func(f *faults) error { return unix.Mknod(f.at("p"), unix.S_IFREG|0o604, 0) },
			check: func(f *faults) error { return first(f.kind("p", unix.S_IFREG|0o604, 1), f.is("p", "")) }},
		{what: "symlink", op: opSymlink, prepare: nothing,
			do: func(f *faults) error { return unix.Symlink("to", f.at("l")) },
			check: func(f *faults) error {
				to, err := os.Readlink(f.at("l"))
				if err == nil && to != "to" {
					err = errors.New(to)
				}
				return err
			}},
		{what: "link", op: opLink, prepare: func(f *faults) error { return f.put("a", "a") },
			do: func(f *faults) error { return unix.Link(f.at("a"), f.at("b")) },
			check: func(f *faults) error {
				return first(f.is("b", "a"), f.kind("a", unix.S_IFREG|0o644, 2))
			}},
		{what: "create, O_EXCL", op: opCreate, made: true, prepare: nothing, do: create(unix.O_EXCL),
			check: func(f *faults) error {
				return first(f.is("x", "new"), f.kind("x", unix.S_IFREG|0o640, 1))
			}},
		{what: "create", op: opCreate, made: true, prepare: nothing, do: create(0),
			check: func(f *faults) error { return f.is("x", "new") }},
		{what: "create, O_TRUNC", op: opCreate, made: true, prepare: nothing, do: create(unix.O_TRUNC),
			check: func(f *faults) error { return f.is("x", "new") }},
		{what: "create over a view", op: opCreate, made: true,
			prepare: (*faults).checkpoint,
			do: func(f *faults) error {
				x, err := os.OpenFile(f.view(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err != nil {
					return err
				}
				_, err = x.WriteString("mine")
				return first(err, x.Close())
			},
			check: func(f *faults) error {
				got, err := os.ReadFile(f.view())
				if err == nil && string(got) != "mine" {
					err = fmt.Errorf("%d bytes", len(got))
				}
				return err
			}},
		{what: "link over a view", op: opLink,
			prepare: func(f *faults) error { return first(f.checkpoint(), f.put("a", "a")) },
			do: func(f *faults) error {
				return unix.Link(f.at("a"), f.view())
			},
			check: func(f *faults) error {
				got, err := os.ReadFile(f.view())
				if err == nil && string(got) != "a" {
					err = fmt.Errorf("%d bytes", len(got))
				}
				return first(err, f.kind("a", unix.S_IFREG|0o644, 2))
			}},
		{what: "unlink of a view", op: opUnlink,
			prepare: func(f *faults) error {
				if err := f.checkpoint(); err != nil {
					return err
				}
				_, err := os.ReadFile(f.view())
				return err
			},
			do: func(f *faults) error {
				return unix.Unlink(f.view())
			},
			check: func(f *faults) error {
				if _, err := os.Stat(f.view()); !os.IsNotExist(err) {
					return fmt.Errorf("the view: %v", err)
				}
				return nil
			}},
		{what: "unlink", op: opUnlink, prepare: func(f *faults) error { return f.put("a", "a") },
			do:    func(f *faults) error { return unix.Unlink(f.at("a")) },
			check: func(f *faults) error { return f.gone("a") }},
		{what: "unlink of one of two names", op: opUnlink,
			prepare: func(f *faults) error { return first(f.put("a", "a"), unix.Link(f.at("a"), f.at("b"))) },
			do:      func(f *faults) error { return unix.Unlink(f.at("a")) },
			check: func(f *faults) error {
				return first(f.gone("a"), f.is("b", "a"), f.kind("b", unix.S_IFREG|0o644, 1))
			}},
		{what: "unlink of an open file", op: opUnlink,
			prepare: func(f *faults) error { return first(f.put("a", "a"), open(f, "a", unix.O_RDWR)) },
			do:      func(f *faults) error { return unix.Unlink(f.at("a")) },
			check:   func(f *faults) error { return first(f.gone("a"), ghost("a")) }},
		{what: "rmdir", op: opRmdir, prepare: func(f *faults) error { return unix.Mkdir(f.at("d"), 0o755) },
			do:    func(f *faults) error { return unix.Rmdir(f.at("d")) },
			check: func(f *faults) error { return f.gone("d") }},
		{what: "rmdir of a held directory", op: opRmdir,
			prepare: func(f *faults) error {
				return first(unix.Mkdir(f.at("d"), 0o755), open(f, "d", unix.O_PATH))
			},
			do: func(f *faults) error { return unix.Rmdir(f.at("d")) },
			check: func(f *faults) error {
				defer unix.Close(fd)
				var st unix.Stat_t
				err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH)
				if err == nil && st.Nlink != 0 {
					err = fmt.Errorf("%d links", st.Nlink)
				}
				return first(f.gone("d"), err)
			}},
		{what: "rename", op: opRename, prepare: func(f *faults) error { return f.put("a", "a") },
			do:    func(f *faults) error { return unix.Rename(f.at("a"), f.at("b")) },
			check: func(f *faults) error { return first(f.gone("a"), f.is("b", "a")) }},
		{what: "rename onto an open file", op: opRename,
			prepare: func(f *faults) error {
				return first(f.put("a", "a"), f.put("b", "b"), open(f, "b", unix.O_RDWR))
			},
			do:    func(f *faults) error { return unix.Rename(f.at("a"), f.at("b")) },
			check: func(f *faults) error { return first(f.gone("a"), f.is("b", "a"), ghost("b")) }},
		{what: "rename of an open directory", op: opRename,
			prepare: func(f *faults) error {
				return first(os.MkdirAll(f.at("d/e"), 0o755), os.Mkdir(f.at("to"), 0o755),
					f.put("d/e/f", "f"),
					open(f, "d/e/f", unix.O_RDONLY))
			},
			do: func(f *faults) error { return unix.Rename(f.at("d"), f.at("to/d")) },
			check: func(f *faults) error {
				var b [4]byte
				n, err := unix.Pread(fd, b[:], 0)
				if err == nil && string(b[:n]) != "f" {
					err = errors.New("other bytes")
				}
				return first(err, unix.Close(fd), f.gone("d"), f.is("to/d/e/f", "f"))
			}},
		{what: "exchange", op: opRename2,
			prepare: func(f *faults) error { return first(f.put("a", "a"), f.put("b", "b")) },
			do: func(f *faults) error {
				return rename(f.at("a"), f.at("b"), unix.RENAME_EXCHANGE)
			},
			check: func(f *faults) error { return first(f.is("a", "b"), f.is("b", "a")) }},
		{what: "rename, NOREPLACE", op: opRename2, prepare: func(f *faults) error { return f.put("a", "a") },
			do: func(f *faults) error {
				return rename(f.at("a"), f.at("b"), unix.RENAME_NOREPLACE)
			},
			check: func(f *faults) error { return first(f.gone("a"), f.is("b", "a")) }},
		{what: "setxattr, CREATE", op: opSetxattr, prepare: func(f *faults) error { return f.put("a", "a") },
			do: func(f *faults) error {
				return unix.Setxattr(f.at("a"), "user.x", []byte("1"), unix.XATTR_CREATE)
			},
			check: func(f *faults) error { return f.attr("a", "1") }},
		{what: "setxattr, REPLACE", op: opSetxattr,
			prepare: func(f *faults) error {
				return first(f.put("a", "a"), unix.Setxattr(f.at("a"), "user.x", []byte("1"), 0))
			},
			do: func(f *faults) error {
				return unix.Setxattr(f.at("a"), "user.x", []byte("2"), unix.XATTR_REPLACE)
			},
			check: func(f *faults) error { return f.attr("a", "2") }},
		{what: "removexattr", op: opRemovexattr,
			prepare: func(f *faults) error {
				return first(f.put("a", "a"), unix.Setxattr(f.at("a"), "user.x", []byte("1"), 0))
			},
			do: func(f *faults) error { return unix.Removexattr(f.at("a"), "user.x") },
			check: func(f *faults) error {
				if _, err := unix.Getxattr(f.at("a"), "user.x", nil); err != unix.ENODATA {
					return fmt.Errorf("user.x: %v", err)
				}
				return nil
			}},

		{what: "O_TMPFILE", op: opTmpfile, plain: true, made: true, prepare: nothing,
			do: func(f *faults) error { return open(f, ".", unix.O_TMPFILE|unix.O_RDWR) },
			check: func(f *faults) error {
				_, err := unix.Write(fd, []byte("t"))
				return first(err, unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd),
					unix.AT_FDCWD, f.at("t"),
					unix.AT_SYMLINK_FOLLOW), unix.Close(fd), f.is("t", "t"))
			}},
		{what: "link of an O_TMPFILE", op: opLink,
			prepare: func(f *faults) error { return open(f, ".", unix.O_TMPFILE|unix.O_RDWR) },
			do: func(f *faults) error {
				return unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, f.at("t"),
					unix.AT_SYMLINK_FOLLOW)
			},
			check: func(f *faults) error {
				_, err := unix.Write(fd, []byte("t"))
				return first(err, unix.Close(fd), f.is("t", "t"), f.kind("t", unix.S_IFREG|0o640, 1))
			}},
		{what: "open", op: opOpen, plain: true, made: true,
			prepare: func(f *faults) error { return f.put("a", "a") },
			do:      func(f *faults) error { return open(f, "a", unix.O_RDWR) },
			check: func(f *faults) error {
				return first(unix.Close(fd), f.is("a", "a"), os.Remove(f.at("a")))
			}},
		{what: "open, O_TRUNC", op: opOpen, plain: true, made: true,
			prepare: func(f *faults) error { return f.put("a", "abc") },
			do:      func(f *faults) error { return open(f, "a", unix.O_RDWR|unix.O_TRUNC) },
			check:   func(f *faults) error { return first(unix.Close(fd), f.is("a", "")) }},
		{what: "release of a written file", op: opRelease, plain: true, did: true,
			prepare: func(f *faults) error {
				if err := open(f, "a", unix.O_RDWR|unix.O_CREAT); err != nil {
					return err
				}
				_, err := unix.Write(fd, npz(1, 100_000))
				return err
			},
			do: func(f *faults) error { return unix.Close(fd) },
			check: func(f *faults) error { // nobody has it open any more
				return daemon.Until("the file to be packed and evicted", func() bool {
					_, err := f.CLI("evict", f.at("a"))
					return err == nil
				})
			}},
		{what: "open beside another", op: opOpen, plain: true, made: true,
			prepare: func(f *faults) (err error) {
				err = first(f.put("a", "a"), open(f, "a", unix.O_RDWR))
				fd2 = fd
				return err
			},
			do:    func(f *faults) error { return open(f, "a", unix.O_RDWR) },
			check: func(f *faults) error { return first(unix.Close(fd), unix.Close(fd2), f.is("a", "a")) }},
		{what: "lookup", op: opLookup, plain: true,
			prepare: func(f *faults) error { return nil },
			do:      func(f *faults) error { return f.gone("never") }, check: nothing},
		{what: "truncate", op: opSetattr, plain: true,
			prepare: func(f *faults) error { return f.put("a", "abcdef") },
			do:      func(f *faults) error { return unix.Truncate(f.at("a"), 3) },
			check:   func(f *faults) error { return f.is("a", "abc") }},
		{what: "chmod", op: opSetattr, plain: true, prepare: func(f *faults) error { return f.put("a", "a") },
			do:    func(f *faults) error { return unix.Chmod(f.at("a"), 0o600) },
			check: func(f *faults) error { return f.kind("a", unix.S_IFREG|0o600, 1) }},
		{what: "append", op: opWrite, plain: true, served: true, prepare: func(f *faults) error {
			return first(f.put("a", "abc"), open(f, "a", unix.O_WRONLY|unix.O_APPEND))
		},
			do: func(f *faults) error {
				_, err := unix.Write(fd, []byte("def"))
				return err
			},
			check: func(f *faults) error { return first(unix.Close(fd), f.is("a", "abcdef")) }},
		{what: "fsync", op: opFsync, plain: true, prepare: func(f *faults) error {
			return first(f.put("a", "abc"), open(f, "a", unix.O_RDWR))
		},
			do:    func(f *faults) error { return unix.Fsync(fd) },
			check: func(f *faults) error { return first(unix.Close(fd), f.is("a", "abc")) }},
		{what: "close", op: opFlush, plain: true, prepare: func(f *faults) error {
			return first(f.put("a", "abc"), open(f, "a", unix.O_RDWR))
		},
			do:    func(f *faults) error { return unix.Close(fd) },
			check: func(f *faults) error { return f.is("a", "abc") }},
		{what: "copy_file_range", op: opCopy, plain: true, prepare: func(f *faults) (err error) {
			err = first(f.put("a", big), open(f, "a", unix.O_RDONLY))
			fd2 = fd
			return first(err, open(f, "b", unix.O_RDWR|unix.O_CREAT))
		},
			do: func(f *faults) error {
				n, err := unix.CopyFileRange(fd2, nil, fd, nil, len(big), 0)
				if err == nil && n != len(big) {
					err = fmt.Errorf("%d bytes copied", n)
				}
				return err
			},
			check: func(f *faults) error { return first(unix.Close(fd), unix.Close(fd2), f.is("b", big)) }},
		{what: "fallocate", op: opFallocate, plain: true, prepare: func(f *faults) error {
			return first(f.put("a", "abc"), open(f, "a", unix.O_RDWR))
		},
			do:    func(f *faults) error { return unix.Fallocate(fd, 0, 0, 5) },
			check: func(f *faults) error { return first(unix.Close(fd), f.is("a", "abc\x00\x00")) }},
		{what: "opendir", op: opOpendir, plain: true,
			prepare: func(f *faults) error { return f.put("a", "a") },
			do: func(f *faults) error {
				all, err := os.ReadDir(f.at("."))
				if err == nil && (len(all) != 1 || all[0].Name() != "a") {
					err = fmt.Errorf("%v", all)
				}
				return err
			}, check: nothing},
	}
}

// attr reports an error unless user.x has a value.
func (f *faults) attr(name, value string) error {
	var b [16]byte
	n, err := unix.Getxattr(f.at(name), "user.x", b[:])
	if err == nil && string(b[:n]) != value {
		err = fmt.Errorf("user.x is %q", b[:n])
	}
	return err
}

// TestKilledInARequest kills the daemon at every point of every kind of request: before it is written down,
// before its effect, before that is written down, before the answer, and behind it.
func TestKilledInARequest(t *testing.T) {
	mounttest.NeedFUSE(t)
	bin := mounttest.BuildWith(t, "fault")
	for _, c := range []struct {
		mode  string
		flags []string
	}{{"passthrough", nil}, {"served", []string{"--no-passthrough"}}} {
		t.Run(c.mode, func(t *testing.T) {
			f := newFaults(t, bin, c.flags...)
			for _, k := range faultCases() {
				if k.served && c.mode != "served" {
					continue
				}
				places := []string{"read", "begun", "did", "done", "answered"}
				if k.plain {
					places = []string{"read", "done", "answered"}
				}
				if k.made {
					places = append(places, "made")
				}
				if k.did {
					places = append(places, "did")
				}
				for _, place := range places {
					f.n++
					f.one(t, k, place)
				}
			}
			f.Sync()
			t.Logf("%d kills", f.n)
		})
	}
}

func newFaults(t *testing.T, bin string, flags ...string) *faults {
	f := &faults{
		Mount: mounttest.Prepare(t, t.TempDir(), flags...),
		file:  filepath.Join(t.TempDir(), "fault"),
	}
	f.Bin = bin
	t.Setenv("CKPTFS_FAULT", f.file)
	f.Must(f.Start())
	return f
}

func (f *faults) one(t *testing.T, k faultCase, place string) {
	what := fmt.Sprintf("%s, killed at %q", k.what, place)
	f.Must(os.Mkdir(f.at(""), 0o755))
	if err := k.prepare(f); err != nil {
		t.Errorf("%s: before it: %v", what, err)
		return
	}
	f.set(fmt.Sprint(k.op, " ", place, " kill"))
	if err := k.do(f); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if place == "answered" || k.op == opRelease { // which is not waited for
		_ = daemon.Within(5*time.Second, "", func() bool { _, err := os.Stat(f.file); return err != nil })
	}
	if os.Remove(f.file) == nil {
		t.Errorf("%s: it did not come there", what)
	}
	if err := k.check(f); err != nil {
		t.Errorf("%s: after it: %v", what, err)
	}
}

// set says where the daemon is to end.
func (f *faults) set(where string) {
	f.Must(os.WriteFile(f.file+".new", []byte(where), 0o644))
	f.Must(os.Rename(f.file+".new", f.file))
}

// TestCrashesEachTime: a request that crashes each daemon fails in the end, and nothing else does.
func TestCrashesEachTime(t *testing.T) {
	mounttest.NeedFUSE(t)
	f := newFaults(t, mounttest.BuildWith(t, "fault"))
	f.n = 1
	f.Must(os.Mkdir(f.at(""), 0o755))
	data := mounttest.Noise(1, 200_000)
	f.Write("x", data)
	open, err := os.OpenFile(f.Path("x"), os.O_RDWR, 0)
	f.Must(err)
	for _, c := range []struct {
		where string
		do    func() error
		want  error
	}{
		{fmt.Sprint(opMkdir, " begun panic"), func() error { return unix.Mkdir(f.at("d"), 0o755) }, unix.EIO},
		{fmt.Sprint(opRmdir, " read panic"), func() error { return unix.Rmdir(f.at("d")) }, unix.EIO},
		// The next one sees that it was done.
		{fmt.Sprint(opUnlink, " did panic"), func() error { return unix.Unlink(f.at("d")) }, nil},
	} {
		began := time.Now()
		if strings.Contains(c.where, "did") {
			f.Must(f.put("d", "d"))
		} else if strings.HasPrefix(c.where, fmt.Sprint(opRmdir)) {
			f.Must(os.Mkdir(f.at("d"), 0o755))
		}
		f.set(c.where)
		did := make(chan error, 1)
		go func() { did <- c.do() }()
		select {
		case err := <-did:
			if err != c.want {
				t.Errorf("%s: %v, not %v", c.where, err, c.want)
			}
		case <-time.After(30 * time.Second):
			f.Must(os.Remove(f.file))
			f.Must(f.End())
			t.Fatalf("%s: it crashes for ever", c.where)
		}
		t.Logf("%s: failed after %v", c.where, time.Since(began))
		f.Must(os.Remove(f.file))
		_, err = open.WriteAt([]byte("y"), 0)
		f.Must(err)
		data[0] = 'y'
		f.Want("x", data)
		_ = os.RemoveAll(f.at("d"))
		f.Must(os.Mkdir(f.at("d"), 0o755))
		f.Must(os.Remove(f.at("d")))
	}
	got := make([]byte, len(data))
	_, err = open.ReadAt(got, 0)
	f.Must(err)
	if !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
	f.Must(open.Close())
	crashes := strings.Count(f.LogText(), "panic:")
	t.Logf("%d crashes", crashes)
	f.Must(f.Stop())
	f.Must(os.WriteFile(f.Log, nil, 0o644)) // in which there are panics
}
