package inplace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/fs/tree"
)

// Kept is a name that both folders had. Both files are in the full folder then, one of them under another
// name.
type Kept struct {
	Name Path `json:"name"` // below the folder
	As   Path `json:"as"`   // what the other file is called, beside it
	Old  bool `json:"old"`  // the other file is the one that the full folder had
}

// Says tells of it, where the folder is dir.
func (k Kept) Says(dir string) string {
	name, as := path.Join(dir, string(k.Name)), path.Join(dir, string(k.As))
	if k.Old {
		return fmt.Sprintf("%s: a program wrote it while the folder moved; what was there before is kept as %s", name, as)
	}
	return fmt.Sprintf("%s: what a program made of that name while the folder moved is kept as %s", name, as)
}

// rounds is how often Gather looks for names that programs still make in the empty folder.
const rounds = 10

// Gather moves what programs made in the empty folder into the full one. Of a name that both have, the file
// that was modified later has it then, unless one of the two is a folder: then what the full folder had keeps
// it. The other file is kept beside it, under a name that is free. note is told of that before it is done. If
// it is cut short, Gather again comes to the same names. All of it is durable, but for the names in the empty
// folder. Names directly in that which were changed last before since, a Move.Begun, stay.
func Gather(empty, full *os.File, since int64, note func(Kept) error) error {
	g := gatherer{note: note, since: since}
	return g.gather(empty, full, "")
}

type gatherer struct {
	note  func(Kept) error
	since int64
	moved int
}

func (g *gatherer) gather(empty, full *os.File, below string) error {
	before := g.moved
	for range rounds {
		entries, err := tree.ReadNames(int(empty.Fd()))
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if e.Name == "." || e.Name == ".." || below == "" && g.before(empty, e.Name) {
				continue
			}
			found = true
			err := g.one(empty, full, e.Name, below)
			if err != nil && !errors.Is(err, unix.ENOENT) { // else it is gone meanwhile
				return err
			}
		}
		if _, err := empty.Seek(0, 0); err != nil {
			return err
		}
		if !found {
			break
		}
	}
	if g.moved == before {
		return nil
	}
	return full.Sync()
}

// before reports whether a name was there before the move began.
func (g *gatherer) before(dir *os.File, name string) bool {
	var st unix.Stat_t
	return g.since > 0 && lstat(dir, name, &st) == nil && st.Ctim.Nano() < g.since
}

// one moves one name.
func (g *gatherer) one(empty, full *os.File, name, below string) error {
	err := unix.Renameat2(int(empty.Fd()), name, int(full.Fd()), name, unix.RENAME_NOREPLACE)
	if err == nil {
		g.moved++
		return nil
	}
	if err == unix.EEXIST {
		var made, had unix.Stat_t
		err = errors.Join(lstat(empty, name, &made), lstat(full, name, &had))
		if err == nil && isFolder(&made) && isFolder(&had) {
			return g.folder(empty, full, name, below)
		}
		if err == nil {
			return g.both(empty, full, name, below, later(&made, &had))
		}
	}
	return &os.LinkError{Op: "rename", Old: path.Join(empty.Name(), name), New: path.Join(full.Name(), name), Err: err}
}

func lstat(dir *os.File, name string, st *unix.Stat_t) error {
	return unix.Fstatat(int(dir.Fd()), name, st, unix.AT_SYMLINK_NOFOLLOW)
}

func isFolder(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// later reports whether what was made has the name that the folder had, too.
func later(made, had *unix.Stat_t) bool {
	if isFolder(made) || isFolder(had) {
		return false
	}
	return made.Mtim.Nano() > had.Mtim.Nano()
}

// both keeps both files of a name. If it is cut short in the middle, the older file is in the empty folder, and
// gets its other name the next time.
func (g *gatherer) both(empty, full *os.File, name, below string, old bool) error {
	as, err := freeName(full, name)
	if err != nil {
		return err
	}
	err = g.note(Kept{Name: Path(path.Join(below, name)), As: Path(path.Join(below, as)), Old: old})
	if err == nil && old {
		err = unix.Renameat2(int(empty.Fd()), name, int(full.Fd()), name, unix.RENAME_EXCHANGE)
	}
	if err == nil {
		err = unix.Renameat2(int(empty.Fd()), name, int(full.Fd()), as, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return &os.LinkError{Op: "keep", Old: path.Join(empty.Name(), name), New: path.Join(full.Name(), as), Err: err}
	}
	g.moved++
	return nil
}

// freeName is a name that a folder has not: name.kept-1, or the next.
func freeName(dir *os.File, name string) (string, error) {
	const longest = 255 // bytes of a name
	for n := 1; ; n++ {
		end := fmt.Sprintf(".kept-%d", n)
		as := name
		if over := len(as) + len(end) - longest; over > 0 {
			as = strings.ToValidUTF8(as[:len(as)-over], "")
		}
		as += end
		var st unix.Stat_t
		switch err := lstat(dir, as, &st); err {
		case nil:
		case unix.ENOENT:
			return as, nil
		default:
			return "", &os.PathError{Op: "look at", Path: path.Join(dir.Name(), as), Err: err}
		}
	}
}

// folder is Gather of a folder that both have, and removes the one that is empty then.
func (g *gatherer) folder(empty, full *os.File, name, below string) error {
	from, err := openBelow(empty, name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openBelow(full, name)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := g.gather(from, to, path.Join(below, name)); err != nil {
		return err
	}
	err = unix.Unlinkat(int(empty.Fd()), name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY { // a program goes on to make names in it
		return nil
	}
	return err
}

// The journal names so many, of so many bytes together. The others are counted.
const (
	mostKept      = 100
	mostKeptBytes = 32 << 10
)

// Note writes into the journal that both files of a name are kept, before that is done.
func Note(store *disk.Folder, k Kept) error {
	m, err := Read(store)
	if err != nil || m == nil || slices.Contains(m.Kept, k) {
		return err
	}
	size := len(k.Name) + len(k.As)
	for _, k := range m.Kept {
		size += len(k.Name) + len(k.As)
	}
	if len(m.Kept) < mostKept && size <= mostKeptBytes {
		m.Kept = append(m.Kept, k)
	} else {
		m.MoreKept++
	}
	return m.write(store)
}

// gather is Gather of the empty folder that is or was at the path of the pair, with the journal.
func (p *Pair) gather(empty, full *os.File) error {
	return Gather(empty, full, 0, func(k Kept) error { return Note(p.store, k) })
}
