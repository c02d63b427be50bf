package fusefs

import "golang.org/x/sys/unix"

// oldMakesNew knows the system calls that came before those relative to a directory, and that newer architectures lack.
func oldMakesNew(number int, arg func(int) uint64) bool {
	switch number {
	case unix.SYS_OPEN:
		const exclusive = unix.O_CREAT | unix.O_EXCL
		return arg(1)&exclusive == exclusive
	case unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_SYMLINK:
		return true
	}
	return false
}
