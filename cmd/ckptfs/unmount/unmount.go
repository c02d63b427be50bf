// Package unmount takes mounts away without asking their daemons.
package unmount

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Detach unmounts without the daemon: as root by the system call, else by fusermount3. lazy takes the mount
// out of the tree at once and leaves it to those who still use it. A mount in use is EBUSY.
func Detach(mountpoint string, lazy bool) error {
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

// Abort takes the mount out of the tree and from those who use it: what they ask of it fails from then on.
// Without the right to do that, and without fusectl, it is only detached, and the end of the daemon does the
// rest.
func Abort(mountpoint string) error {
	err := unix.Unmount(mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, syscall.EPERM) {
		mounts, _ := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
			return m.Mountpoint != mountpoint, false
		})
		if n := len(mounts); n > 0 { // the last one covers the others
			control := fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", mounts[n-1].Minor) // the mounter's
			_ = os.WriteFile(control, []byte("1"), 0)
		}
		return Detach(mountpoint, true)
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
