package inplace

import (
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
	if err := uncover(p.store.Join(tree.TreeDir)); err != nil {
		return err
	}
	return p.swap(root)
}

// uncover takes the mount on a folder away for this thread alone.
func uncover(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return nil
}

// Covered are the names in a folder that the mount on it covers. It needs root.
func Covered(dir string) (names []string, err error) {
	done := make(chan struct{})
	apart(func() {
		defer close(done)
		if err = uncover(dir); err != nil {
			return
		}
		var all []os.DirEntry
		all, err = os.ReadDir(dir)
		for _, e := range all {
			names = append(names, e.Name())
		}
	})
	<-done
	return names, err
}
