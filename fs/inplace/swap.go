package inplace

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// SwapMounted is Swap while something is mounted on the store's tree, which is empty: the mount comes with the
// empty folder, so that no program ever finds that without it. It needs root.
//
// The kernel refuses to rename a mountpoint, but only one of the caller's own mount namespace. So a thread does
// it in a namespace of its own, in which nothing is mounted there.
func (p *Pair) SwapMounted() error {
	root, err := p.store.OpenDir(".")
	if err != nil {
		return err
	}
	defer root.Close()
	done := make(chan error)
	apart(func() { done <- p.swapApart(int(root.Fd())) })
	return <-done
}

// apart runs f in a thread that ends with it. It is not the first one of the process, which does not end, and
// tells others in which namespace the process is.
func apart(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked where f runs
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		other := make(chan struct{})
		go func() {
			defer close(other)
			runtime.LockOSThread() // another thread: this goroutine's caller keeps the first
			f()
		}()
		<-other
	}()
}

// swapApart is SwapMounted in a thread that is used for nothing else.
func (p *Pair) swapApart(root int) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Unmount(p.store.Join(tree.TreeDir), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return p.swap(root)
}

// Gather moves what programs made in the empty folder into the full one, where no such name is. It returns how
// many names it moved, and how many stayed since the full folder has such a name, which is no folder in both.
func Gather(empty, full *os.File) (moved, stayed int, err error) {
	entries, err := tree.ReadNames(int(empty.Fd()))
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		err := unix.Renameat2(int(empty.Fd()), e.Name, int(full.Fd()), e.Name, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			moved++
		case errors.Is(err, unix.EEXIST) && e.Mode&unix.S_IFMT == unix.S_IFDIR:
			m, s, err := gatherBelow(empty, full, e.Name)
			moved, stayed = moved+m, stayed+s
			if errors.Is(err, unix.ENOTDIR) {
				stayed++
			} else if err != nil {
				return moved, stayed, err
			}
		case errors.Is(err, unix.EEXIST):
			stayed++
		case !errors.Is(err, unix.ENOENT): // else it is gone meanwhile
			return moved, stayed, &os.LinkError{Op: "rename", Old: e.Name, New: full.Name(), Err: err}
		}
	}
	return moved, stayed, nil
}

// gatherBelow is Gather of a folder that both have, and removes the one that is empty then.
func gatherBelow(empty, full *os.File, name string) (moved, stayed int, err error) {
	open := func(dir *os.File) (*os.File, error) {
		fd, err := unix.Openat(int(dir.Fd()), name,
			unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	from, err := open(empty)
	if err != nil {
		return 0, 0, err
	}
	defer from.Close()
	to, err := open(full)
	if err != nil {
		return 0, 0, err
	}
	defer to.Close()
	moved, stayed, err = Gather(from, to)
	if err == nil && stayed == 0 {
		err = unix.Unlinkat(int(empty.Fd()), name, unix.AT_REMOVEDIR)
	}
	return moved, stayed, err
}
