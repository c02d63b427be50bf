package fusefs

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// makesNew reports whether thread tid asks for a name to make something new there: an open with O_CREAT|O_EXCL, mkdir, mknod or
// symlink. A LOOKUP tells nothing of it, and a name that is found is EEXIST before a CREATE is ever sent. `cp -r` opens so what
// it copies into a folder that it made itself: a view that has appeared in there meanwhile must not be in its way.
//
// The thread waits in that very system call, and /proc tells its arguments to those who may trace it: root, and the same user where
// Yama does not forbid it. Who may not know gets false. proc is /proc.
func makesNew(proc string, tid uint32) bool {
	text, err := os.ReadFile(proc + "/" + strconv.FormatUint(uint64(tid), 10) + "/syscall")
	if err != nil {
		return false
	}
	f := strings.Fields(string(text)) // number, six arguments, stack and program counter; or the word "running"
	if len(f) < 7 {
		return false
	}
	number, err := strconv.Atoi(f[0])
	if err != nil {
		return false
	}
	arg := func(i int) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(f[1+i], "0x"), 16, 64)
		return n
	}
	const exclusive = unix.O_CREAT | unix.O_EXCL
	switch number {
	case unix.SYS_OPENAT:
		return arg(2)&exclusive == exclusive
	case unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_SYMLINKAT:
		return true
	}
	return oldMakesNew(number, arg)
}
