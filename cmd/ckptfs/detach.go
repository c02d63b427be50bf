package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// detach unmounts without the daemon: as root by the system call, else by fusermount3. lazy takes the mount
// out of the tree at once and leaves it to those who still use it. A mount in use is EBUSY.
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

// release unmounts a store's mount from its daemon. A program that has just closed a file may not
// have left yet, so a mount in use is tried a few times.
func release(mountpoint, store string, lazy bool) error {
	var err error
	for pause := 5 * time.Millisecond; pause < 200*time.Millisecond; pause *= 2 {
		mounts, merr := mountinfo.GetMounts(nil)
		if merr != nil {
			return fmt.Errorf("read the list of mounts: %w", merr)
		}
		ours := func(m *mountinfo.Info) bool {
			return m.FSType == fsType && m.Source == store && m.Mountpoint == mountpoint
		}
		if !slices.ContainsFunc(mounts, ours) {
			return nil // another process did it
		}
		if p := inMount(mountpoint, mounts); p == nil || !ours(p.mount) {
			return fmt.Errorf("%s: another file system is mounted over it, which is to be unmounted first: %w", mountpoint, syscall.EBUSY)
		}
		if err = detach(mountpoint, lazy); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(pause)
	}
	return err
}

// abort takes the mount out of the tree and from those who use it: what they ask of it fails from then on.
// Without the right to do that it is only detached, and the end of the daemon does the rest.
func abort(mountpoint string) error {
	err := unix.Unmount(mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, syscall.EPERM) {
		return detach(mountpoint, true)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", mountpoint, err)
	}
	return nil
}

// asBusy finds EBUSY in what fusermount3 wrote: it gives no other sign.
func asBusy(err error) error {
	if err != nil && !errors.Is(err, syscall.EBUSY) &&
		strings.Contains(strings.ToLower(err.Error()), "busy") {
		return fmt.Errorf("%w (%w)", err, syscall.EBUSY)
	}
	return err
}
