package posix

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

var openCases = []posixCase{
	{name: "open flags", run: func(w *world) {
		w.file("f", []byte("x"))
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(os.Symlink("f", w.p("toF")))
		w.need(os.Symlink("none", w.p("toNone")))
		w.need(os.Symlink("d", w.p("toD")))
		w.need(os.Symlink("made", w.p("toMade")))
		w.need(os.Symlink("loop", w.p("loop")))
		for _, name := range []string{"f", "d", "toF", "toNone", "toD", "loop", "none", "f/", "d/",
			"toF/", "none/", "f/x", "none/x", "."} {
			for _, flags := range []int{
				0, unix.O_WRONLY, unix.O_RDWR, unix.O_DIRECTORY, unix.O_NOFOLLOW, unix.O_PATH,
				unix.O_PATH | unix.O_NOFOLLOW,
				unix.O_PATH | unix.O_DIRECTORY, unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY, unix.O_APPEND,
				unix.O_WRONLY | unix.O_TRUNC,
				unix.O_DIRECTORY | unix.O_CREAT, unix.O_NONBLOCK, unix.O_NOATIME, unix.O_ACCMODE,
			} {
				if fd := w.open(name, flags, 0o644); fd >= 0 {
					w.close(fd)
				}
				if name == "none" || name == "toNone" {
					_ = unix.Unlink(w.p("none"))
				}
			}
		}
		fd := w.open("toMade", unix.O_CREAT|unix.O_WRONLY, 0o640)
		w.write(fd, []byte("through a link"), 0)
		w.whole("made")
		w.open("d", unix.O_CREAT, 0o644)
		w.open("d", unix.O_WRONLY|unix.O_TRUNC, 0)
		w.open("new", unix.O_CREAT|unix.O_EXCL, 0o444) // and read-only: it may be written all the same
		w.open("new", unix.O_CREAT, 0o444)
		w.open("new2", unix.O_CREAT|unix.O_RDWR, 0)
		w.stat("new2")
		w.open("wrong\x01", unix.O_CREAT|unix.O_RDWR, 0o7777)
		w.stat("wrong\x01")
	}},
	{name: "exclusive", prepare: usual, run: func(w *world) {
		w.open("f", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
		w.open("f", unix.O_CREAT|unix.O_RDWR, 0o600)
		w.do("mkdir", unix.Mkdir(w.p("f"), 0o755))
		w.do("mknod", unix.Mknod(w.p("f"), unix.S_IFIFO|0o644, 0))
		w.do("symlink", unix.Symlink("x", w.p("f")))
		w.stat("f")
		w.whole("f")
	}},
	{name: "append", prepare: usual, run: func(w *world) {
		a := w.open("f", unix.O_WRONLY|unix.O_APPEND, 0)
		b := w.open("f", unix.O_RDWR|unix.O_APPEND, 0)
		for i := range 10 {
			w.write(a, mounttest.Noise(uint64(i), 1000+i), -1)
			w.write(b, mounttest.Noise(uint64(i), 2000+i), -1)
		}
		w.write(a, []byte("pwrite appends, too"), 5)
		at, err := unix.Seek(a, 0, unix.SEEK_CUR)
		w.say("at %d %s", at, errnoName(err))
		w.read(b, 100, 0)
		w.whole("f")
	}},
	{name: "append put on", prepare: usual, run: func(w *world) {
		a := w.open("f", unix.O_WRONLY, 0)
		_, err := unix.FcntlInt(uintptr(a), unix.F_SETFL, unix.O_APPEND)
		w.do("setfl", err)
		w.write(a, []byte("at the end"), 0)
		w.write(a, []byte("and on"), -1)
		fl, err := unix.FcntlInt(uintptr(a), unix.F_GETFL, 0)
		w.say("getfl %#o %s", fl&^unix.O_LARGEFILE, errnoName(err))
		w.whole("f")
	}},
	{name: "append taken off", prepare: usual, run: func(w *world) {
		a := w.open("f", unix.O_WRONLY|unix.O_APPEND, 0)
		w.write(a, []byte("at the end"), 0)
		_, err := unix.FcntlInt(uintptr(a), unix.F_SETFL, 0)
		w.do("setfl", err)
		w.write(a, []byte("at the start"), 0)
		w.whole("f")
	}},
	{name: "O_TRUNC", prepare: usual, run: func(w *world) {
		r := w.open("f", unix.O_RDONLY, 0)
		w.read(r, 100, 1000)
		w.moves("f", "O_TRUNC", func() { w.open("f", unix.O_WRONLY|unix.O_TRUNC, 0) })
		w.stat("f")
		w.read(r, 100, 1000)
		w.moves("f", "O_TRUNC of the empty", func() { w.open("f", unix.O_RDWR|unix.O_TRUNC, 0) })
		fd := w.open("f", unix.O_RDWR, 0)
		w.write(fd, mounttest.Noise(2, big), 0)
		w.read(r, 100, 1000)
		w.whole("f")
		w.open("f", unix.O_RDONLY|unix.O_TRUNC, 0)
		w.stat("f")
		w.read(r, 100, 0)
	}},
	{name: "wrong direction", prepare: usual, run: func(w *world) {
		r, wr, p := w.open("f", unix.O_RDONLY, 0), w.open("f", unix.O_WRONLY, 0), w.open("f", unix.O_PATH, 0)
		w.write(r, []byte("x"), 0)
		w.read(wr, 1, 0)
		w.read(p, 1, 0)
		w.write(p, []byte("x"), 0)
		w.do("ftruncate", unix.Ftruncate(r, 0))
		w.do("ftruncate O_PATH", unix.Ftruncate(p, 0))
		w.do("fallocate", unix.Fallocate(r, 0, 0, 10))
		w.do("fchmod O_PATH", unix.Fchmod(p, 0o600))
		w.do("fchown O_PATH", unix.Fchown(p, 0, 0))
		w.do("fsync O_PATH", unix.Fsync(p))
		_, err := unix.Mmap(wr, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		w.do("map for reading what is write-only", err)
		_, err = unix.Mmap(r, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.do("map for writing what is read-only", err)
		_, err = unix.Mmap(r, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		w.do("map a copy of what is read-only", err)
		w.fstat(p)
		w.whole("f")
	}},
	{name: "O_PATH", prepare: usual, run: func(w *world) {
		p := w.open("f", unix.O_PATH, 0)
		w.fstat(p)
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p), unix.O_RDWR|unix.O_CLOEXEC, 0)
		w.do("reopen", err)
		w.read(fd, 100, 100)
		w.write(fd, []byte("x"), 5)
		unix.Close(fd)
		w.do("link", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", p), unix.AT_FDCWD, w.p("g"),
			unix.AT_SYMLINK_FOLLOW))
		w.stat("g")
		w.do("unlink", unix.Unlink(w.p("f")))
		w.do("unlink", unix.Unlink(w.p("g")))
		w.fstat(p)
		fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", p), unix.O_RDWR|unix.O_CLOEXEC, 0)
		w.do("reopen what is gone", err)
		if err == nil {
			w.read(fd, 100, 0)
			w.write(fd, []byte("y"), 7)
			unix.Close(fd)
		}
		w.do("link what is gone", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", p),
			unix.AT_FDCWD, w.p("g"), unix.AT_SYMLINK_FOLLOW))
	}},
	{name: "O_TMPFILE", run: func(w *world) {
		fd := w.open(".", unix.O_TMPFILE|unix.O_RDWR, 0o640)
		w.fstat(fd)
		w.write(fd, mounttest.Noise(3, big), 0)
		w.names(".")
		w.do("link", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD,
			w.p("named"), unix.AT_SYMLINK_FOLLOW))
		w.fstat(fd)
		w.stat("named")
		w.whole("named")
		w.write(fd, []byte("more"), 10)
		w.whole("named")
		w.do("link again", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD,
			w.p("named"), unix.AT_SYMLINK_FOLLOW))
		w.do("link twice", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD,
			w.p("twice"), unix.AT_SYMLINK_FOLLOW))
		w.fstat(fd)
		w.close(fd)
		w.whole("twice")

		ex := w.open(".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_EXCL, 0o600)
		w.write(ex, []byte("x"), 0)
		w.do("link of an exclusive one", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", ex),
			unix.AT_FDCWD, w.p("ex"), unix.AT_SYMLINK_FOLLOW))
		w.open(".", unix.O_TMPFILE, 0o600)
		w.open("named", unix.O_TMPFILE|unix.O_RDWR, 0o600)
		w.open("none", unix.O_TMPFILE|unix.O_RDWR, 0o600)
		lost := w.open(".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
		w.write(lost, mounttest.Noise(4, big), 0)
		w.do("ftruncate", unix.Ftruncate(lost, 1000))
		w.do("fchmod", unix.Fchmod(lost, 0o444))
		w.do("setxattr", unix.Fsetxattr(lost, "user.a", []byte("b"), 0))
		w.fstat(lost)
		w.read(lost, 2000, 0)
		w.names(".")
	}},
	{name: "unlinked while open", prepare: usual, run: func(w *world) {
		r, rw := w.open("f", unix.O_RDONLY, 0), w.open("f", unix.O_RDWR, 0)
		w.do("unlink", unix.Unlink(w.p("f")))
		w.do("unlink again", unix.Unlink(w.p("f")))
		w.fstat(r)
		w.read(r, 5000, 100_000)
		w.write(rw, []byte("still there"), 100_000)
		w.read(r, 5000, 100_000)
		w.file("f", []byte("another"))
		w.whole("f")
		w.do("ftruncate", unix.Ftruncate(rw, 50))
		w.read(r, 5000, 0)
		w.do("fchmod", unix.Fchmod(rw, 0o600))
		w.do("fsync", unix.Fsync(rw))
		w.do("setxattr", unix.Fsetxattr(rw, "user.a", []byte("b"), 0))
		b := make([]byte, 10)
		n, err := unix.Fgetxattr(r, "user.a", b)
		w.say("getxattr %q %s", b[:max(n, 0)], errnoName(err))
		w.do("futimens", unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", rw),
			[]unix.Timespec{{Sec: 5}, {Sec: 6}}, 0))
		st := w.fstat(rw)
		w.say("atime %d mtime %d", st.Atim.Nano(), st.Mtim.Nano())
		w.do("fallocate", unix.Fallocate(rw, 0, 0, 100_000))
		w.fstat(r)
		w.do("link what is gone", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", rw),
			unix.AT_FDCWD, w.p("g"), unix.AT_SYMLINK_FOLLOW))
		w.close(rw)
		w.read(r, 5000, 0)
		w.close(r)
		w.whole("f")
	}},
	{name: "replaced while open", prepare: func(w *world) { usual(w); w.file("g", mounttest.Noise(2, big)) },
		run: func(w *world) {
			f, g := w.open("f", unix.O_RDWR, 0), w.open("g", unix.O_RDONLY, 0)
			w.do("rename", unix.Rename(w.p("f"), w.p("g")))
			w.fstat(f)
			w.fstat(g)
			w.read(g, 1000, 1000)
			w.read(f, 1000, 1000)
			w.write(f, []byte("by the old descriptor"), 1000)
			w.whole("g")
			w.read(g, 1000, 1000)
			w.open("f", unix.O_RDONLY, 0)
			w.names(".")
		}},
	{name: "other user opens", root: true, prepare: usual, run: func(w *world) {
		for _, mode := range []uint32{0o000, 0o004, 0o002, 0o006, 0o040, 0o400, 0o001, 0o005} {
			w.do("chmod", unix.Chmod(w.p("f"), mode))
			w.as(1000, 1000, func() {
				for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR,
					unix.O_WRONLY | unix.O_TRUNC, unix.O_NOATIME, unix.O_CREAT | unix.O_RDWR} {
					if flags&unix.O_TRUNC == 0 || mode&2 == 0 {
						w.open("f", flags, 0o644)
					}
				}
				for how := range uint32(8) {
					w.do(fmt.Sprint("access ", how), unix.Access(w.p("f"), how))
					w.do(fmt.Sprint("faccessat eaccess ", how), unix.Faccessat(unix.AT_FDCWD, w.p("f"), how, unix.AT_EACCESS))
				}
				w.do("stat", unix.Stat(w.p("f"), new(unix.Stat_t)))
				w.do("truncate", unix.Truncate(w.p("f"), big))
			})
		}
		for _, mode := range []uint32{0o700, 0o701, 0o702, 0o704, 0o703, 0o705} {
			w.do("chmod", unix.Chmod(w.dir, mode))
			w.as(1000, 1000, func() {
				w.open("f", unix.O_RDONLY, 0)
				w.open(".", unix.O_RDONLY, 0)
				w.do("stat", unix.Stat(w.p("f"), new(unix.Stat_t)))
				w.do("mkdir", unix.Mkdir(w.p("d"), 0o755))
				w.do("unlink", unix.Unlink(w.p("none")))
			})
			_ = unix.Rmdir(w.p("d"))
		}
		w.do("chmod", unix.Chmod(w.dir, 0o755))
		w.do("chmod", unix.Chmod(w.p("f"), 0o644))
	}},
	{name: "access", run: func(w *world) {
		w.file("f", nil)
		for _, mode := range []uint32{0o000, 0o100, 0o200, 0o400, 0o777} {
			w.do("chmod", unix.Chmod(w.p("f"), mode))
			for how := range uint32(9) {
				w.do(fmt.Sprint("access ", how), unix.Access(w.p("f"), how))
			}
			w.do("access of a folder", unix.Access(w.dir, unix.X_OK|unix.W_OK))
			w.do("none", unix.Access(w.p("none"), unix.F_OK))
			w.do("below a file", unix.Access(w.p("f/x"), unix.F_OK))
		}
	}},
}
