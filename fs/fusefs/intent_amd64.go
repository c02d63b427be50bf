package fusefs

import "golang.org/x/sys/unix"

func withOld(calls map[uint64]newName) map[uint64]newName {
	calls[unix.SYS_OPEN] = newName{path: 0, flags: 1, need: openExclusive}
	calls[unix.SYS_MKDIR] = newName{path: 0, flags: -1}
	calls[unix.SYS_MKNOD] = newName{path: 0, flags: -1}
	calls[unix.SYS_SYMLINK] = newName{path: 1, flags: -1}
	calls[unix.SYS_LINK] = newName{path: 1, flags: -1}
	return calls
}
