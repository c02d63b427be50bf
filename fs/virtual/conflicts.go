package virtual

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Loser is a version of a name that another version has got.
type Loser struct {
	Path  string // of the version: that of the name, and whose it is
	Key   any    // comparable: what is another version has another one
	Size  int64
	Mtime int64  // in nanoseconds since 1970
	Link  string // the target of a symbolic link; "": it is a file
	Open  func(ctx context.Context) (Bytes, error)
}

// Bytes are those of an open file.
type Bytes interface {
	io.ReaderAt
	io.Closer
}

// conflictDir is .ckptfs/conflicts, or a folder in it:
//
//	.ckptfs/conflicts/PATH@WRITER     a version of PATH that another version has got; a file or a link
//
// It is for the daemon's user, since it names and shows files of all. A version whose name would be longer
// than a name can be is not there; the command that lists conflicts tells of it.
type conflictDir string

func (d conflictDir) entry(*Virtual) entry {
	e := entry{dir: d, key: conflictKey(d), stat: owners(unix.S_IFDIR | 0o500), sight: toOwner}
	if d == "" {
		e.sight = toAll // it is always there
	}
	return e
}

// conflictKey is the identity of a folder.
type conflictKey string

func (d conflictDir) lookup(ctx context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	all, err := v.losers(ctx)
	if err != nil {
		return entry{}, err
	}
	p := path.Join(string(d), name)
	for i := range all {
		switch l := &all[i]; {
		case l.Path == p && len(name) <= unix.NAME_MAX:
			return l.entry(), nil
		case strings.HasPrefix(l.Path, p+"/"):
			return conflictDir(p).entry(v), nil
		}
	}
	return entry{}, unix.ENOENT
}

func (d conflictDir) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	if !v.visible(c, toOwner, nil) {
		return nil, unix.EACCES
	}
	all, err := v.losers(context.Background())
	seen := map[string]bool{}
	for i := range all {
		below, is := strings.CutPrefix(all[i].Path, string(d)+"/")
		if d == "" {
			below, is = all[i].Path, true
		}
		name, _, isDir := strings.Cut(below, "/")
		if !is || seen[name] || len(name) > unix.NAME_MAX {
			continue
		}
		seen[name] = true
		e := tree.DirEntry{Name: name, Mode: unix.S_IFREG}
		switch {
		case isDir:
			e.Mode = unix.S_IFDIR
		case all[i].Link != "":
			e.Mode = unix.S_IFLNK
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b tree.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// losers are all versions that there are to show.
func (v *Virtual) losers(ctx context.Context) ([]Loser, error) {
	if v.o.Losers == nil {
		return nil, nil
	}
	return v.o.Losers(ctx)
}

func (l *Loser) entry() entry {
	e := entry{key: l.Key, sight: toOwner}
	mtime := unix.NsecToTimespec(l.Mtime)
	e.stat = func(v *Virtual) (tree.Attr, error) {
		a, err := owners(unix.S_IFREG | 0o400)(v)
		a.Mtime, a.Ctime = mtime, mtime
		return a, err
	}
	if l.Link != "" {
		target := l.Link
		e.link = func(*Virtual, *tree.Asker) (string, error) { return target, nil }
		return e
	}
	e.loser = l
	return e
}

// open opens its bytes.
func (l *Loser) open(ctx context.Context) (names.Opened, content.Mode, error) {
	b, err := l.Open(ctx)
	if err != nil {
		return nil, 0, err
	}
	return openLoser{b: b, size: l.Size}, content.Cached, nil
}

type openLoser struct {
	unwritten
	b    Bytes
	size int64
}

func (o openLoser) Close() { _ = o.b.Close() }

func (o openLoser) Read(p []byte, off int64) (int, error) {
	if off >= o.size {
		return 0, nil
	}
	n, err := o.b.ReadAt(p[:min(int64(len(p)), o.size-off)], off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}
