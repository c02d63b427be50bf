package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// CheckAttributes returns an error when the filesystem of a folder keeps no attributes of users: no file in
// it could ever get a record. It changes nothing.
func CheckAttributes(d *disk.Folder) error {
	if _, err := unix.Getxattr(d.Here(), XattrName, nil); err != unix.EOPNOTSUPP {
		return nil
	}
	return fmt.Errorf("%s: its filesystem keeps no extended attributes user.*, in which ckptfs notes what a "+
		"file is made of: nothing there would ever be packed. Put the store on one that does (ext4, xfs, "+
		"btrfs, tmpfs of Linux 6.6 or later), or mount it without nouser_xattr: %w", d.Path(), unix.EOPNOTSUPP)
}

// lookedAt is how many names LostAttributes looks at, at most.
const lookedAt = 1000

// LostAttributes is a hollow file of a store that has no record, which says that the store was copied without
// its extended attributes; "" for none. It looks at the first names alone, until one has a record.
func LostAttributes(d *disk.Folder) (path string) {
	format, err := ReadFormat(d)
	if err != nil {
		return ""
	}
	names, err := d.Sub(TreeDir)
	if err != nil {
		return ""
	}
	defer names.Close()
	left := lookedAt
	_ = names.Walk(".", func(p string, e fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		f, err := names.Open(p, os.O_RDONLY, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		if _, err := ReadRecord(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); !errors.Is(err, ErrNoRecord) {
			return fs.SkipAll // one tells of all
		}
		var head [HeaderSize]byte
		if _, err := f.ReadAt(head[:], 0); err == nil && LooksHollow(head[:], format.ID) {
			path = names.Join(p)
			return fs.SkipAll
		}
		return nil
	})
	return path
}
