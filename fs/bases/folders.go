package bases

import (
	"cmp"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

const (
	maxSiblings = 4096 // names looked at in a directory, but for the steps before
	maxFolders  = 32   // that are looked at in one
)

// stepsBefore lists the paths that differ from names in a lower number in names[k], the closest first, and
// perhaps in that number in what lies below. There may be nothing at them.
func (f *Finder) stepsBefore(names []string, k int) (rels []string) {
	dir, own := path.Join(names[:k]...), names[k]
	if dir == "" {
		dir = "."
	}
	d, err := tree.OpenDirBelow(f.o.Root, dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	_, number := runs.Numbers(own)
	rest := path.Join(names[k+1:]...)
	for _, name := range f.folders.before(d, own, 4*maxSteps) {
		_, before := runs.Numbers(name)
		rels = append(rels, path.Join(dir, name, rest))
		other := rest
		for i := range number {
			// Names are chosen by users, and may make it longer each time; zero has no digits to look for.
			if number[i] != "" && len(other) < unix.PathMax {
				other = strings.ReplaceAll(other, number[i], cmp.Or(before[i], "0"))
			}
		}
		if other != rest && len(other) < unix.PathMax {
			rels = append(rels, path.Join(dir, name, other))
		}
	}
	return rels
}

// near lists paths of files in a folder, at most n, some of which may be packed.
func (f *Finder) near(dir string, n int) (rels []string) {
	rels, _ = f.listed(dir, n)
	return rels
}

// below lists paths of files in a folder and in those in it, as near does.
func (f *Finder) below(dir string, n int) (rels []string) {
	dirs := []string{dir}
	for i := 0; i < len(dirs) && i < maxFolders && len(rels) < n; i++ {
		files, more := f.listed(dirs[i], n-len(rels))
		rels = append(rels, files...)
		dirs = append(dirs, more...)
	}
	return rels
}

func (f *Finder) listed(dir string, n int) (rels, dirs []string) {
	d, err := tree.OpenDirBelow(f.o.Root, dir)
	if err != nil {
		return nil, nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(maxSiblings)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, path.Join(dir, e.Name()))
		}
		if !e.Type().IsRegular() || len(rels) == n {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(d.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Size < minRelated {
			continue
		}
		rels = append(rels, path.Join(dir, e.Name()))
	}
	return rels, dirs
}

// minRelated is the size of a file that is worth a look.
const minRelated = 4 << 10
