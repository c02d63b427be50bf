package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A daemon that may not write to its store has its control socket in the runtime folder of its user instead,
// under the number of its mount's device, which no other mount of this host has while the mount is there.

// runtimeDir is where the sockets of a user's daemons are: what systemd keeps for it, or a folder like that.
func runtimeDir(uid int) string {
	if uid == 0 {
		return "/run/ckptfs"
	}
	dir := fmt.Sprintf("/run/user/%d", uid)
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return filepath.Join(dir, "ckptfs")
	}
	return filepath.Join("/tmp", fmt.Sprintf("ckptfs-%d", uid))
}

// DeviceSocket is the socket of a user's daemon that serves a device.
func DeviceSocket(uid, major, minor int) string {
	return filepath.Join(runtimeDir(uid), fmt.Sprintf("%d-%d.sock", major, minor))
}

// MakeRuntimeDir makes the folder of this user's sockets. One that another user owns, or may write, is
// refused: in a folder for all, another user may have made it first.
func MakeRuntimeDir() error {
	dir := runtimeDir(os.Geteuid())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder of user %d alone: remove it", dir, os.Geteuid())
	}
	return nil
}
