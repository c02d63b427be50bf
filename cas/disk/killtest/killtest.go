// Package killtest kills a process between two changes that it makes to files: before the first, before the
// second, and so on. The process is a test that runs itself once more:
//
//	parent                                  child
//	  Run(command, n)  ── starts ─────────▶   prepares
//	  ◀── a file that tells of changes ────   Watch()
//	  change 0, 1, … n-1: goes on ────────▶   works
//	  change n: SIGKILL                       is gone; change n was not made
//
// Fail has changes fail instead, as on a disk that is full.
//
// A change is a system call that changes a name, an attribute or what a regular file holds. The kernel stops
// the child at each (seccomp_unotify(2)). Nothing of the child needs to know where it may be killed. What a
// child writes by a mapping, or has the kernel copy, is no change.
package killtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketFd is the child's end of the socket over which it hands over the file that tells of its changes.
const socketFd = 3

// Change is a system call that changes files.
type Change struct {
	Call string
	Of   string // the name, or the path of the file, as far as that is known
}

func (c Change) String() string { return c.Call + " " + c.Of }

// call says which of its arguments tell what a system call changes.
type call struct {
	name   string
	path   int  // of the name; -1: none
	file   int  // of a file that is open; -1: none
	writes bool // counts for regular files alone
}

var calls = map[int32]call{
	unix.SYS_OPENAT:       {"open", 1, -1, false},
	unix.SYS_OPENAT2:      {"open", 1, -1, false},
	unix.SYS_MKDIRAT:      {"mkdir", 1, -1, false},
	unix.SYS_SYMLINKAT:    {"symlink", 2, -1, false},
	unix.SYS_LINKAT:       {"link", 3, -1, false},
	unix.SYS_UNLINKAT:     {"unlink", 1, -1, false},
	unix.SYS_RENAMEAT:     {"rename", 3, -1, false},
	unix.SYS_RENAMEAT2:    {"rename", 3, -1, false},
	unix.SYS_SETXATTR:     {"setxattr", 0, -1, false},
	unix.SYS_LSETXATTR:    {"setxattr", 0, -1, false},
	unix.SYS_FSETXATTR:    {"setxattr", -1, 0, false},
	unix.SYS_REMOVEXATTR:  {"removexattr", 0, -1, false},
	unix.SYS_LREMOVEXATTR: {"removexattr", 0, -1, false},
	unix.SYS_FREMOVEXATTR: {"removexattr", -1, 0, false},
	unix.SYS_FCHMODAT:     {"chmod", 1, -1, false},
	unix.SYS_FCHMOD:       {"chmod", -1, 0, false},
	unix.SYS_UTIMENSAT:    {"utimes", 1, 0, false},
	unix.SYS_WRITE:        {"write", -1, 0, true},
	unix.SYS_PWRITE64:     {"write", -1, 0, true},
	unix.SYS_FTRUNCATE:    {"truncate", -1, 0, true},
	unix.SYS_FALLOCATE:    {"fallocate", -1, 0, true},
}

// Watch has the parent see each change from here on. It is called once, in the child.
func Watch() error {
	runtime.LockOSThread() // no_new_privs is the thread's until the filter is everybody's
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	code := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the call's number
	left := len(calls)
	for nr := range calls {
		code = append(code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			Jt: uint8(left), K: uint32(nr)})
		left--
	}
	code = append(code, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC|
			unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return unix.Sendmsg(socketFd, []byte{0}, unix.UnixRights(int(fd)), nil, 0)
}

// Run runs a child and kills it before the change n, counted from 0; if it makes no more than n, once it is
// done, which it says by killing itself. It returns the changes until then, the one that was not made last.
func Run(cmd *exec.Cmd, n int) (changes []Change, killed bool, err error) {
	return run(cmd, func(i int, _ Change) (unix.Errno, bool) { return 0, i >= n })
}

// Fail runs a child until it is done. how says, of each change by its number, with which error it fails; 0:
// it is made. It returns all of them.
func Fail(cmd *exec.Cmd, how func(i int, c Change) unix.Errno) (changes []Change, err error) {
	changes, _, err = run(cmd, func(i int, c Change) (unix.Errno, bool) { return how(i, c), false })
	return changes, err
}

// run runs a child. before says of each change with which error it fails, or that the child is killed.
func run(cmd *exec.Cmd, before func(i int, c Change) (unix.Errno, bool)) (
	changes []Change, killed bool, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, false, err
	}
	fd, err := listener(pair[0])
	if err == nil {
		changes, killed, err = watch(cmd.Process, fd, before)
		unix.Close(fd)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(interface{ Signaled() bool }); err == nil && !ws.Signaled() {
		err = fmt.Errorf("the child failed: %v", cmd.ProcessState)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out.Bytes())
	}
	return changes, killed, err
}

// listener receives the file that the child sends.
func listener(socket int) (fd int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, k, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	all, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil || len(all) != 1 {
		return -1, fmt.Errorf("the child sent nothing: %v", err)
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// notification and answer are seccomp_notif and seccomp_notif_resp of linux/seccomp.h.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// watch asks before each change of the child.
func watch(child *os.Process, fd int, before func(i int, c Change) (unix.Errno, bool)) (
	changes []Change, killed bool, err error) {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return changes, false, err
		}
		if p[0].Revents&unix.POLLIN == 0 {
			return changes, false, nil // it ended
		}
		var of notification
		switch err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&of)); err {
		case 0:
		case unix.EINTR, unix.ENOENT: // who made it is gone
			continue
		default:
			return changes, false, err
		}
		a := answer{id: of.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if c, ok := of.change(); ok {
			errno, kill := before(len(changes), c)
			changes = append(changes, c)
			if kill {
				return changes, true, child.Kill()
			}
			if errno != 0 {
				a.flags, a.errno = 0, -int32(errno)
			}
		}
		switch err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); err {
		case 0, unix.ENOENT:
		default:
			return changes, false, err
		}
	}
}

func ioctl(fd int, request uintptr, p unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(p))
	return errno
}

// change is what a system call changes; none, if it opens what is there, or writes to no regular file.
func (n *notification) change() (c Change, ok bool) {
	of := calls[n.nr]
	c.Call = of.name
	if of.path >= 0 {
		c.Of = n.text(n.args[of.path])
	}
	switch n.nr {
	case unix.SYS_OPENAT:
		return c, makes(n.args[2])
	case unix.SYS_OPENAT2:
		return c, makes(binary.NativeEndian.Uint64(n.memory(n.args[2], 8)))
	}
	if of.file < 0 || c.Of != "" {
		return c, true
	}
	at := fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[of.file]))
	var st unix.Stat_t
	if of.writes && (unix.Stat(at, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG) {
		return c, false
	}
	c.Of, _ = os.Readlink(at)
	return c, true
}

// makes reports whether an open with these flags may make a name, or empty a file.
func makes(flags uint64) bool { return flags&(unix.O_CREAT|unix.O_TRUNC) != 0 }

// text is a string in the child's memory.
func (n *notification) text(at uint64) string {
	s, _, _ := bytes.Cut(n.memory(at, 256), []byte{0})
	return string(s)
}

// memory is a piece of the child's memory, with zeros where it has none.
func (n *notification) memory(at uint64, size int) []byte {
	p := make([]byte, size)
	f, err := os.Open("/proc/" + strconv.Itoa(int(n.pid)) + "/mem")
	if err != nil {
		return p
	}
	defer f.Close()
	_, _ = f.ReadAt(p, int64(at)) // what follows a string may be nobody's
	return p
}
