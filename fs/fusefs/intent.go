package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A LOOKUP does not say what the name is wanted for. A view is to be found by a program that opens it and to
// be out of the way of one that makes something of its name, where the kernel itself answers EEXIST as soon
// as the lookup found anything. So the system call that the caller waits in is looked at: /proc/TID/syscall
// has its number and arguments, in hexadecimal:
//
//	257 0xffffff9c 0x7ffd0b7e0420 0xc1 0x1a4 0x0 0x0 0x7ffd0b7dfb68 0x7f2a4c0f9a3b
//
// Where it cannot be read (a caller in another pid namespace or of another user, io_uring) the view is found
// by every caller, and such a call answers EEXIST. That answer for all callers would be simpler. The reading
// is kept so that a program can make a file or a folder by a view's name where it could in a plain directory.

// newName says which arguments of a system call make a new name: the path's, and what has to hold of the
// flags.
type newName struct {
	path  int    // index of the argument that points to the path
	flags int    // index of the argument with the flags, or -1
	need  uint64 // flags that make it so
}

const openExclusive = unix.O_CREAT | unix.O_EXCL

// makes reports whether the thread is in a system call that makes something new by this name.
func makes(tid uint32, name string) bool {
	if tid == 0 {
		return false
	}
	number, args, ok := parseSyscall(syscallOf(tid))
	if !ok {
		return false
	}
	var flags uint64
	n, ok := newNames[number]
	// its flags are the first word of what the third argument points to
	if !ok && number == unix.SYS_OPENAT2 {
		var word [8]byte
		if !readMemory(tid, args[2], word[:]) {
			return false
		}
		n, ok = newName{path: 1, flags: 2, need: openExclusive}, true
		flags = uint64(word[0]) | uint64(word[1])<<8 | uint64(word[2])<<16
	} else if ok && n.flags >= 0 {
		flags = args[n.flags]
	}
	if !ok || n.flags >= 0 && flags&n.need != n.need {
		return false
	}
	// Other names are looked up in the same call: of the folders above, of what is linked or renamed.
	return lastName(tid, args[n.path]) == name
}

// syscallOf reads /proc/TID/syscall. The thread has asked and may not have gone to sleep yet; it will, for it
// waits for the answer.
func syscallOf(tid uint32) string {
	const patience = 10 * time.Millisecond
	for start := time.Now(); ; time.Sleep(20 * time.Microsecond) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", tid))
		if err != nil || !bytes.HasPrefix(line, []byte("running")) || time.Since(start) > patience {
			return string(line)
		}
	}
}

// parseSyscall reads a line of /proc/TID/syscall. It tells nothing of a thread that runs, or is
// stopped elsewhere.
func parseSyscall(line string) (number uint64, args [6]uint64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 7 {
		return 0, args, false
	}
	number, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0, args, false
	}
	for i := range args {
		if args[i], err = strconv.ParseUint(fields[i+1], 0, 64); err != nil {
			return 0, args, false
		}
	}
	return number, args, true
}

// lastName is the last part of the path at an address of the thread's process, or "".
func lastName(tid uint32, addr uint64) string {
	path := make([]byte, 0, unix.PathMax)
	for len(path) < unix.PathMax {
		// To the end of a page at a time: the next one may not be there.
		part := make([]byte, 4096-(addr+uint64(len(path)))%4096)
		if !readMemory(tid, addr+uint64(len(path)), part) {
			return ""
		}
		if i := bytes.IndexByte(part, 0); i >= 0 {
			s := strings.TrimRight(string(append(path, part[:i]...)), "/")
			return s[strings.LastIndexByte(s, '/')+1:]
		}
		path = append(path, part...)
	}
	return ""
}

func readMemory(tid uint32, addr uint64, p []byte) bool {
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	n, err := unix.ProcessVMReadv(int(tid), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}, 0)
	return err == nil && n == len(p)
}
