package posix

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

var attrCases = []posixCase{
	{name: "chmod", prepare: usual, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		for _, n := range []string{"f", "d"} {
			for _, mode := range []uint32{0, 0o777, 0o7777, 0o4755, 0o2755, 0o1777, 0o2644, 0o644, 0o100644} {
				w.do("chmod", unix.Chmod(w.p(n), mode))
				w.stat(n)
			}
			w.moves(n, "chmod", func() { w.do("chmod", unix.Chmod(w.p(n), 0o700)) })
			w.moves(n, "chmod to the same", func() { w.do("chmod", unix.Chmod(w.p(n), 0o700)) })
		}
		w.do("fchmod", unix.Fchmod(w.open("f", unix.O_RDONLY, 0), 0o640))
		w.stat("f")
		w.need(os.Symlink("f", w.p("s")))
		w.do("chmod of a link", unix.Chmod(w.p("s"), 0o600))
		w.stat("f")
		w.do("fchmodat2", unix.Fchmodat(unix.AT_FDCWD, w.p("s"), 0o600, unix.AT_SYMLINK_NOFOLLOW))
		w.do("chmod of nothing", unix.Chmod(w.p("none"), 0o600))
		w.whole("f")
	}},
	{name: "chown", root: true, prepare: usual, run: func(w *world) {
		w.do("chown", unix.Chown(w.p("f"), 1000, 2000))
		w.stat("f")
		w.do("chown", unix.Chown(w.p("f"), -1, 3000))
		w.do("chown", unix.Chown(w.p("f"), 4000, -1))
		w.stat("f")
		w.moves("f", "chown", func() { w.do("chown", unix.Chown(w.p("f"), 5000, -1)) })
		w.moves("f", "chown of nothing", func() { w.do("chown", unix.Chown(w.p("f"), -1, -1)) })
		w.do("chmod", unix.Chmod(w.p("f"), 0o6755))
		w.do("chown", unix.Chown(w.p("f"), 1000, 1000))
		w.stat("f")
		w.do("chmod", unix.Chmod(w.p("f"), 0o6745))
		w.do("chown", unix.Chown(w.p("f"), 1001, 1000))
		w.stat("f")
		w.do("chown", unix.Chown(w.p("f"), 1000, 1000))
		w.need(os.Symlink("f", w.p("s")))
		w.do("lchown", unix.Lchown(w.p("s"), 7, 8))
		w.stat("s")
		w.stat("f")
		w.as(1000, 1000, func() {
			w.do("give away", unix.Chown(w.p("f"), 1001, -1))
			w.do("to the same", unix.Chown(w.p("f"), 1000, 1000))
			w.do("to another group", unix.Chown(w.p("f"), -1, 2000))
			w.do("chmod", unix.Chmod(w.p("f"), 0o600))
			w.do("chmod with set-group-id", unix.Chmod(w.p("f"), 0o2755))
		})
		w.stat("f")
		w.as(1001, 1001, func() {
			w.do("chmod by another", unix.Chmod(w.p("f"), 0o600))
			w.do("chown by another", unix.Chown(w.p("f"), 1001, 1001))
			w.do("utimens by another", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"), []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0))
			w.do("now by another", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"), nil, 0))
		})
		w.do("chown", unix.Chown(w.p("f"), 1<<31-2, 1<<31-3))
		w.do("chmod", unix.Chmod(w.p("f"), 0o666))
		w.as(1001, 1001, func() {
			w.do("now by who may write", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"),
				[]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0))
			w.do("one of them", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"),
				[]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, 0))
		})
		w.stat("f")
		w.whole("f")
	}},
	{name: "set-user-id", root: true, prepare: func(w *world) {
		for i := range 9 {
			w.file(fmt.Sprint("f", i), mounttest.Noise(uint64(i), big))
		}
		w.file("src", mounttest.Noise(9, big))
	}, run: func(w *world) {
		for i := range 9 {
			name := fmt.Sprint("f", i)
			mode := uint32(0o6777)
			if i == 8 {
				mode = 0o6767 // mandatory locking's mark, no set-group-id
			}
			w.need(unix.Chmod(w.p(name), mode))
			act := func() {
				fd := w.open(name, unix.O_RDWR, 0)
				switch i {
				case 0, 8:
					w.write(fd, []byte("x"), 10)
				case 1:
					w.do("ftruncate", unix.Ftruncate(fd, 100_000))
				case 2:
					w.do("fallocate", unix.Fallocate(fd, 0, big, 100_000))
				case 3:
					w.copyRange(w.open("src", unix.O_RDONLY, 0), fd, 0, 0, 1000)
				case 4:
					w.open(name, unix.O_WRONLY|unix.O_TRUNC, 0)
				case 5:
					w.do("truncate", unix.Truncate(w.p(name), 7))
				case 6:
					w.do("punch", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
						0, 100_000))
				}
			}
			if i == 7 { // root may
				fd := w.open(name, unix.O_RDWR, 0)
				w.write(fd, []byte("x"), 10)
			} else {
				w.as(1000, 1000, act)
			}
			w.stat(name)
		}
	}},
	{name: "opened and not written keeps set-user-id", root: true, prepare: usual, run: func(w *world) {
		w.need(unix.Chmod(w.p("f"), 0o6777))
		w.as(1000, 1000, func() { w.close(w.open("f", unix.O_RDWR, 0)) })
		w.stat("f")
	}},
}

