// Package nofuse says why nothing can be mounted on a machine, or by a user, and what to do about it.
package nofuse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Error is why nothing can be mounted.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() + without }
func (e *Error) Unwrap() error { return e.err }

// without is what can be done all the same.
const without = "; without a mount `ckptfs ls|cat|cp|export STORE/PATH` read a store"

func cannot(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

const container = "a container needs --device /dev/fuse --cap-add SYS_ADMIN"

// Check says what is missing on this machine, or to this user, to mount at all.
func Check(device, conf string, allowOther bool) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return cannot("there is no %s: `modprobe fuse` loads the module; %s (%w)", device, container, err)
	case errors.Is(err, fs.ErrPermission):
		return cannot("%s may not be opened: %s; elsewhere the device's mode is 0666 (%w)", device, container, err)
	default:
		return cannot("%w", err)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	program, err := exec.LookPath("fusermount3")
	if err != nil {
		return cannot("there is no fusermount3, which mounts for users other than root: install the package fuse3 (%w)", err)
	}
	if st, err := os.Stat(program); err == nil && st.Mode()&fs.ModeSetuid == 0 {
		return cannot("%s does not run as root, and so cannot mount: `chmod u+s %[1]s` as root (the package fuse3 does so)", program)
	}
	if allowOther && !allowsOthers(conf) {
		return cannot("--allow-other is for root, unless %s has a line user_allow_other: add it as root, or mount without", conf)
	}
	return nil
}

// allowsOthers says whether fuse.conf lets users give their mounts to others.
func allowsOthers(conf string) bool {
	b, err := os.ReadFile(conf)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}

// Refused says what to do about a mount that the kernel or fusermount3 refused.
func Refused(mountpoint string, err error) error {
	return refused(mountpoint, strings.TrimSpace(err.Error()), os.Geteuid(), "/")
}

// refused is Refused to a user of the machine whose root folder is root.
func refused(mountpoint, said string, uid int, root string) error {
	return cannot("mount on %s: %s%s", mountpoint, said, hint(mountpoint, uid, root))
}

func hint(mountpoint string, uid int, root string) string {
	if uid == 0 {
		return "; mounting needs CAP_SYS_ADMIN: " + container + ", and often --security-opt apparmor=unconfined"
	}
	if _, err := user.LookupId(strconv.Itoa(uid)); err != nil {
		return fmt.Sprintf("; fusermount3 mounts only for users with a name, and user %d has none in /etc/passwd", uid)
	}
	on, _ := os.ReadFile(root + "sys/module/apparmor/parameters/enabled")
	if _, err := os.Stat(root + profile); err != nil || !strings.HasPrefix(string(on), "Y") {
		return ""
	}
	return fmt.Sprintf("; AppArmor may have denied it (`journalctl -k -g fusermount3` says so): its profile /%s, which "+
		"Ubuntu has since 24.10, allows mountpoints below the home folder, /mnt, /media, /tmp and /run/user alone: mount "+
		"there, or add to /etc/apparmor.d/local/fusermount3, as root, the rules "+
		"`mount fstype=fuse.ckptfs options=(nosuid,nodev) options in (ro,rw) -> %[2]s/,` and `umount %[2]s/,`, and run "+
		"`apparmor_parser -r /%[1]s`", profile, mountpoint)
}

// profile is what confines fusermount3, below the root folder.
const profile = "etc/apparmor.d/fusermount3"
