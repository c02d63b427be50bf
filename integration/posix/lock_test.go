package posix

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// posixHelperEnv makes this program another process of a case; its value says what it does.
const posixHelperEnv = "CKPTFS_POSIX_HELPER"

// other has another process do something and returns what it says.
func (w *world) other(words ...any) string {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), posixHelperEnv+"="+strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
	cmd.Dir = w.dir
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// posixHelper is the other process. It is in the case's folder.
func posixHelper(words string) int {
	var verb, name string
	var kind int16
	var start, length int64
	if _, err := fmt.Sscan(words, &verb, &name, &kind, &start, &length); err != nil {
		fmt.Println(err)
		return 1
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	lk := unix.Flock_t{Type: kind, Start: start, Len: length}
	switch verb {
	case "set":
		fmt.Println(errnoName(unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lk)))
	case "setofd":
		fmt.Println(errnoName(unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lk)))
	case "get":
		err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lk)
		fmt.Println(errnoName(err), lk.Type, lk.Start, lk.Len, lk.Pid == int32(os.Getppid()))
	case "flock":
		fmt.Println(errnoName(unix.Flock(fd, int(start)|unix.LOCK_NB)))
	}
	return 0
}

var lockCases = []posixCase{
	{name: "flock", prepare: usual, run: func(w *world) {
		a, b := w.open("f", unix.O_RDONLY, 0), w.open("f", unix.O_RDWR, 0)
		l := func(what string, fd, how int) { w.do(what, unix.Flock(fd, how|unix.LOCK_NB)) }
		l("a exclusive", a, unix.LOCK_EX)
		l("b exclusive", b, unix.LOCK_EX)
		l("b shared", b, unix.LOCK_SH)
		w.say("another process %s", w.other("flock", "f", 0, unix.LOCK_SH, 0))
		l("a shared", a, unix.LOCK_SH)
		l("b shared", b, unix.LOCK_SH)
		w.say("another process %s %s", w.other("flock", "f", 0, unix.LOCK_SH, 0), w.other("flock", "f", 0, unix.LOCK_EX, 0))
		l("a exclusive", a, unix.LOCK_EX)
		l("b unlock", b, unix.LOCK_UN)
		l("a exclusive", a, unix.LOCK_EX)
		dup, err := unix.Dup(a)
		w.need(err)
		w.close(a)
		l("b while a dup lives", b, unix.LOCK_EX)
		unix.Close(dup)
		l("b after it", b, unix.LOCK_EX)
		l("wrong", b, 77)
		w.write(b, []byte("x"), 10)
		w.do("unlink", unix.Unlink(w.p("f")))
		l("of what is gone", b, unix.LOCK_UN)
		l("of a folder", w.open(".", unix.O_RDONLY, 0), unix.LOCK_EX)
	}},
	{name: "POSIX locks", prepare: usual, run: func(w *world) {
		a, b := w.open("f", unix.O_RDWR, 0), w.open("f", unix.O_RDWR, 0)
		set := func(what string, fd int, kind int16, start, n int64) {
			w.do(what, unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: kind,
				Start: start, Len: n}))
		}
		set("write lock", a, unix.F_WRLCK, 100, 100)
		set("the same process by another descriptor", b, unix.F_WRLCK, 150, 100)
		w.say("another process: %s", w.other("set", "f", unix.F_WRLCK, 120, 10))
		w.say("another process: %s", w.other("set", "f", unix.F_RDLCK, 240, 10))
		w.say("another process: %s", w.other("set", "f", unix.F_RDLCK, 250, 10))
		w.say("who has it: %s", w.other("get", "f", unix.F_WRLCK, 0, 0))
		set("split", a, unix.F_UNLCK, 140, 20)
		w.say("in the gap: %s", w.other("set", "f", unix.F_WRLCK, 140, 20))
		w.say("over it: %s", w.other("set", "f", unix.F_WRLCK, 139, 20))
		w.say("who: %s", w.other("get", "f", unix.F_WRLCK, 145, 1000))
		set("read lock", a, unix.F_RDLCK, 100, 40)
		w.say("shared: %s %s", w.other("set", "f", unix.F_RDLCK, 100, 40),
			w.other("set", "f", unix.F_WRLCK, 100, 1))
		set("to the end", a, unix.F_WRLCK, big, 0)
		w.say("far: %s", w.other("set", "f", unix.F_WRLCK, 1<<40, 1))
		w.say("OFD lock of another: %s", w.other("setofd", "f", unix.F_WRLCK, 100, 1))
		w.close(b) // any descriptor's close gives all of the process's locks up
		w.say("after a close: %s", w.other("set", "f", unix.F_WRLCK, 0, 0))
		w.do("write lock by a reader", unix.FcntlFlock(uintptr(w.open("f", unix.O_RDONLY, 0)), unix.F_SETLK,
			&unix.Flock_t{Type: unix.F_WRLCK}))
		w.do("read lock by a writer", unix.FcntlFlock(uintptr(w.open("f", unix.O_WRONLY, 0)), unix.F_SETLK,
			&unix.Flock_t{Type: unix.F_RDLCK}))
		set("wrong", a, 77, 0, 0)
		set("before the start", a, unix.F_WRLCK, -5, 1)
		set("ending before the start", a, unix.F_WRLCK, 3, -5)
		set("backwards", a, unix.F_WRLCK, 10, -5)
		w.say("backwards: %s %s", w.other("set", "f", unix.F_WRLCK, 5, 1),
			w.other("set", "f", unix.F_WRLCK, 10, 1))
	}},
	{name: "OFD locks", prepare: usual, run: func(w *world) {
		a, b := w.open("f", unix.O_RDWR, 0), w.open("f", unix.O_RDWR, 0)
		set := func(what string, fd int, kind int16, start, n int64) {
			w.do(what, unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind,
				Start: start, Len: n}))
		}
		set("a", a, unix.F_WRLCK, 0, 100)
		set("b the same", b, unix.F_WRLCK, 50, 100)
		set("b beside", b, unix.F_WRLCK, 100, 100)
		set("b reads", b, unix.F_RDLCK, 0, 10)
		lk := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(uintptr(b), unix.F_OFD_GETLK, &lk)
		w.say("%s %d %d %d %d", errnoName(err), lk.Type, lk.Start, lk.Len, lk.Pid)
		w.say("another process: %s", w.other("set", "f", unix.F_WRLCK, 0, 10))
		dup, err := unix.Dup(a)
		w.need(err)
		w.close(a)
		set("b while a dup lives", b, unix.F_WRLCK, 0, 10)
		unix.Close(dup)
		set("b after it", b, unix.F_WRLCK, 0, 10)
	}},
	{name: "leases", prepare: usual, run: func(w *world) {
		fd := w.open("f", unix.O_RDONLY, 0)
		if w.state == "fresh" { // a writer has it open
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
			w.do("read lease", err)
			return
		}
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		w.do("read lease", err)
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		w.do("unlock", err)
	}},
}
