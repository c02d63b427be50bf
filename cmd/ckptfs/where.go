package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/tree"
)

// fsType is the type that mountinfo shows for our mounts.
const fsType = "fuse.ckptfs"

// place is what a path on the command line means.
type place struct {
	store string          // absolute
	mount *mountinfo.Info // the mount that the path lies in; nil when it was found through the store's folder
	path  string          // relative to the mount's root, "" is the root
	gone  bool            // the mount has no such path; the store may know what was there
}

// full is where this process finds a path of the place's store: in its mount, else in the store's folder.
func (p *place) full(path string) string {
	if p.mount != nil {
		return filepath.Join(p.mount.Mountpoint, path)
	}
	return filepath.Join(p.store, tree.TreeDir, path)
}

// device is that of the place's mount.
func (p *place) device() procs.Device {
	return procs.Device{Major: p.mount.Major, Minor: p.mount.Minor}
}

// find says what path means, in this process's mounts.
func find(path string) (*place, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the list of mounts: %w", err)
	}
	return findIn(path, mounts)
}

// findInside is find of a path that may be spelt STORE/PATH, whether the store is mounted or not, and whose
// last names need not be on the disk: views are not.
func findInside(path string) (*place, error) {
	there, rest, err := existing(path)
	if err != nil {
		return nil, err
	}
	p, err := find(there)
	if err == nil && p.mount == nil && p.path == "" && rest != "" {
		if there, rest, err = existing(p.full(rest)); err == nil {
			p, err = find(there)
		}
	}
	if err != nil {
		return nil, err
	}
	p.path = filepath.Join(p.path, rest)
	return p, nil
}

// existing is the longest beginning of a path that is there, and the rest.
func existing(path string) (there, rest string, err error) {
	if there, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != "/"; _, err = os.Lstat(there) {
		there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest)
	}
	return there, rest, nil
}

// findIn touches as little as it can on the way: a mount whose daemon died or hangs must still be found. A
// path that spells a mountpoint is taken as that without asking anybody.
func findIn(path string, mounts []*mountinfo.Info) (*place, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	spelt := inMount(abs, mounts)
	if spelt != nil && spelt.mount.Mountpoint == abs {
		return spelt, nil
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		if spelt != nil { // the daemon will say what is wrong with it, if it lives
			spelt.gone = errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
			return spelt, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &exitError{exitNotStore, fmt.Errorf("%s: no such file or directory; give a path inside a ckptfs mount, or a store's folder", path)}
		}
		return nil, err
	}
	if p := inMount(resolved, mounts); p != nil {
		return p, nil
	}
	if err := unix.Access(resolved, unix.X_OK); err == unix.EACCES && isDir(resolved) {
		return nil, fmt.Errorf("%s: %w; only the store's owner and root may ask for it", path, err)
	}
	p, err := inStore(resolved)
	if err == nil && p == nil {
		err = fmt.Errorf("%s: in no ckptfs mount, and %w; `ckptfs mount STORE MOUNTPOINT` mounts (and makes) one", path, tree.ErrNotStore)
	}
	return p, err
}

// inMount is the place of an absolute path if the mount it lies in is one of ours, else nil. Of mounts on one
// mountpoint the last covers the others.
func inMount(abs string, mounts []*mountinfo.Info) *place {
	var top *mountinfo.Info
	for _, m := range mounts {
		if procs.Within(abs, m.Mountpoint) && (top == nil || len(m.Mountpoint) >= len(top.Mountpoint)) {
			top = m
		}
	}
	if top == nil || top.FSType != fsType {
		return nil
	}
	// Root is not "/" for a bind mount of a folder of the mount.
	inside := filepath.Join(top.Root, strings.TrimPrefix(abs, strings.TrimSuffix(top.Mountpoint, "/")))
	return &place{store: top.Source, mount: top, path: strings.TrimPrefix(inside, "/")}
}

// mountOf is the first mount of a store that this process sees, nil if there is none. It asks nobody.
func mountOf(store string) *mountinfo.Info {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.FSType == fsType && m.Source == store && m.Root == "/" {
			return m
		}
	}
	return nil
}

// mountpointOf is where this process sees a store mounted, "" if nowhere.
func mountpointOf(store string) string {
	if m := mountOf(store); m != nil {
		return m.Mountpoint
	}
	return ""
}

// inStore is the place of an absolute path in a store's folder: the folder itself, or a name below its tree.
// nil when there is no store up to the root. What lies in the tree of a store is a user's, though it may look
// like another store.
func inStore(abs string) (*place, error) {
	var found *place
	var own error
	for dir := abs; ; dir = filepath.Dir(dir) {
		if isStore(dir) {
			names := filepath.Join(dir, tree.TreeDir)
			switch {
			case procs.Within(abs, names):
				found = &place{store: dir, path: strings.TrimPrefix(strings.TrimPrefix(abs, names), "/")}
			case found != nil || own != nil:
			case dir == abs:
				found = &place{store: dir}
			default:
				own = &exitError{exitNotStore, fmt.Errorf("%s is one of the store's own files; name the store, %s, or a file below %s", abs, dir, names)}
			}
		}
		if dir != filepath.Dir(dir) {
			continue
		}
		if found != nil {
			return found, nil
		}
		return nil, own
	}
}

// isStore looks whether the folder says it is a store, of whatever version.
func isStore(dir string) bool {
	path := filepath.Join(dir, tree.FormatFile)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // a FIFO would wait
	if errors.Is(err, unix.ELOOP) {
		return isDir(filepath.Join(dir, tree.TreeDir)) // what opens it says that it is a link
	}
	if errors.Is(err, fs.ErrPermission) {
		st, err := os.Lstat(path)
		return err == nil && st.Mode().IsRegular() // another user's; its daemon will say so
	}
	if err != nil {
		return false
	}
	defer f.Close()
	const magic = "ckptfs "
	head := make([]byte, len(magic))
	_, err = f.Read(head)
	return err == nil && string(head) == magic
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// deviceOf is the device of the filesystem that is mounted there, in this process's mounts.
func deviceOf(mountpoint string) (procs.Device, bool) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return procs.Device{}, false
	}
	p := inMount(mountpoint, mounts)
	if p == nil || p.mount.Mountpoint != mountpoint {
		return procs.Device{}, false
	}
	return procs.Device{Major: p.mount.Major, Minor: p.mount.Minor}, true
}
