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

// lookedAt is how many files LostAttributes looks at, at most.
const lookedAt = 1000

// LostAttributes is a hollow file of a store that has no record, which says that the store was copied without
// its extended attributes. It looks at the first files alone; "" for none.
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
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if left--; left < 0 {
			return fs.SkipAll
		}
		f, err := names.Open(p, os.O_RDONLY, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		var head [HeaderSize]byte
		if _, err := f.ReadAt(head[:], 0); err != nil || !LooksHollow(head[:], format.ID) {
			return nil
		}
		_, err = ReadRecord(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if errors.Is(err, ErrNoRecord) {
			path = names.Join(p)
		}
		return fs.SkipAll // one tells of all
	})
	return path
}
