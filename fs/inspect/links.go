package inspect

import (
	"context"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// maxNamed bounds the files of a folder that an error names.
const maxNamed = 4

// links looks at the files that symbolic links below a folder lead to, each by the path of its link, as in a
// snapshot of the Hugging Face cache. lost is how many links lead to no file of the mount. Links to folders
// are among them, because they may lead back here.
func (r *reach) links(ctx context.Context, p string) (found []*file, lost int, err error) {
	names, err := r.ins.files.List(p)
	if err == unix.ENOENT || err == unix.ENOTDIR { // it went meanwhile, or never was a folder
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	for _, e := range names {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		at := path.Join(p, e.Name)
		switch {
		case e.Name == "." || e.Name == "..":
		case e.Mode == unix.S_IFDIR:
			below, gone, err := r.links(ctx, at)
			if err != nil {
				return nil, 0, err
			}
			found, lost = append(found, below...), lost+gone
		case e.Mode == unix.S_IFLNK:
			n, err := r.ins.files.Follow(at)
			if err != nil {
				lost++
				continue
			}
			f, err := r.look(at, n)
			n.Unpin()
			if err == unix.ENOENT {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, 0, err
			}
			found = append(found, f)
		}
	}
	return found, lost, nil
}

// only is the path of the one checkpoint that lies in a folder. The error says which there are.
func (ins *Inspector) only(p string) (string, error) {
	names, err := ins.files.List(p)
	if err != nil && err != unix.EROFS { // which a folder of views has, and no checkpoint
		return "", err
	}
	var found []string
	for _, e := range names {
		if e.Mode == unix.S_IFREG && steps.IsCheckpoint(e.Name) {
			found = append(found, e.Name)
		}
	}
	switch {
	case len(found) == 1:
		return path.Join(p, found[0]), nil
	case len(found) == 0:
		return "", control.Invalid("a folder without a checkpoint: name a file, or a folder with one")
	}
	more := ""
	if len(found) > maxNamed {
		found, more = found[:maxNamed], ", …"
	}
	return "", control.Invalid("a folder with several checkpoints, name one: %s%s", strings.Join(found, ", "), more)
}
