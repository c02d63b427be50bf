package models

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOf has the owner and the group of a file that was looked at on a disk.
func ownerOf(st os.FileInfo) *syscall.Stat_t { return st.Sys().(*syscall.Stat_t) }

// asUser calls do with what a user and a group may do to files, if root calls it.
func asUser(uid, gid uint32, do func() error) error {
	if os.Geteuid() != 0 || uid == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		_ = unix.Setfsuid(0)
		_ = unix.Setfsgid(os.Getegid())
	}()
	if err := unix.Setfsgid(int(gid)); err != nil {
		return err
	}
	if err := unix.Setfsuid(int(uid)); err != nil {
		return err
	}
	// The call tells of no failure.
	if now, err := unix.SetfsuidRetUid(-1); err != nil || now != int(uid) {
		return fmt.Errorf("files cannot be opened as user %d: %w", uid, unix.EPERM)
	}
	return do()
}
