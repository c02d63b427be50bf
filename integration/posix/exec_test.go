package posix

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/integration/mounttest"
)

var syncCases = []posixCase{
	{name: "fsync", prepare: usual, run: func(w *world) {
		w.need(os.Mkdir(w.p("d"), 0o755))
		w.need(unix.Mkfifo(w.p("p"), 0o644))
		for _, c := range []struct {
			name  string
			flags int
		}{{"f", unix.O_RDONLY}, {"f", unix.O_WRONLY}, {"f", unix.O_RDWR}, {"d", unix.O_RDONLY},
			{"p", unix.O_RDWR}, {"f", unix.O_PATH}, {".", unix.O_TMPFILE | unix.O_RDWR}} {
			fd := w.open(c.name, c.flags, 0o600)
			if c.flags&unix.O_ACCMODE != 0 && c.name == "f" {
				w.write(fd, []byte("x"), 7)
			}
			w.do("fsync", unix.Fsync(fd))
			w.do("fdatasync", unix.Fdatasync(fd))
			w.do("syncfs", unix.Syncfs(fd))
		}
		w.whole("f")
	}},
}

// programs that the exec cases run: what is found first.
var smallPrograms = []string{"/usr/bin/true", "/bin/true"}

func (w *world) copyProgram(name string) {
	for _, p := range smallPrograms {
		if b, err := os.ReadFile(p); err == nil {
			// Zeros after its end do no harm, and it becomes large enough to be packed.
			fd, err := unix.Open(w.p(name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o755)
			w.need(err)
			_, err = unix.Write(fd, append(b, mounttest.Noise(1, 100_000)...))
			w.need(err)
			w.need(unix.Close(fd))
			return
		}
	}
	panic("no small program here")
}

func (w *world) run(name string, args ...string) {
	out, err := exec.Command(w.p(name), args...).CombinedOutput()
	if _, ok := err.(*exec.ExitError); ok {
		w.say("run %s: %q, failed", name, out)
		return
	}
	w.say("run %s: %q %s", name, out, errnoName(err))
}

// notices says which events an inotify descriptor has.
func (w *world) notices(in int, what string) {
	buf := make([]byte, 64<<10)
	n, err := unix.Read(in, buf)
	var list []string
	for b := buf[:max(n, 0)]; len(b) >= unix.SizeofInotifyEvent; {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		name, _, _ := strings.Cut(string(b[16:16+size]), "\x00")
		list = append(list, fmt.Sprintf("%#x %s", mask, name))
		b = b[16+size:]
	}
	w.say("%s: %s %s", what, strings.Join(list, ", "), errnoName(err))
}

var execCases = []posixCase{
	{name: "execute a script", prepare: func(w *world) {
		w.file("script", []byte("#!/bin/sh\necho it runs: $1\n"+strings.Repeat("# and on\n", 20_000)))
		w.need(unix.Chmod(w.p("script"), 0o755))
	}, run: func(w *world) {
		for _, fd := range w.open_ { // a writer would keep it from being executed
			unix.Close(fd)
		}
		w.open_ = nil
		w.run("script", "well")
		w.do("chmod", unix.Chmod(w.p("script"), 0o644))
		w.run("script", "well")
	}},
	{name: "execute a program", prepare: func(w *world) { w.copyProgram("prog") }, run: func(w *world) {
		w.run("prog")
		r := w.open("prog", unix.O_RDONLY, 0)
		w.run("prog")
		wr := w.open("prog", unix.O_RDWR, 0)
		w.run("prog")
		w.close(wr)
		w.close(r)
		w.run("prog")
		w.whole("prog")
	}},
	{name: "a running program", prepare: func(w *world) {
		for _, p := range []string{"/usr/bin/sleep", "/bin/sleep"} {
			if b, err := os.ReadFile(p); err == nil {
				w.need(os.WriteFile(w.p("sleep"), append(b, mounttest.Noise(1, 100_000)...), 0o755))
				return
			}
		}
	}, run: func(w *world) {
		cmd := exec.Command(w.p("sleep"), "1000")
		w.do("start", cmd.Start())
		w.open("sleep", unix.O_WRONLY, 0)
		w.open("sleep", unix.O_RDWR|unix.O_APPEND, 0)
		w.open("sleep", unix.O_RDONLY|unix.O_TRUNC, 0)
		w.do("truncate", unix.Truncate(w.p("sleep"), 0))
		w.do("truncate", unix.Truncate(w.p("sleep"), 1<<20))
		w.open("sleep", unix.O_RDONLY, 0)
		w.do("rename", unix.Rename(w.p("sleep"), w.p("awake")))
		w.do("chmod", unix.Chmod(w.p("awake"), 0o700))
		w.do("alive", cmd.Process.Signal(unix.Signal(0)))
		w.whole("awake")
		w.do("unlink", unix.Unlink(w.p("awake")))
		w.do("alive", cmd.Process.Signal(unix.Signal(0)))
		w.do("kill", cmd.Process.Kill())
		_ = cmd.Wait()
	}},
	{name: "inotify", prepare: usual, run: func(w *world) {
		in, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		w.need(err)
		defer unix.Close(in)
		_, err = unix.InotifyAddWatch(in, w.dir, unix.IN_ALL_EVENTS)
		w.do("watch", err)
		fd := w.open("f", unix.O_RDWR, 0)
		w.notices(in, "open")
		w.read(fd, 100, 0)
		w.notices(in, "read")
		w.write(fd, []byte("x"), 0)
		w.notices(in, "write")
		w.do("ftruncate", unix.Ftruncate(fd, 1000))
		w.notices(in, "ftruncate")
		w.close(fd)
		w.notices(in, "close")
		w.do("chmod", unix.Chmod(w.p("f"), 0o600))
		w.do("utimens", unix.UtimesNanoAt(unix.AT_FDCWD, w.p("f"), nil, 0))
		w.do("setxattr", unix.Setxattr(w.p("f"), "user.a", []byte("b"), 0))
		w.notices(in, "attributes")
		w.do("link", unix.Link(w.p("f"), w.p("g")))
		w.do("rename", unix.Rename(w.p("g"), w.p("h")))
		w.do("unlink", unix.Unlink(w.p("h")))
		w.notices(in, "names")
		w.do("mkdir", unix.Mkdir(w.p("d"), 0o755))
		w.do("rmdir", unix.Rmdir(w.p("d")))
		w.notices(in, "folders")
	}},
	{name: "statx", prepare: usual, run: func(w *world) {
		var sx unix.Statx_t
		w.do("statx", unix.Statx(unix.AT_FDCWD, w.p("f"), 0, unix.STATX_BASIC_STATS, &sx))
		w.say("mode %o size %d nlink %d, basic %v", sx.Mode, sx.Size, sx.Nlink, sx.Mask&unix.STATX_BASIC_STATS == unix.STATX_BASIC_STATS)
		w.do("forced", unix.Statx(unix.AT_FDCWD, w.p("f"), unix.AT_STATX_FORCE_SYNC,
			unix.STATX_BASIC_STATS, &sx))
		w.do("not forced", unix.Statx(unix.AT_FDCWD, w.p("f"), unix.AT_STATX_DONT_SYNC,
			unix.STATX_BASIC_STATS, &sx))
		w.say("size %d", sx.Size)
	}},
	{name: "birth time", run: func(w *world) {
		w.file("f", nil)
		var sx unix.Statx_t
		w.do("statx", unix.Statx(unix.AT_FDCWD, w.p("f"), 0, unix.STATX_BTIME, &sx))
		w.say("birth %v", sx.Mask&unix.STATX_BTIME != 0)
	}},
	{name: "file handles", run: func(w *world) {
		w.file("f", nil)
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.p("f"), 0)
		w.do("name_to_handle_at", err)
	}},
	{name: "inode flags", run: func(w *world) {
		w.file("f", nil)
		fd := w.open("f", unix.O_RDONLY, 0)
		flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
		w.say("getflags %v %s", flags != 0, errnoName(err))
	}},
}
