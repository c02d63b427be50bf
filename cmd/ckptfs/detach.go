package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach unmounts without the daemon: as root by the system call, else by fusermount3. lazy takes the mount out of
// the tree at once and leaves it to those who still use it. A mount in use is EBUSY.
func detach(mountpoint string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(mountpoint, flags)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("unmount %s: %w", mountpoint, err)
	}
	arg := "-u"
	if lazy {
		arg = "-uz"
	}
	var msg bytes.Buffer
	cmd := exec.Command("fusermount3", arg, "--", mountpoint)
	cmd.Stderr = &msg
	if err := cmd.Run(); err != nil {
		return asBusy(fmt.Errorf("unmount %s: %w: %s", mountpoint, err, bytes.TrimSpace(msg.Bytes())))
	}
	return nil
}

// asBusy finds EBUSY in what fusermount3 wrote: it gives no other sign.
func asBusy(err error) error {
	if err != nil && !errors.Is(err, syscall.EBUSY) && strings.Contains(strings.ToLower(err.Error()), "busy") {
		return fmt.Errorf("%w (%w)", err, syscall.EBUSY)
	}
	return err
}
