package volume

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// StatFS describes the disk that the store lies on.
func (v *Volume) StatFS() (unix.Statfs_t, error) { return v.names.StatFS() }

// Entries returns the names from position pos on, for a caller; position 0 reads the directory again. Views
// come before everything else, so that `rm -r` meets a view before the file it is made of.
func (v *Volume) Entries(c tree.Caller, d *names.DirHandle, pos uint64) ([]names.Listed, error) {
	if pos == 0 {
		v.sharing.ensure(context.Background(), d.Node, "")
	}
	by := &tree.Asker{Caller: c}
	return d.Entries(c, pos, func(dir *names.Node, real []tree.DirEntry) []tree.DirEntry {
		return v.virtual.Views(by, dir, real)
	})
}
