package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/host"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/unmount"
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
	if err := a.checkStore(ctx, c, mounts); err != nil {
		return err
	}
	return host.Here().CheckFUSE(c.allowOther)
}

func (a *app) checkMountpoint(ctx context.Context, c *mountConfig, mounts []*mountinfo.Info) error {
	// A dead mount may cover another.
	var err error
	for range mounts {
		if p := place.InMount(c.mountpoint, mounts); p != nil && p.Mount.Mountpoint == c.mountpoint &&
			p.Store == c.store && hangs(ctx, p) {
			if err := unmount.Abort(c.mountpoint); err != nil {
				return fmt.Errorf("%s: a mount of %s hangs there, and it cannot be aborted: %w; `umount -f %[1]s`, as root, does it", c.mountpoint, p.Store, err)
			}
			fmt.Fprintf(a.err, "ckptfs: %s: cleared a mount of %s that hung without a daemon\n", c.mountpoint, p.Store)
			if mounts, err = mountinfo.GetMounts(nil); err != nil {
				return fmt.Errorf("read the list of mounts: %w", err)
			}
			continue
		}
		// stat(2) of a dead mount is answered from the kernel's cache; statfs(2) never is.
		var dead syscall.Statfs_t
		err = syscall.Statfs(c.mountpoint, &dead)
		if !errors.Is(err, syscall.ENOTCONN) {
			break
		}
		p := place.InMount(c.mountpoint, mounts)
		if p == nil || p.Mount.Mountpoint != c.mountpoint {
			return exit.With(exit.Busy, fmt.Errorf("%s: a FUSE mount is there, not of ckptfs, and its daemon is gone: `fusermount3 -uz %[1]s` clears it", c.mountpoint))
		}
		if err := unmount.Detach(c.mountpoint, true); err != nil {
			return fmt.Errorf("%s: a mount of %s is there whose daemon is gone, and it cannot be cleared: %w; `fusermount3 -uz %[1]s`, as root, clears it", c.mountpoint, p.Store, err)
		}
		fmt.Fprintf(a.err, "ckptfs: %s: cleared a mount of %s whose daemon was gone\n", c.mountpoint, p.Store)
		if mounts, err = mountinfo.GetMounts(nil); err != nil {
			return fmt.Errorf("read the list of mounts: %w", err)
		}
	}
	unfit := func(format string, args ...any) error {
		return exit.With(exit.Mountpoint, fmt.Errorf(format, args...))
	}
	if c.mountpoint == c.store {
		return unfit("%s is to be the store and the mountpoint, which would cover it: give another mountpoint", c.store)
	}
	if c.mkdir && !c.fake && !procs.Within(c.mountpoint, c.store) {
		if err := os.Mkdir(c.mountpoint, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return unfit("mountpoint: %w", err)
		}
	}
	st, err := os.Stat(c.mountpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unfit("mountpoint %s does not exist: `mkdir -p %s` makes it, or --mkdir", c.mountpoint, text.Word(c.mountpoint))
	case err != nil:
		return unfit("mountpoint: %w", err)
	case !st.IsDir():
		return unfit("mountpoint %s is not a directory: give an empty one", c.mountpoint)
	}
	c.mountpoint = resolve(c.mountpoint)
	if p := place.InMount(c.mountpoint, mounts); p != nil && p.Mount.Mountpoint == c.mountpoint {
		return exit.With(exit.Busy, fmt.Errorf("%s: %s is mounted there already%s; `ckptfs umount %s` ends that",
			c.mountpoint, p.Store, by(ctx, p.Store), text.Word(c.mountpoint)))
	}
	switch {
	case procs.Within(c.mountpoint, c.store):
		return unfit("mountpoint %s lies in the store %s: give one outside", c.mountpoint, c.store)
	case procs.Within(c.store, c.mountpoint):
		return unfit("the store %s lies below the mountpoint %s, which would cover it: give another mountpoint", c.store, c.mountpoint)
	}
	if os.Geteuid() != 0 && unix.Access(c.mountpoint, unix.W_OK) != nil {
		return exit.With(exit.NoFUSE, fmt.Errorf("mountpoint %s: user %d may not write there, and only root may mount on such: `chown %[2]d %[1]s`, or give another", c.mountpoint, os.Geteuid()))
	}
	if c.nonEmpty {
		return nil
	}
	names, err := namesIn(c.mountpoint)
	if err != nil {
		return unfit("mountpoint: %w", err)
	}
	if len(names) > 0 {
		return unfit("mountpoint %s is not empty, %q is in it and would be covered: move it away (a program may have written there while nothing was mounted), or give --non-empty", c.mountpoint, names[0])
	}
	return nil
}

// namesIn is one of the names in a folder, if there is one.
func namesIn(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

func (a *app) checkStore(ctx context.Context, c *mountConfig, mounts []*mountinfo.Info) error {
	if err := place.Nested(c.store, mounts); err != nil && !c.readOnly {
		return exit.With(exit.NotStore, fmt.Errorf("store %w", err))
	}
	st, err := os.Stat(c.store)
	if errors.Is(err, fs.ErrNotExist) && c.readOnly {
		return exit.With(exit.NotStore, fmt.Errorf("store %s does not exist, and a mount for reading makes none: mount it without --read-only", c.store))
	}
	if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(c.store)
		if st, err := os.Stat(parent); err != nil || !st.IsDir() {
			return exit.With(exit.NotStore, fmt.Errorf("store %s does not exist, and cannot be made: there is no folder %s: `mkdir -p %s`", c.store, parent, text.Word(parent)))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	access := uint32(unix.R_OK | unix.W_OK | unix.X_OK)
	if c.readOnly {
		access &^= unix.W_OK
	}
	if st.IsDir() && unix.Access(c.store, access) == unix.EACCES {
		owner := ""
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			owner = fmt.Sprintf("; user %d owns it and can mount it, as can root", sys.Uid)
		}
		return exit.With(exit.NoFUSE, fmt.Errorf("store %s: user %d may not use it%s", c.store, os.Geteuid(), owner))
	}
	if !st.IsDir() {
		return exit.With(exit.NotStore, fmt.Errorf("store %s is not a directory: give a folder", c.store))
	}
	for _, m := range mounts {
		if m.FSType == place.FSType && m.Source == c.store && m.Root == "/" {
			who := by(ctx, c.store)
			if who == "" { // its daemon is gone, or a reader: the lock decides
				continue
			}
			return exit.With(exit.Busy, fmt.Errorf("store %s is mounted on %s already%s; `ckptfs umount %s` ends that", c.store, m.Mountpoint, who, text.Word(m.Mountpoint)))
		}
	}
	d, err := tree.OpenStore(c.store, a.foreign)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := tree.ReadFormat(d); err != nil && !errors.Is(err, tree.ErrNotStore) {
		return err
	}
	if lost := tree.LostAttributes(d); lost != "" {
		fmt.Fprintf(a.err, "ckptfs: %s has lost the record of what it is: the store was copied without its extended attributes, "+
			"and reads of such files fail; unmounted, `ckptfs repair tree %s` restores them\n", text.Printable(lost), text.Word(c.store))
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
