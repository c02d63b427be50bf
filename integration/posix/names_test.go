package posix

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

var linkCases = []posixCase{
	{name: "hard links", prepare: usual, run: func(w *world) {
		w.moves("f", "link", func() { w.do("link", unix.Link(w.p("f"), w.p("g"))) })
		w.stat("f")
		w.stat("g")
		g := w.open("g", unix.O_RDWR, 0)
		w.write(g, []byte("by the other name"), 1000)
		w.whole("f")
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.do("link", unix.Link(w.p("g"), w.p("d/h")))
		w.moves("f", "unlink of another name", func() { w.do("unlink", unix.Unlink(w.p("g"))) })
		w.fstat(g)
		w.do("link onto a name", unix.Link(w.p("f"), w.p("d/h")))
		w.do("link of a folder", unix.Link(w.p("d"), w.p("e")))
		w.do("link of nothing", unix.Link(w.p("none"), w.p("e")))
		w.do("link into nothing", unix.Link(w.p("f"), w.p("none/e")))
		w.do("unlink", unix.Unlink(w.p("f")))
		w.whole("d/h")
		w.stat("d/h")
		w.write(g, []byte("still"), 0)
		w.whole("d/h")
		w.need(os.Symlink("d/h", w.p("s")))
		w.do("link of a link", unix.Link(w.p("s"), w.p("s2")))
		w.do("link through a link", unix.Linkat(unix.AT_FDCWD, w.p("s"), unix.AT_FDCWD, w.p("s3"), unix.AT_SYMLINK_FOLLOW))
		w.names(".")
	}},
	{name: "hard links before", prepare: func(w *world) { usual(w); w.need(unix.Link(w.p("f"), w.p("g"))) },
		run: func(w *world) {
			w.stat("f")
			w.stat("g")
			f, g := w.open("f", unix.O_RDONLY, 0), w.open("g", unix.O_RDWR, 0)
			w.write(g, mounttest.Noise(3, 1000), 100_000)
			w.read(f, 1000, 100_000)
			w.do("unlink", unix.Unlink(w.p("g")))
			w.fstat(f)
			w.write(g, mounttest.Noise(4, 1000), 100_000)
			w.whole("f")
			w.do("rename", unix.Rename(w.p("f"), w.p("g")))
			w.whole("g")
		}},
	{name: "symbolic links", run: func(w *world) {
		long := strings.Repeat("x/", 2047)
		for _, target := range []string{"a", long + "y", long + "yy", "", strings.Repeat("z", 5000),
			"with\nnewline\xff", "/dev/null", strings.Repeat("q", 59), strings.Repeat("q", 60),
			strings.Repeat("q", 61)} {
			name := fmt.Sprint("s", len(target))
			w.do("symlink "+short(name), unix.Symlink(target, w.p(name)))
			b := make([]byte, 8192)
			n, err := unix.Readlink(w.p(name), b)
			w.say("readlink %d %v %s", n, n >= 0 && string(b[:max(n, 0)]) == target, errnoName(err))
			w.stat(name)
		}
		b := make([]byte, 3)
		w.do("symlink", unix.Symlink("abcdef", w.p("cut")))
		n, err := unix.Readlink(w.p("cut"), b)
		w.say("%d %s %s", n, b, errnoName(err))
		w.file("f", nil)
		_, err = unix.Readlink(w.p("f"), b)
		w.do("readlink of a file", err)
		_, err = unix.Readlink(w.dir, b)
		w.do("readlink of a folder", err)
		w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("cut"), []unix.Timespec{{Sec: 5, Nsec: 6},
			{Sec: 7, Nsec: 8}}, unix.AT_SYMLINK_NOFOLLOW))
		st := w.stat("cut")
		w.say("mtime %d", st.Mtim.Nano())
		w.do("rename", unix.Rename(w.p("cut"), w.p("cut2")))
		w.do("unlink", unix.Unlink(w.p("cut2")))
	}},
	{name: "special files", run: func(w *world) {
		w.do("mkfifo", unix.Mkfifo(w.p("fifo"), 0o640))
		w.stat("fifo")
		w.open("fifo", unix.O_WRONLY|unix.O_NONBLOCK, 0)
		r := w.open("fifo", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		wr := w.open("fifo", unix.O_WRONLY|unix.O_NONBLOCK, 0)
		w.write(wr, []byte("hello"), -1)
		w.read(r, 10, -1)
		w.do("mknod of a file", unix.Mknod(w.p("reg"), unix.S_IFREG|0o600, 0))
		w.stat("reg")
		w.do("mknod of a file", unix.Mknod(w.p("reg0"), 0o600, 0))
		w.stat("reg0")
		w.do("mknod of a socket", unix.Mknod(w.p("sock0"), unix.S_IFSOCK|0o600, 0))
		w.stat("sock0")
		w.do("mknod of a folder", unix.Mknod(w.p("dir"), unix.S_IFDIR|0o600, 0))
		w.do("mknod of a device", unix.Mknod(w.p("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		w.stat("null")
		w.do("mknod of a block device", unix.Mknod(w.p("blk"), unix.S_IFBLK|0o666, int(unix.Mkdev(259, 1_000_000))))
		w.stat("blk")
		w.do("whiteout", unix.Mknod(w.p("white"), unix.S_IFCHR, 0))
		w.stat("white")
		w.open("sock0", unix.O_RDONLY, 0)
		w.do("link", unix.Link(w.p("fifo"), w.p("fifo2")))
		w.do("rename", unix.Rename(w.p("fifo2"), w.p("fifo3")))
		w.do("chmod", unix.Chmod(w.p("fifo3"), 0o600))
		w.do("truncate", unix.Truncate(w.p("fifo"), 0))
		w.stat("fifo")
		w.need(os.Chdir(w.dir)) // a socket's path is short
		defer os.Chdir("/")
		l, err := net.Listen("unix", "sock")
		w.do("listen", err)
		if err == nil {
			go func() {
				c, err := l.Accept()
				if err == nil {
					_, _ = c.Write([]byte("over a socket"))
					c.Close()
				}
			}()
			c, err := net.Dial("unix", "sock")
			w.do("dial", err)
			if err == nil {
				b := make([]byte, 100)
				n, err := c.Read(b)
				w.say("%s %s", b[:n], errnoName(err))
				c.Close()
			}
			w.stat("sock")
			l.Close()
		}
		w.names(".")
	}},
}

var renameCases = []posixCase{
	{name: "rename", prepare: func(w *world) {
		usual(w)
		w.file("g", mounttest.Noise(2, big))
		w.file("h", mounttest.Noise(3, big))
	}, run: func(w *world) {
		w.moves("f", "rename", func() {
			w.do("rename", unix.Rename(w.p("f"), w.p("f2")))
			w.do("and back", unix.Rename(w.p("f2"), w.p("f")))
		})
		w.do("onto another", unix.Rename(w.p("f"), w.p("g")))
		w.whole("g")
		w.do("onto itself", unix.Rename(w.p("g"), w.p("g")))
		w.need(unix.Link(w.p("g"), w.p("g2")))
		w.do("onto its other name", unix.Rename(w.p("g"), w.p("g2")))
		w.stat("g")
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(os.Mkdir(w.p("d/e"), 0o755))
		w.do("into a folder", unix.Rename(w.p("h"), w.p("d/h")))
		w.whole("d/h")
		w.names("d")
		r := func(from, to string) { w.do("rename "+from+" "+to, unix.Rename(w.p(from), w.p(to))) }
		r("none", "x")
		r("g", "none/x")
		r("g", "d")
		r("d", "g")
		r("d", "d/e/x")
		r("d", "d/e")
		r("d/e", "d")
		r("g", "g/x")
		r("g/x", "y")
		r(".", "y")
		r("d/..", "y")
		r("g", "new/")
		r("d", "d2/")
		r("d2", "d")
		w.need(os.Mkdir(w.p("empty"), 0o755))
		r("d", "empty")
		w.names("empty")
		w.need(os.Mkdir(w.p("d"), 0o755))
		r("d", "empty")
		w.names(".")
		w.stat(".")
	}},
	{name: "rename with flags", prepare: func(w *world) { usual(w); w.file("g", mounttest.Noise(2, big)) },
		run: func(w *world) {
			r := func(from, to string, flags uint) {
				w.do(fmt.Sprint("rename ", from, " ", to, " ", flags),
					unix.Renameat2(unix.AT_FDCWD, w.p(from), unix.AT_FDCWD, w.p(to), flags))
			}
			f, g := w.open("f", unix.O_RDWR, 0), w.open("g", unix.O_RDWR, 0)
			r("f", "g", unix.RENAME_NOREPLACE)
			r("f", "new", unix.RENAME_NOREPLACE)
			r("new", "f", unix.RENAME_NOREPLACE)
			r("f", "f", unix.RENAME_NOREPLACE)
			r("f", "none", unix.RENAME_EXCHANGE)
			r("none", "f", unix.RENAME_EXCHANGE)
			r("f", "g", unix.RENAME_EXCHANGE)
			w.write(f, []byte("f's descriptor"), 100)
			w.write(g, []byte("g's descriptor"), 100)
			w.whole("f")
			w.whole("g")
			w.need(os.Mkdir(w.p("d"), 0o755))
			w.file("d/in", []byte("x"))
			d := w.open("d", unix.O_RDONLY, 0)
			r("f", "d", unix.RENAME_EXCHANGE)
			w.names(".")
			w.stat("f/in")
			_, err := unix.Openat(d, "in", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			w.do("openat", err)
			w.whole("d")
			r("f", "f/in", unix.RENAME_EXCHANGE)
			r("f/in", "f", unix.RENAME_EXCHANGE)
			r("f", "g", 8)
			r("f", "g", unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE)
			r("f", "g", unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT)
			w.need(os.Mkdir(w.p("e"), 0o755))
			w.need(os.Mkdir(w.p("e/e"), 0o755))
			r("f", "e/e", unix.RENAME_EXCHANGE)
			w.names("e")
			w.names("e/e")
			w.names("f")
		}},
	{name: "rename leaving a whiteout", root: true,
		prepare: func(w *world) { usual(w); w.file("g", mounttest.Noise(2, big)) }, run: func(w *world) {
			w.do("rename",
				unix.Renameat2(unix.AT_FDCWD, w.p("f"), unix.AT_FDCWD, w.p("h"), unix.RENAME_WHITEOUT))
			w.stat("f")
			w.whole("h")
			w.do("rename",
				unix.Renameat2(unix.AT_FDCWD, w.p("h"), unix.AT_FDCWD, w.p("g"), unix.RENAME_WHITEOUT))
			w.stat("h")
			w.whole("g")
			w.do("rename", unix.Renameat2(unix.AT_FDCWD, w.p("g"), unix.AT_FDCWD, w.p("h"),
				unix.RENAME_WHITEOUT|unix.RENAME_NOREPLACE))
			w.names(".")
		}},
	{name: "rename of open folders", prepare: func(w *world) {
		w.need(os.Mkdir(w.p("a"), 0o755))
		w.need(os.Mkdir(w.p("a/b"), 0o755))
		w.file("a/b/f", mounttest.Noise(1, big))
	}, run: func(w *world) {
		d := w.open("a/b", unix.O_RDONLY, 0)
		f := w.open("a/b/f", unix.O_RDWR, 0)
		w.do("rename", unix.Rename(w.p("a"), w.p("x")))
		w.write(f, []byte("still open"), 10)
		fd, err := unix.Openat(d, "new", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		w.do("create in it", err)
		unix.Close(fd)
		w.whole("x/b/f")
		w.names("x/b")
		w.need(os.Mkdir(w.p("y"), 0o755))
		w.moves("x", "a folder leaves", func() { w.do("rename", unix.Rename(w.p("x/b"), w.p("y/b"))) })
		w.stat("x")
		w.stat("y")
		st := w.fstat(d)
		var other unix.Stat_t
		w.do("..", unix.Fstatat(d, "..", &other, 0))
		var y unix.Stat_t
		w.need(unix.Stat(w.p("y"), &y))
		w.say("its parent is y: %v; %v", other.Ino == y.Ino, st.Ino != 0)
		w.read(f, 30, 0)
	}},
}

var nameCases = []posixCase{
	{name: "names", run: func(w *world) {
		for _, name := range []string{
			strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("ü", 127) + "x",
			strings.Repeat("ü", 128), "a\nb", "\xff\xfe", " ", "...", "-rf",
			".hidden", "~", "a\\b", "*", "?", strings.Repeat("n", 251) + ".saf", "user.ckptfs", "lost+found",
		} {
			fd, err := unix.Open(w.p(name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
			w.do("create "+short(name), err)
			if err == nil {
				w.write(fd, []byte(name), 0)
				unix.Close(fd)
			}
			w.stat(name)
			w.do("link", unix.Link(w.p(name), w.p("l")))
			w.do("rename", unix.Rename(w.p("l"), w.p("l2")))
			w.do("and back", unix.Rename(w.p("l2"), w.p(name)))
			w.do("unlink", unix.Unlink(w.p("l2")))
			w.do("mkdir", unix.Mkdir(w.p(name+"d"), 0o755))
			w.do("symlink", unix.Symlink("x", w.p(name+"s")))
		}
		w.names(".")
		w.do("an empty name", unix.Mkdir("", 0o755))
		w.do("slashes", unix.Mkdir(w.p("//x///y"), 0o755))
		w.do("slashes", unix.Mkdir(w.p("x//"), 0o755))
		w.do("slashes", unix.Mkdir(w.p("x///y//"), 0o755))
		w.do("path too long", unix.Mkdir(w.p(strings.Repeat("x/", 2048)), 0o755))
		w.do("dot", unix.Mkdir(w.p("."), 0o755))
		w.do("dots", unix.Mkdir(w.p(".."), 0o755))
		w.do("rmdir dot", unix.Rmdir(w.p("x/.")))
		w.do("rmdir dots", unix.Rmdir(w.p("x/..")))
		w.do("unlink dot", unix.Unlink(w.p("x/.")))
	}},
	{name: "paths beyond PATH_MAX", run: func(w *world) {
		defer os.Chdir("/")
		w.need(os.Chdir(w.dir))
		name := strings.Repeat("d", 200)
		const deep = 30
		for range deep {
			w.need(unix.Mkdir(name, 0o755))
			w.need(unix.Chdir(name))
		}
		fd, err := unix.Open("f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		w.do("create", err)
		w.write(fd, mounttest.Noise(1, big), 0)
		w.read(fd, 100, 100_000)
		unix.Close(fd)
		w.do("rename", unix.Rename("f", "g"))
		var st unix.Stat_t
		w.do("stat", unix.Stat("g", &st))
		w.say("%d", st.Size)
		_, err = unix.Getcwd(make([]byte, 4096))
		w.do("getcwd", err)
		w.do("unlink", unix.Unlink("g"))
		for i := range deep {
			w.need(unix.Chdir(".."))
			if i%2 == 0 {
				w.do("rename", unix.Rename(name, "e"))
				w.do("rmdir", unix.Rmdir("e"))
			} else {
				w.do("rmdir", unix.Rmdir(name))
			}
		}
		w.names(".")
	}},
	{name: "deep", run: func(w *world) {
		p := "x"
		for range 300 {
			w.need(unix.Mkdir(w.p(p), 0o755))
			p += "/x"
		}
		w.need(os.WriteFile(w.p(p), []byte("deep"), 0o644))
		w.whole(p)
		w.do("remove", os.RemoveAll(w.p("x/x")))
		w.names("x")
	}},
}

var dirCases = []posixCase{
	{name: "folders", run: func(w *world) {
		w.stat(".")
		w.moves(".", "mkdir", func() { w.do("mkdir", unix.Mkdir(w.p("d"), 0o750)) })
		w.stat("d")
		w.stat(".")
		w.do("mkdir again", unix.Mkdir(w.p("d"), 0o750))
		w.file("d/f", nil)
		w.do("rmdir", unix.Rmdir(w.p("d")))
		w.do("unlink", unix.Unlink(w.p("d")))
		w.do("rmdir of a file", unix.Rmdir(w.p("d/f")))
		w.do("rmdir of nothing", unix.Rmdir(w.p("none")))
		w.do("mkdir below a file", unix.Mkdir(w.p("d/f/x"), 0o755))
		w.moves("d", "create", func() { w.file("d/g", nil) })
		w.moves("d", "unlink", func() { w.do("unlink", unix.Unlink(w.p("d/g"))) })
		w.moves("d", "write", func() { w.need(os.WriteFile(w.p("d/f"), mounttest.Noise(1, 100), 0o644)) })
		w.moves("d", "link", func() { w.do("link", unix.Link(w.p("d/f"), w.p("d/l"))) })
		w.moves("d", "symlink", func() { w.do("symlink", unix.Symlink("x", w.p("d/s"))) })
		w.moves("d", "rename within", func() { w.do("rename", unix.Rename(w.p("d/s"), w.p("d/t"))) })
		w.moves("d", "chmod within", func() { w.do("chmod", unix.Chmod(w.p("d/f"), 0o600)) })
		w.moves("d", "a name that is taken", func() { w.do("mkdir", unix.Mkdir(w.p("d/f"), 0o600)) })
		w.moves("d", "chmod", func() { w.do("chmod", unix.Chmod(w.p("d"), 0o711)) })
		w.stat("d")
		w.do("read", func() error {
			_, err := unix.Read(w.open("d", unix.O_RDONLY, 0),
				make([]byte, 10))
			return err
		}())
	}},
	{name: "folder sizes", run: func(w *world) {
		w.need(unix.Mkdir(w.p("d"), 0o755))
		for i := range 300 {
			w.need(os.WriteFile(w.p(fmt.Sprintf("d/name-number-%04d", i)), nil, 0o644))
		}
		var st unix.Stat_t
		w.need(unix.Stat(w.p("d"), &st))
		w.say("size %d, more than a block %v", st.Size, st.Blocks > 8)
	}},
	{name: "numbers of entries", prepare: usual, run: func(w *world) {
		w.need(unix.Mkdir(w.p("d"), 0o755))
		w.need(os.Symlink("f", w.p("s")))
		all := w.entries(w.open(".", unix.O_RDONLY, 0))
		// Any order will do.
		slices.SortFunc(all, func(a, b dirent) int { return strings.Compare(a.name, b.name) })
		for _, e := range all {
			var st unix.Stat_t
			w.need(unix.Fstatat(unix.AT_FDCWD, w.p(e.name), &st, unix.AT_SYMLINK_NOFOLLOW))
			if e.name != ".." {
				w.say("%s as stat says: %v %v", e.name, st.Ino == e.ino, st.Mode>>12 == uint32(e.kind))
			}
		}
	}},
	{name: "listing while changing", run: func(w *world) {
		w.need(unix.Mkdir(w.p("d"), 0o755))
		for i := range 2000 {
			w.need(os.WriteFile(w.p(fmt.Sprintf("d/%04d", i)), nil, 0o644))
		}
		fd := w.open("d", unix.O_RDONLY, 0)
		seen := map[string]int{}
		for round := 0; ; round++ {
			got := w.some(fd, 4096)
			if len(got) == 0 {
				break
			}
			for _, e := range got {
				seen[e.name]++
			}
			if round == 3 {
				for i := range 500 { // what is removed may or may not be seen; what stays is seen once
					w.need(unix.Unlink(w.p(fmt.Sprintf("d/%04d", i*4))))
					w.need(os.WriteFile(w.p(fmt.Sprintf("d/new%04d", i)), nil, 0o644))
				}
			}
		}
		missed, twice := 0, 0
		for i := range 2000 {
			if n := seen[fmt.Sprintf("%04d", i)]; n == 0 && i%4 != 0 {
				missed++
			}
		}
		for _, n := range seen {
			if n > 1 {
				twice++
			}
		}
		w.say("missed %d, twice %d, dots %d %d", missed, twice, seen["."], seen[".."])
		_, err := unix.Seek(fd, 0, unix.SEEK_SET)
		w.do("rewind", err)
		w.say("anew: %d", len(w.entries(fd)))
	}},
	{name: "telldir and seekdir", run: func(w *world) {
		w.need(unix.Mkdir(w.p("d"), 0o755))
		for i := range 200 {
			w.need(os.WriteFile(w.p(fmt.Sprintf("d/%03d", i)), nil, 0o644))
		}
		fd := w.open("d", unix.O_RDONLY, 0)
		all := w.entries(fd)
		w.say("%d", len(all))
		for _, i := range []int{0, 1, 50, 100, 150, len(all) - 1} {
			_, err := unix.Seek(fd, all[i].off, unix.SEEK_SET)
			w.do("seek", err)
			rest := w.entries(fd)
			w.say("from %d: %d, the same %v", i, len(rest), slices.Equal(rest, all[i+1:]))
		}
		other := w.open("d", unix.O_RDONLY, 0)
		_, err := unix.Seek(other, all[100].off, unix.SEEK_SET)
		w.do("seek in another descriptor", err)
		rest := w.entries(other)
		w.say("%d %v", len(rest), slices.Equal(rest, all[101:]))
	}},
	{name: "removed folders", run: func(w *world) {
		defer os.Chdir("/")
		w.need(unix.Mkdir(w.p("d"), 0o755))
		fd := w.open("d", unix.O_RDONLY, 0)
		w.need(os.Chdir(w.p("d")))
		w.do("rmdir", unix.Rmdir(w.p("d")))
		w.fstat(fd)
		w.say("names %d", len(w.entries(fd)))
		_, err := unix.Openat(fd, "x", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		w.do("create in it", err)
		w.do("mkdir in it", unix.Mkdirat(fd, "x", 0o755))
		w.do("symlink in it", unix.Symlinkat("a", fd, "x"))
		w.do("mknod in it", unix.Mknodat(fd, "x", unix.S_IFIFO|0o644, 0))
		_, err = unix.Openat(fd, "x", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		w.do("open in it", err)
		w.do("stat of ..", unix.Fstatat(fd, "..", new(unix.Stat_t), 0))
		_, err = unix.Getcwd(make([]byte, 4096))
		w.do("getcwd", err)
		w.do("fchmod", unix.Fchmod(fd, 0o700))
		w.do("fsync", unix.Fsync(fd))
		w.do("rmdir .", unix.Rmdir("."))
		_, err = unix.Openat(fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		w.do("O_TMPFILE in it", err)
		w.file("f", nil)
		w.do("link into it", unix.Linkat(unix.AT_FDCWD, w.p("f"), fd, "x", 0))
		w.do("rename into it", unix.Renameat(unix.AT_FDCWD, w.p("f"), fd, "x"))
		w.need(unix.Mkdir(w.p("d"), 0o755))
		w.say("anew: names %d", len(w.entries(fd)))
	}},
	{name: "dots", run: func(w *world) {
		w.need(os.MkdirAll(w.p("a/b"), 0o755))
		var a, up, dot unix.Stat_t
		w.need(unix.Stat(w.p("a"), &a))
		w.do("..", unix.Stat(w.p("a/b/.."), &up))
		w.do(".", unix.Stat(w.p("a/."), &dot))
		w.say("%v %v", a.Ino == up.Ino, a.Ino == dot.Ino)
		for _, e := range w.entries(w.open("a/b", unix.O_RDONLY, 0)) {
			if e.name == ".." {
				w.say(".. is a: %v", e.ino == a.Ino)
			}
		}
		w.do("unlinkat", unix.Unlinkat(w.open("a", unix.O_RDONLY, 0), "b", unix.AT_REMOVEDIR))
		w.do("unlinkat of a folder", unix.Unlinkat(unix.AT_FDCWD, w.p("a"), 0))
	}},
	{name: "same number for ever", prepare: func(w *world) {
		usual(w)
		w.need(unix.Mkdir(w.p("d"), 0o755))
		w.keep("f", "d", ".")
	}, run: func(w *world) {
		for _, n := range []string{"f", "d", "."} {
			var st unix.Stat_t
			w.need(unix.Lstat(w.p(n), &st))
			was := w.kept[n]
			w.say("%s has its number: %v, its mode %v, its times: %s", n, st.Ino == was.Ino, st.Mode == was.Mode, moved(&was, &st))
		}
		fd := w.open("f", unix.O_RDWR, 0)
		w.write(fd, []byte("x"), 0)
		var st unix.Stat_t
		w.need(unix.Lstat(w.p("f"), &st))
		w.say("after a write: %v", st.Ino == w.kept["f"].Ino)
	}},
}

type dirent struct {
	ino  uint64
	off  int64
	kind uint8
	name string
}

// some reads entries once, with a buffer of n bytes.
func (w *world) some(fd, n int) []dirent {
	buf := make([]byte, n)
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		w.do("getdents", err)
		return nil
	}
	var out []dirent
	for b := buf[:n]; len(b) > 0; {
		size := binary.NativeEndian.Uint16(b[16:])
		name, _, _ := strings.Cut(string(b[19:size]), "\x00")
		out = append(out, dirent{binary.NativeEndian.Uint64(b),
			int64(binary.NativeEndian.Uint64(b[8:])), b[18], name})
		b = b[size:]
	}
	return out
}

// entries reads all entries that are left.
func (w *world) entries(fd int) (all []dirent) {
	for {
		got := w.some(fd, 32<<10)
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}
