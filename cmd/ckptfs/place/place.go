// Package place says what the paths of a command line mean: which store, which mount of it, and where below
// the mount's root.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

// FSType is the type that mountinfo shows for our mounts.
const FSType = "fuse.ckptfs"

// Place is what a path on the command line means.
type Place struct {
	Store string          // absolute
	Mount *mountinfo.Info // the mount that the path lies in; nil when it was found through the store's folder
	Path  string          // relative to the mount's root, "" is the root
	Gone  bool            // the mount has no such path; the store may know what was there
}

// Full is where this process finds a path of the place's store: in its mount, else in the store's folder.
func (p *Place) Full(path string) string {
	if p.Mount != nil {
		return filepath.Join(p.Mount.Mountpoint, path)
	}
	return filepath.Join(p.Store, tree.TreeDir, path)
}

// Device is that of the place's mount.
func (p *Place) Device() procs.Device {
	return procs.Device{Major: p.Mount.Major, Minor: p.Mount.Minor}
}

// Find says what path means, in this process's mounts.
func Find(path string) (*Place, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the list of mounts: %w", err)
	}
	return FindIn(path, mounts)
}

// FindInside is Find of a path that may be spelt STORE/PATH, whether the store is mounted or not, and whose
// last names need not be on the disk: views are not.
func FindInside(path string) (*Place, error) {
	there, rest, err := Existing(path)
	if err != nil {
		return nil, err
	}
	p, err := Find(there)
	if err == nil && p.Mount == nil && p.Path == "" && rest != "" {
		if there, rest, err = Existing(p.Full(rest)); err == nil {
			p, err = Find(there)
		}
	}
	if rest != "" && errors.Is(err, tree.ErrNotStore) {
		return nil, notThere(path)
	}
	if err != nil {
		return nil, err
	}
	p.Path = filepath.Join(p.Path, rest)
	return p, nil
}

// Existing is the longest beginning of a path that is there, and the rest.
func Existing(path string) (there, rest string, err error) {
	if there, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != "/"; _, err = os.Lstat(there) {
		there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest)
	}
	return there, rest, nil
}

// FindIn touches as little as it can on the way: a mount whose daemon died or hangs must still be found. A
// path that spells a mountpoint is taken as that without asking anybody.
func FindIn(path string, mounts []*mountinfo.Info) (*Place, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	spelt := InMount(abs, mounts)
	if spelt != nil && spelt.Mount.Mountpoint == abs {
		return spelt, nil
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if err != nil {
		if spelt != nil { // the daemon will say what is wrong with it, if it lives
			spelt.Gone = errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
			return spelt, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notThere(path)
		}
		return nil, err
	}
	if p := InMount(resolved, mounts); p != nil {
		return p, nil
	}
	if err := unix.Access(resolved, unix.X_OK); err == unix.EACCES && isDir(resolved) {
		return nil, fmt.Errorf("%s: %w; only the store's owner and root may ask for it", path, err)
	}
	p, err := inStore(resolved)
	if err == nil && p == nil {
		if b := inplace.BegunOf(resolved); b != nil {
			return nil, notIn(path, b)
		}
		err = fmt.Errorf("%s: in no ckptfs mount, and %w; `ckptfs mount STORE MOUNTPOINT` mounts (and makes) one", path, tree.ErrNotStore)
	}
	return p, err
}

// notIn is the error of a path in no mount, in a folder that is about to move or has moved.
func notIn(path string, b *inplace.Begun) error {
	return fmt.Errorf("%s: in no ckptfs mount, and %w; %s", path, tree.ErrNotStore, Begun(b))
}

// notThere is the error of a path that does not exist. It tells of a store where its files are.
func notThere(path string) error {
	if abs, err := filepath.Abs(path); err == nil {
		if b := inplace.BegunOf(abs); b != nil {
			return notIn(path, b)
		}
	}
	do := "give a path inside a ckptfs mount, or a store's folder"
	if there, _, err := Existing(path); err == nil && IsStore(there) {
		do = "the store's files are below " + (&Place{Store: there, Mount: MountOf(there)}).Full("")
	}
	return exit.With(exit.NotStore, fmt.Errorf("%s: no such file or directory; %s", path, do))
}

// InMount is the place of an absolute path if the mount it lies in is one of ours, else nil. Of mounts on one
// mountpoint the last covers the others.
func InMount(abs string, mounts []*mountinfo.Info) *Place {
	var top *mountinfo.Info
	for _, m := range mounts {
		if procs.Within(abs, m.Mountpoint) && (top == nil || len(m.Mountpoint) >= len(top.Mountpoint)) {
			top = m
		}
	}
	if top == nil || top.FSType != FSType {
		return nil
	}
	// Root is not "/" for a bind mount of a folder of the mount.
	inside := filepath.Join(top.Root, strings.TrimPrefix(abs, strings.TrimSuffix(top.Mountpoint, "/")))
	return &Place{Store: top.Source, Mount: top, Path: strings.TrimPrefix(inside, "/")}
}

// MountOf is the first mount of a store that this process sees, nil if there is none. It asks nobody.
func MountOf(store string) *mountinfo.Info {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.FSType == FSType && m.Source == store && m.Root == "/" {
			return m
		}
	}
	return nil
}

// MountpointOf is where this process sees a store mounted, "" if nowhere.
func MountpointOf(store string) string {
	if m := MountOf(store); m != nil {
		return m.Mountpoint
	}
	return ""
}

// inStore is the place of an absolute path in a store's folder: the folder itself, or a name below its tree.
// nil when there is no store up to the root. What lies in the tree of a store is a user's, though it may look
// like another store.
func inStore(abs string) (*Place, error) {
	var found *Place
	var own error
	for dir := abs; ; dir = filepath.Dir(dir) {
		if IsStore(dir) {
			names := filepath.Join(dir, tree.TreeDir)
			switch {
			case procs.Within(abs, names):
				found = &Place{Store: dir, Path: strings.TrimPrefix(strings.TrimPrefix(abs, names), "/")}
			case found != nil || own != nil:
			case dir == abs:
				found = &Place{Store: dir}
			default:
				own = exit.With(exit.NotStore, fmt.Errorf("%s is one of the store's own files; name the store, %s, or a file below %s", abs, dir, names))
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

// IsStore looks whether the folder says it is a store, of whatever version.
func IsStore(dir string) bool {
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

// DeviceOf is the device of the filesystem that is mounted there, in this process's mounts.
func DeviceOf(mountpoint string) (procs.Device, bool) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return procs.Device{}, false
	}
	p := InMount(mountpoint, mounts)
	if p == nil || p.Mount.Mountpoint != mountpoint {
		return procs.Device{}, false
	}
	return procs.Device{Major: p.Mount.Major, Minor: p.Mount.Minor}, true
}
