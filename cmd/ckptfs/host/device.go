package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// CheckFUSE says, as an Error, what is missing to mount at all. Another may still refuse: see Refused.
func (h *Host) CheckFUSE(allowOther bool) error {
	if err := h.checkFUSE(allowOther); err != nil {
		return &Error{err}
	}
	return nil
}

func (h *Host) checkFUSE(allowOther bool) error {
	if err := h.checkDevice(); err != nil {
		return err
	}
	if !h.may("CapBnd", unix.CAP_SYS_ADMIN) {
		what := "no process here may have CAP_SYS_ADMIN, which mounting needs"
		if h.container() == none {
			what += ": a service needs it in its CapabilityBoundingSet; in a container"
		}
		return h.inContainer(what)
	}
	if h.uid == 0 && h.may("CapEff", unix.CAP_SYS_ADMIN) {
		return nil
	}
	if err := h.checkHelper(); err != nil {
		return err
	}
	if allowOther && h.uid != 0 && !h.allowsOthers() {
		return errors.New("--allow-other is for root, unless /etc/fuse.conf has a line user_allow_other: add it as root, or mount without")
	}
	return nil
}

// inContainer is an error whose repair is outside of the container, if this is one.
func (h *Host) inContainer(what string) error {
	return fmt.Errorf("%s: %s", what, h.container().start())
}

func (h *Host) checkDevice() error {
	const device = "/dev/fuse"
	f, err := os.OpenFile(filepath.Join(h.root+"/", device), os.O_RDWR, 0)
	if err == nil {
		return f.Close()
	}
	in := h.container()
	switch {
	case in != none && errors.Is(err, fs.ErrNotExist):
		return h.inContainer("there is no " + device)
	case errors.Is(err, syscall.EPERM): // by cgroup
		return h.inContainer("this container's devices do not have " + device)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened by user %d: `chmod 666 %[1]s` as root, which is its mode where udev runs (%[3]w)", device, h.uid, err)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.ENXIO):
		return err
	case h.knowsFUSE():
		return fmt.Errorf("there is no %s, though the kernel has FUSE: `mknod -m 666 %[1]s c 10 229` as root; in a container: %[2]s", device, in.start())
	case h.read("proc/sys/kernel/modules_disabled") == "1":
		return fmt.Errorf("there is no %s, and the kernel loads no more modules (kernel.modules_disabled=1): boot with the module fuse loaded", device)
	}
	return fmt.Errorf("there is no %s: `modprobe fuse` as root loads the module; in a container: %s", device, in.start())
}

// knowsFUSE says whether the kernel has FUSE already.
func (h *Host) knowsFUSE() bool {
	for line := range strings.Lines(h.read("proc/filesystems")) {
		if strings.TrimSpace(line) == "fuse" || strings.HasSuffix(strings.TrimSpace(line), "\tfuse") {
			return true
		}
	}
	return false
}

// helper is the program that mounts for users.
const helper = "fusermount3"

func (h *Host) checkHelper() error {
	program, err := h.find(helper)
	if err != nil {
		return fmt.Errorf("there is no fusermount3, which mounts for users other than root: `%s` as root", h.install())
	}
	st, err := os.Stat(program)
	switch {
	case err == nil && st.Mode()&fs.ModeSetuid == 0:
		return fmt.Errorf("%s does not run as root, and so cannot mount: `chmod u+s %[1]s` as root (the package fuse3 does so)", program)
	case h.nosuid(program):
		return fmt.Errorf("%s cannot become root, and so cannot mount: its filesystem is mounted nosuid. Have root mount, or put it elsewhere", program)
	case h.status("NoNewPrivs") == "1":
		return fmt.Errorf("%s cannot become root, and so cannot mount: this process and all that it starts may get no new rights. Docker: leave out --security-opt no-new-privileges; Kubernetes: allowPrivilegeEscalation: true; systemd: NoNewPrivileges=no", program)
	case !h.hasRoot():
		return fmt.Errorf("%s cannot become root, and so cannot mount: this user namespace has no user 0. `unshare --map-root-user --mount` makes one in which ckptfs mounts by itself", program)
	}
	return nil
}

// installs are how distributions install the package, by their ID, or one they are like, in os-release(5).
var installs = map[string]string{
	"debian": "apt install fuse3", "ubuntu": "apt install fuse3", "fedora": "dnf install fuse3",
	"rhel": "dnf install fuse3", "suse": "zypper install fuse3", "opensuse": "zypper install fuse3",
	"arch": "pacman -S fuse3", "alpine": "apk add fuse3", "gentoo": "emerge sys-fs/fuse",
}

func (h *Host) install() string {
	var id, like string
	for line := range strings.Lines(h.read("etc/os-release")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `"'`); name {
		case "ID":
			id = value
		case "ID_LIKE":
			like = value
		}
	}
	for _, id := range append([]string{id}, strings.Fields(like)...) {
		if how, ok := installs[id]; ok {
			return how
		}
	}
	return "apt install fuse3"
}

// allowsOthers says whether fuse.conf lets users give their mounts to others.
func (h *Host) allowsOthers() bool {
	for line := range strings.Lines(h.read("etc/fuse.conf")) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}
