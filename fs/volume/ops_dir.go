package volume

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
)

// StatFS describes the disk that the store lies on.
func (v *Volume) StatFS() (unix.Statfs_t, error) { return v.names.StatFS() }

// Entries returns the names from position pos on; position 0 reads the directory again. Views come before
// everything else, so that `rm -r` meets a view before the file it is made of.
func (v *Volume) Entries(d *names.DirHandle, pos uint64) ([]names.Listed, error) {
	return d.Entries(pos, v.virtual.Views)
}
