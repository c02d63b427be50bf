package volume

import (
	"context"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/steps"
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
		real = withoutTorn(v, dir, real)
		return append(v.virtual.Views(by, dir, real), real...)
	})
}

// withoutTorn are the names of a directory without the steps that are to be hidden. A name that is known
// is found.
func withoutTorn(v *Volume, dir *names.Node, real []tree.DirEntry) []tree.DirEntry {
	if !v.steps.HideTorn || !dir.Below(steps.Dir) {
		return real
	}
	p := dir.Path()
	if _, err := steps.RunOf(p); err != nil {
		return real
	}
	hidden, err := v.steps.Hidden(context.Background(), p)
	if err != nil {
		v.report(slog.LevelWarn, "which steps are torn is not known, and all are listed", "run", p, "reason", err)
		return real
	}
	return slices.DeleteFunc(real, func(e tree.DirEntry) bool { return hidden[e.Name] })
}