func (w *world) utimens(name string, a, m unix.Timespec) {
	err := unix.UtimesNanoAt(unix.AT_FDCWD, w.p(name), []unix.Timespec{a, m}, 0)
	var st unix.Stat_t
	serr := unix.Stat(w.p(name), &st)
	w.say("utimens %v %v: %s, now %d.%09d %d.%09d %s", a, m, errnoName(err), st.Atim.Sec, st.Atim.Nsec, st.Mtim.Sec, st.Mtim.Nsec, errnoName(serr))
}

var timeCases = []posixCase{
	{name: "utimensat", prepare: usual, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		for _, n := range []string{"f", "d"} {
			for _, sec := range []int64{0, 1, 1_700_000_000, -1, -1_000_000, -(1 << 31), 1<<31 - 1,
				1 << 31, 1 << 32, 15032385535, 15032385536, 1 << 40, -(1 << 31) - 1} {
				w.utimens(n, unix.Timespec{Sec: sec, Nsec: 123_456_789},
					unix.Timespec{Sec: sec, Nsec: 999_999_999})
			}
			for _, nsec := range []int64{-1, 1_000_000_000, 1 << 40} {
				w.utimens(n, unix.Timespec{Sec: 5, Nsec: nsec}, unix.Timespec{Sec: 5})
			}
			w.utimens(n, unix.Timespec{Sec: 5, Nsec: 5}, unix.Timespec{Sec: 6, Nsec: 6})
			w.utimens(n, unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Sec: 7, Nsec: 7})
			w.utimens(n, unix.Timespec{Sec: 8, Nsec: 8}, unix.Timespec{Nsec: unix.UTIME_OMIT})
			w.moves(n, "both omitted", func() {
				w.utimens(n, unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Nsec: unix.UTIME_OMIT})
			})
			w.moves(n, "now", func() { w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p(n), nil, 0)) })
			w.moves(n, "atime now", func() {
				w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p(n),
					[]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, 0))
			})
			w.moves(n, "to the same", func() {
				w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p(n),
					[]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}, 0))
			})
		}
		fd := w.open("f", unix.O_RDONLY, 0)
		w.do("futimens", unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd),
			[]unix.Timespec{{Sec: 9}, {Sec: 10}}, 0))
		st := w.fstat(fd)
		w.say("%d %d", st.Atim.Nano(), st.Mtim.Nano())
	}},
	{name: "times last", prepare: func(w *world) {
		usual(w)
		w.need(unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"), []unix.Timespec{{Sec: 1_600_000_000, Nsec: 1},
			{Sec: 1_500_000_000, Nsec: 2}}, 0))
		w.keep("f")
		w.file("old", mounttest.Noise(2, big))
		w.need(unix.UtimesNanoAt(unix.AT_FDCWD, w.p("old"), []unix.Timespec{{Sec: 5, Nsec: 1},
			{Sec: -5, Nsec: 2}}, 0))
		w.keep("old")
	}, run: func(w *world) {
		for _, n := range []string{"f", "old"} {
			var st unix.Stat_t
			w.need(unix.Stat(w.p(n), &st))
			was := w.kept[n]
			w.say("%s: %d %d, %s", n, st.Atim.Nano(), st.Mtim.Nano(), moved(&was, &st))
			fd := w.open(n, unix.O_RDWR, 0)
			w.close(fd)
			w.need(unix.Stat(w.p(n), &st))
			w.say("opened and closed: %s", moved(&was, &st))
		}
	}},
	{name: "what moves times", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDWR, 0)
		w.moves("f", "write", func() { w.write(fd, []byte("x"), 100) })
		w.moves("f", "append", func() { w.write(fd, []byte("x"), big+100) })
		w.moves("f", "setxattr", func() {
			w.do("setxattr", unix.Setxattr(w.p("f"), "user.a",
				[]byte("b"), 0))
		})
		w.moves("f", "removexattr", func() { w.do("removexattr", unix.Removexattr(w.p("f"), "user.a")) })
		w.moves("f", "link", func() { w.do("link", unix.Link(w.p("f"), w.p("l"))) })
		w.moves("f", "rename", func() { w.do("rename", unix.Rename(w.p("l"), w.p("m"))) })
		w.moves("f", "unlink", func() { w.do("unlink", unix.Unlink(w.p("m"))) })
		w.moves("f", "chmod", func() { w.do("chmod", unix.Chmod(w.p("f"), 0o600)) })
		w.moves("f", "fsync", func() { w.do("fsync", unix.Fsync(fd)) })
		w.moves("f", "close", func() { w.close(fd) })
		w.moves("f", "open", func() { w.close(w.open("f", unix.O_RDWR, 0)) })
		w.moves("f", "stat", func() { w.stat("f") })
		w.moves("f", "flock", func() {
			fd := w.open("f", unix.O_RDONLY, 0)
			w.do("flock", unix.Flock(fd, unix.LOCK_EX))
			w.close(fd)
		})
	}},
	{name: "atime", prepare: func(w *world) {
		usual(w)
		w.file("g", mounttest.Noise(2, big))
		// Older than the last change: the next read moves it (relatime).
		w.need(unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"), []unix.Timespec{{Sec: 1_000_000_000},
			{Sec: 1_100_000_000}}, 0))
		w.need(unix.UtimesNanoAt(unix.AT_FDCWD, w.p("g"), []unix.Timespec{{Sec: 1_000_000_000},
			{Sec: 1_100_000_000}}, 0))
	}, run: func(w *world) {
		w.moves("f", "a read without O_NOATIME", func() { w.whole("f") })
		w.moves("f", "the next", func() { w.whole("f") })
		w.moves("g", "a read with it", func() {
			fd := w.open("g", unix.O_RDONLY|unix.O_NOATIME, 0)
			w.read(fd, 1000, 0)
			w.close(fd)
		})
	}},
}

