package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/moby/sys/mountinfo"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// checkMount looks for everything that would make the mount fail, while there is still a terminal to say so.
func (a *app) checkMount(ctx context.Context, c *mountConfig) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("read the list of mounts: %w", err)
	}
	if err := a.checkMountpoint(ctx, c, mounts); err != nil {
		return err
	}
	if err := checkStore(ctx, c, mounts); err != nil {
		return err
	}
	return checkFUSE("/dev/fuse")
}

func (a *app) checkMountpoint(ctx context.Context, c *mountConfig, mounts []*mountinfo.Info) error {
	// A dead mount may cover another.
	for range mounts {
		// stat(2) of a dead mount is answered from the kernel's cache; statfs(2) never is.
		var dead syscall.Statfs_t
		err := syscall.Statfs(c.mountpoint, &dead)
		if !errors.Is(err, syscall.ENOTCONN) {
			break
		}
		p := inMount(c.mountpoint, mounts)
		if p == nil || p.mount.Mountpoint != c.mountpoint {
			return &exitError{exitBusy, fmt.Errorf("%s: a FUSE mount is there, not of ckptfs, and its daemon is gone: `fusermount3 -uz %[1]s` clears it", c.mountpoint)}
		}
		if err := detach(c.mountpoint, true); err != nil {
			return fmt.Errorf("%s: a mount of %s is there whose daemon is gone, and it cannot be cleared: %w", c.mountpoint, p.store, err)
		}
		fmt.Fprintf(a.err, "ckptfs: %s: cleared a mount of %s whose daemon was gone\n", c.mountpoint, p.store)
		if mounts, err = mountinfo.GetMounts(nil); err != nil {
			return fmt.Errorf("read the list of mounts: %w", err)
		}
	}
	st, err := os.Stat(c.mountpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("mountpoint %s does not exist: `mkdir -p %[1]s` makes it", c.mountpoint)
	case err != nil:
		return fmt.Errorf("mountpoint: %w", err)
	case !st.IsDir():
		return fmt.Errorf("mountpoint %s is not a directory", c.mountpoint)
	}
	if resolved, err := filepath.EvalSymlinks(c.mountpoint); err == nil {
		c.mountpoint = resolved
	}
	if p := inMount(c.mountpoint, mounts); p != nil && p.mount.Mountpoint == c.mountpoint {
		return &exitError{exitBusy, fmt.Errorf("%s: %s is mounted there already%s", c.mountpoint, p.store, by(ctx, p.store))}
	}
	switch {
	case within(c.mountpoint, c.store):
		return fmt.Errorf("mountpoint %s lies in the store %s: give one outside", c.mountpoint, c.store)
	case within(c.store, c.mountpoint):
		return fmt.Errorf("the store %s lies below the mountpoint %s, which would cover it", c.store, c.mountpoint)
	}
	return nil
}

func checkStore(ctx context.Context, c *mountConfig, mounts []*mountinfo.Info) error {
	st, err := os.Stat(c.store)
	if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(c.store)
		if st, err := os.Stat(parent); err != nil || !st.IsDir() {
			return &exitError{exitNotStore, fmt.Errorf("store %s does not exist, and cannot be made: there is no folder %s", c.store, parent)}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !st.IsDir() {
		return &exitError{exitNotStore, fmt.Errorf("store %s is not a directory", c.store)}
	}
	for _, m := range mounts {
		if m.FSType == fsType && m.Source == c.store && m.Root == "/" {
			who := by(ctx, c.store)
			if who == "" { // its daemon is gone: the lock decides
				continue
			}
			return &exitError{exitBusy, fmt.Errorf("store %s is mounted on %s already%s", c.store, m.Mountpoint, who)}
		}
	}
	if _, err := tree.ReadFormat(c.store); err != nil && !errors.Is(err, tree.ErrNotStore) {
		return err
	}
	return nil
}

// by is ", by process N" for the daemon that holds the store; "" when none answers.
func by(ctx context.Context, store string) string {
	c, err := control.Dial(ctx, store)
	if err != nil {
		return ""
	}
	defer c.Close()
	if c.PID() == 0 {
		return ", by a process in another container"
	}
	return fmt.Sprintf(", by process %d", c.PID())
}

// checkFUSE says what is missing on this machine to mount at all.
func checkFUSE(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return fmt.Errorf("there is no %s: `modprobe fuse` loads the module; a container needs --device /dev/fuse --cap-add SYS_ADMIN (%w)", device, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened: a container needs --device /dev/fuse --cap-add SYS_ADMIN; elsewhere the device's mode is 0666 (%w)", device, err)
	default:
		return err
	}
	if os.Geteuid() != 0 {
		if _, err := exec.LookPath("fusermount3"); err != nil {
			return fmt.Errorf("there is no fusermount3, which mounts for users other than root: install the package fuse3 (%w)", err)
		}
	}
	return nil
}
