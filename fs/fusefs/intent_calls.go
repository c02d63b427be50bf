package fusefs

import "golang.org/x/sys/unix"

// The calls that every architecture has; those of the older ones are in intent_amd64.go.
var newNames = withOld(map[uint64]newName{
	unix.SYS_OPENAT:    {path: 1, flags: 2, need: openExclusive},
	unix.SYS_MKDIRAT:   {path: 1, flags: -1},
	unix.SYS_MKNODAT:   {path: 1, flags: -1},
	unix.SYS_SYMLINKAT: {path: 2, flags: -1},
	unix.SYS_LINKAT:    {path: 3, flags: -1},
	unix.SYS_RENAMEAT2: {path: 3, flags: 4, need: unix.RENAME_NOREPLACE},
})