var ownerCases = []posixCase{
	{name: "owner of what is new", root: true, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(unix.Chmod(w.p("d"), 0o777))
		w.as(1000, 2000, func() {
			w.file("d/f", nil)
			w.do("mkdir", unix.Mkdir(w.p("d/d"), 0o755))
			w.do("symlink", unix.Symlink("x", w.p("d/s")))
			w.do("mkfifo", unix.Mkfifo(w.p("d/p"), 0o644))
			w.do("mknod of a device", unix.Mknod(w.p("d/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
			fd := w.open("d", unix.O_TMPFILE|unix.O_RDWR, 0o600)
			w.fstat(fd)
		})
		for _, n := range []string{"d/f", "d/d", "d/s", "d/p"} {
			w.stat(n)
		}
	}},
	{name: "set-group-id folders", root: true, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(unix.Chown(w.p("d"), 0, 3000))
		w.need(unix.Chmod(w.p("d"), 0o2777))
		make := func(prefix string) {
			w.file("d/"+prefix+"f", nil)
			w.do("mkdir", unix.Mkdir(w.p("d/"+prefix+"d"), 0o755))
			w.do("mkdir", unix.Mkdir(w.p("d/"+prefix+"d/d"), 0o755))
			w.do("symlink", unix.Symlink("x", w.p("d/"+prefix+"s")))
			w.do("mkfifo", unix.Mkfifo(w.p("d/"+prefix+"p"), 0o644))
			w.close(w.open("d/"+prefix+"g", unix.O_CREAT|unix.O_WRONLY, 0o2755))
			w.do("mknod", unix.Mknod(w.p("d/"+prefix+"n"), unix.S_IFREG|0o2755, 0))
			w.fstat(w.open("d", unix.O_TMPFILE|unix.O_RDWR, 0o2755))
			for _, n := range []string{"f", "d", "d/d", "s", "p", "g", "n"} {
				w.stat("d/" + prefix + n)
			}
		}
		make("root")
		w.as(1000, 2000, func() { make("user") })
	}},
	{name: "sticky folders", root: true, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(unix.Chmod(w.p("d"), 0o1777))
		w.as(1000, 1000, func() { w.file("d/f", []byte("x")); w.need(os.Mkdir(w.p("d/d"), 0o777)) })
		w.as(1001, 1001, func() {
			w.do("unlink", unix.Unlink(w.p("d/f")))
			w.do("rmdir", unix.Rmdir(w.p("d/d")))
			w.do("rename", unix.Rename(w.p("d/f"), w.p("d/g")))
			w.file("d/mine", nil)
			w.do("rename onto", unix.Rename(w.p("d/mine"), w.p("d/f")))
			w.do("exchange", unix.Renameat2(unix.AT_FDCWD, w.p("d/mine"), unix.AT_FDCWD, w.p("d/f"),
				unix.RENAME_EXCHANGE))
			w.do("rename mine", unix.Rename(w.p("d/mine"), w.p("d/mine2")))
			w.do("link", unix.Link(w.p("d/f"), w.p("d/l")))
		})
		w.as(1000, 1000, func() { w.do("unlink", unix.Unlink(w.p("d/f"))) })
		w.names("d")
	}},
	{name: "umask", run: func(w *world) {
		defer unix.Umask(0o022)
		for _, mask := range []int{0, 0o027, 0o777, 0o002} {
			unix.Umask(mask)
			n := func(k string) string { return fmt.Sprintf("%s%o", k, mask) }
			w.close(w.open(n("f"), unix.O_CREAT|unix.O_RDWR, 0o666))
			w.close(w.open(n("x"), unix.O_CREAT|unix.O_RDWR, 0o7777))
			w.do("mkdir", unix.Mkdir(w.p(n("d")), 0o777))
			w.do("mkdir", unix.Mkdir(w.p(n("D")), 0o7777))
			w.do("mkfifo", unix.Mkfifo(w.p(n("p")), 0o666))
			w.do("mknod", unix.Mknod(w.p(n("n")), unix.S_IFREG|0o666, 0))
			w.do("symlink", unix.Symlink("x", w.p(n("s"))))
			w.fstat(w.open(".", unix.O_TMPFILE|unix.O_RDWR, 0o666))
			for _, k := range []string{"f", "x", "d", "D", "p", "n", "s"} {
				w.stat(n(k))
			}
			for _, k := range []string{"d", "D"} {
				w.need(unix.Chmod(w.p(n(k)), 0o755))
			}
		}
	}},
}

