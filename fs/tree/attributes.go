package tree

import (
	"fmt"

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
