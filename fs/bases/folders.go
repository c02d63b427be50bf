package bases

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

const (
	maxSiblings = 4096 // names looked at in a directory
	maxFolders  = 32   // that are looked at in one
)

// namesIn lists names in a folder below the tree's root, at most maxSiblings.
func (f *Finder) namesIn(dir string) []string {
	d, err := tree.OpenDirBelow(f.o.Root, dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxSiblings)
	return names
}

// stepsBefore lists the paths that differ from names in a lower number in names[k], the closest first, and
// perhaps in that number in what lies below. There may be nothing at them.
func (f *Finder) stepsBefore(names []string, k int) (rels []string) {
	dir, own := path.Join(names[:k]...), names[k]
	if dir == "" {
		dir = "."
	}
	pattern, number := runs.Numbers(own)
	type step struct {
		name   string
		number []string
	}
	var before []step
	for _, s := range f.namesIn(dir) {
		if pat, num := runs.Numbers(s); pat == pattern && runs.CompareNumbers(num, number) < 0 {
			before = append(before, step{s, num})
		}
	}
	slices.SortFunc(before, func(a, b step) int { return runs.CompareNumbers(b.number, a.number) })
	rest := path.Join(names[k+1:]...)
	for _, s := range before[:min(len(before), 4*maxSteps)] {
		rels = append(rels, path.Join(dir, s.name, rest))
		other := rest
		for i := range number {
			// Names are chosen by users, and may make it longer each time; zero has no digits to look for.
			if number[i] != "" && len(other) < unix.PathMax {
				other = strings.ReplaceAll(other, number[i], cmp.Or(s.number[i], "0"))
			}
		}
		if other != rest && len(other) < unix.PathMax {
			rels = append(rels, path.Join(dir, s.name, other))
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
