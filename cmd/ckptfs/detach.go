package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/unmount"
)

// release unmounts a store's mount from its daemon. A program that has just closed a file may not
// have left yet, so a mount in use is tried a few times.
func release(mountpoint, store string, lazy bool) error {
	var err error
	for pause := 5 * time.Millisecond; pause < 200*time.Millisecond; pause *= 2 {
		mounts, merr := mountinfo.GetMounts(nil)
		if merr != nil {
			return fmt.Errorf("read the list of mounts: %w", merr)
		}
		ours := func(m *mountinfo.Info) bool {
			return m.FSType == place.FSType && m.Source == store && m.Mountpoint == mountpoint
		}
		if !slices.ContainsFunc(mounts, ours) {
			return nil // another process did it
		}
		if p := place.InMount(mountpoint, mounts); p == nil || !ours(p.Mount) {
			return fmt.Errorf("%s: another file system is mounted over it, which is to be unmounted first: %w", mountpoint, syscall.EBUSY)
		}
		if err = unmount.Detach(mountpoint, lazy); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(pause)
	}
	return err
}
