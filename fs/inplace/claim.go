package inplace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// Claim keeps other processes from moving the same folder, until the file is closed by all who have it open.
func Claim(store *disk.Folder) (*os.File, error) { return claim(store, unix.LOCK_EX) }

// Share keeps all processes from moving the folder, as Claim does, beside others that share it: they copy the
// store's files.
func Share(store *disk.Folder) (*os.File, error) { return claim(store, unix.LOCK_SH) }

func claim(store *disk.Folder, how int) (*os.File, error) {
	f, err := store.OpenDir(".")
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err == nil {
		return f, nil
	}
	defer f.Close()
	if how == unix.LOCK_EX && unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return nil, fmt.Errorf("%s: another process copies its files (leave --copy): %w", store.Path(), unix.EBUSY)
	}
	return nil, fmt.Errorf("%s: another process is moving its folder: %w", store.Path(), unix.EBUSY)
}