// xattrs says which attributes a file has.
func (w *world) xattrs(name string) {
	b := make([]byte, 64<<10)
	n, err := unix.Llistxattr(w.p(name), b)
	list, all := "", strings.Split(string(b[:max(n, 0)]), "\x00")
	slices.Sort(all) // the host's order depends on where it keeps them
	for _, a := range all {
		if a != "" && a != "security.selinux" {
			v := make([]byte, 64<<10)
			k, err := unix.Lgetxattr(w.p(name), a, v)
			list += fmt.Sprintf(" %q=%d bytes %q %s", short(a), k, v[:min(max(k, 0), 10)], errnoName(err))
		}
	}
	w.say("xattrs of %s:%s %s", name, list, errnoName(err))
}

var xattrCases = []posixCase{
	{name: "xattrs", prepare: func(w *world) {
		usual(w)
		w.need(unix.Setxattr(w.p("f"), "user.before", []byte("here"), 0))
		w.need(os.Mkdir(w.p("d"), 0o755))
	}, run: func(w *world) {
		for _, n := range []string{"f", "d"} {
			set := func(name string, value []byte, flags int) {
				w.do(fmt.Sprintf("set %s %d %d", short(name), len(value), flags),
					unix.Setxattr(w.p(n), name, value, flags))
			}
			set("user.a", []byte("one"), 0)
			set("user.a", []byte("two"), unix.XATTR_CREATE)
			set("user.b", []byte("two"), unix.XATTR_REPLACE)
			set("user.a", []byte("three"), unix.XATTR_REPLACE)
			set("user.c", nil, unix.XATTR_CREATE)
			set("user.d", nil, unix.XATTR_CREATE|unix.XATTR_REPLACE)
			set("user.d", []byte("x"), 8)
			set("user.", []byte("x"), 0)
			set("user", []byte("x"), 0)
			set("", []byte("x"), 0)
			set("nonsense.x", []byte("x"), 0)
			set("user."+strings.Repeat("n", 250), []byte("long"), 0)
			set("user."+strings.Repeat("n", 251), []byte("too long"), 0)
			set("user.kib", mounttest.Noise(1, 1000), 0)
			set("user.huge", mounttest.Noise(1, 100_000), 0)
			set("user.a b\n\xff", []byte("odd"), 0)
			w.xattrs(n)
			b := make([]byte, 2)
			_, err := unix.Getxattr(w.p(n), "user.a", b)
			w.do("too little room", err)
			k, err := unix.Getxattr(w.p(n), "user.a", nil)
			w.say("size %d %s", k, errnoName(err))
			_, err = unix.Getxattr(w.p(n), "user.none", b)
			w.do("none", err)
			_, err = unix.Listxattr(w.p(n), b)
			w.do("too little room for the list", err)
			w.do("remove", unix.Removexattr(w.p(n), "user.a"))
			w.do("remove again", unix.Removexattr(w.p(n), "user.a"))
			w.xattrs(n)
		}
		fd := w.open("f", unix.O_RDONLY, 0)
		w.do("fsetxattr", unix.Fsetxattr(fd, "user.fd", []byte("by descriptor"), 0))
		w.xattrs("f")
		w.whole("f")
	}},
	{name: "xattrs that are large", prepare: usual, run: func(w *world) {
		for _, n := range []int{2000, 3000, 3900, 4000, 4096, 8192, 65536} {
			w.do(fmt.Sprint("set ", n), unix.Setxattr(w.p("f"), "user.large", mounttest.Noise(1, n), 0))
			b := make([]byte, 64<<10)
			k, err := unix.Getxattr(w.p("f"), "user.large", b)
			w.say("%d %s", k, errnoName(err))
		}
		w.whole("f")
	}},
	{name: "xattrs of other files", run: func(w *world) {
		w.need(os.Symlink("f", w.p("s")))
		w.need(unix.Mkfifo(w.p("p"), 0o644))
		w.file("f", nil)
		for _, n := range []string{"s", "p"} {
			w.do("user", unix.Lsetxattr(w.p(n), "user.a", []byte("b"), 0))
			_, err := unix.Lgetxattr(w.p(n), "user.a", make([]byte, 10))
			w.do("get", err)
			w.do("trusted", unix.Lsetxattr(w.p(n), "trusted.a", []byte("b"), 0))
			w.xattrs(n)
		}
		w.do("through a link", unix.Setxattr(w.p("s"), "user.a", []byte("b"), 0))
		w.do("trusted", unix.Setxattr(w.p("f"), "trusted.a", []byte("b"), 0))
		w.xattrs("f")
		_, err := unix.Getxattr(w.p("f"), "trusted.a", make([]byte, 10))
		w.do("get", err)
	}},
	{name: "xattrs by other users", root: true, prepare: usual, run: func(w *world) {
		w.need(unix.Setxattr(w.p("f"), "user.a", []byte("b"), 0))
		w.need(unix.Setxattr(w.p("f"), "trusted.a", []byte("b"), 0))
		for _, mode := range []uint32{0o600, 0o604, 0o606} {
			w.need(unix.Chmod(w.p("f"), mode))
			w.as(1000, 1000, func() {
				_, err := unix.Getxattr(w.p("f"), "user.a", make([]byte, 10))
				w.do("get", err)
				w.do("set", unix.Setxattr(w.p("f"), "user.b", []byte("b"), 0))
				w.do("remove", unix.Removexattr(w.p("f"), "user.b"))
				w.do("trusted", unix.Setxattr(w.p("f"), "trusted.b", []byte("b"), 0))
				_, err = unix.Getxattr(w.p("f"), "trusted.a", make([]byte, 10))
				w.do("get trusted", err)
				w.xattrs("f")
			})
		}
		w.xattrs("f")
	}},
	{name: "security attributes", root: true, run: func(w *world) {
		w.file("f", nil)
		_, err := unix.Getxattr(w.p("f"), "security.capability", make([]byte, 100))
		w.do("get", err)
		w.do("set", unix.Setxattr(w.p("f"), "security.something", []byte("x"), 0))
	}},
	{name: "ACLs", run: func(w *world) {
		w.file("f", nil)
		_, err := unix.Getxattr(w.p("f"), "system.posix_acl_access", make([]byte, 100))
		w.do("get", err)
		acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 4, 0, 0xff, 0xff, 0xff,
			0xff, 0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff}
		w.do("set", unix.Setxattr(w.p("f"), "system.posix_acl_access", acl, 0))
	}},
}
