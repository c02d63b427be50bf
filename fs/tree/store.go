package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// ForeignError: a store, or one of its own names, belongs to neither the caller nor root.
type ForeignError struct {
	Path string
	UID  uint32 // its owner
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s belongs to user %d, who could have this process work on other files: "+
		"run the command as that user, or give --foreign (-o foreign) if you trust them", e.Path, e.UID)
}

// Is says that a ForeignError is a lack of permission.
func (e *ForeignError) Is(target error) bool { return target == fs.ErrPermission }

// kindError: one of a store's own names is not of the kind that ckptfs makes.
type kindError struct{ msg string }

func (e *kindError) Error() string        { return e.msg }
func (e *kindError) Is(target error) bool { return target == cas.ErrCorrupt }

// ownNames are what a store's folder holds besides its socket, and whether each is a folder.
var ownNames = []struct {
	name   string
	folder bool
}{
	{FormatFile, false}, {LockFile, false}, {TreeDir, true}, {SegmentsDir, true}, {IndexFile, false},
	{IndexDir, true},
	{CatalogueFile, false}, {LostFound, true}, {LogFile, false}, {WritingFile, false}, {ReserveFile, false},
	{UpkeepFile, false}, {"moving", false}, {ArrivingDir, true}, {"remote", false}, {"remote.db", false},
	{"remote.log", false}, {PolicyFile, false},
}

// OpenStore opens the folder of a store, for all that is done in it. It looks at the names in it that are the
// store's own. One that is a symbolic link, or not of the kind that ckptfs makes, is an error that wraps
// cas.ErrCorrupt. Unless foreign is set, the folder and these names have to belong to the caller or to root,
// else the error is a *ForeignError. The tree may belong to anybody: it is the mount's root, which is given
// to users, and names (package names) are reached in it as programs reach them, one by one.
func OpenStore(path string, foreign bool) (*disk.Folder, error) {
	d, err := disk.OpenFolder(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %w", ErrNotStore, err)
	}
	if err != nil {
		return nil, err
	}
	if err := vet(d, foreign); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func vet(d *disk.Folder, foreign bool) error {
	st, err := d.Stat()
	if err != nil {
		return err
	}
	trusted := func(uid uint32) bool { return foreign || uid == 0 || uid == uint32(os.Geteuid()) }
	if !trusted(st.Uid) {
		return &ForeignError{d.Path(), st.Uid}
	}
	for _, own := range ownNames {
		st, err := d.Lstat(own.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		path := d.Join(own.name)
		switch kind := st.Mode & unix.S_IFMT; {
		case kind == unix.S_IFLNK:
			return &kindError{path + " is a symbolic link, and nothing of a store may lead out of it: " +
				"put the folder itself there (`mount --bind` joins one of another disk)"}
		case own.folder && kind != unix.S_IFDIR:
			return &kindError{path + " is no folder: it is not of ckptfs; move it away"}
		case !own.folder && kind != unix.S_IFREG:
			return &kindError{path + " is not a file: it is not of ckptfs; move it away"}
		case own.name != TreeDir && !trusted(st.Uid):
			return &ForeignError{path, st.Uid}
		}
	}
	return nil
}

// OpenOrCreate is OpenStore, and makes a store if path is an empty folder or does not exist.
func OpenOrCreate(path string, foreign bool, now time.Time) (*disk.Folder, error) {
	made := os.Mkdir(path, 0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return nil, fmt.Errorf("make a store: %w", made)
	}
	d, err := OpenStore(path, foreign)
	if err != nil {
		return nil, err
	}
	if _, err = d.Lstat(FormatFile); errors.Is(err, fs.ErrNotExist) {
		err = create(d, now)
	}
	if err != nil {
		_ = Unmake(d)
		if made == nil {
			_ = unix.Rmdir(path)
		}
		d.Close()
		return nil, fmt.Errorf("make a store: %w", err)
	}
	return d, nil
}

// CloseToOthers makes a store's folder its owner's alone: what other users may do, they may do through the
// mount, under its permissions. It says whether it had to.
func CloseToOthers(d *disk.Folder) (changed bool, err error) {
	st, err := d.Stat()
	if err != nil || st.Mode&0o077 == 0 {
		return false, err
	}
	return true, unix.Chmod(d.Here(), st.Mode&0o7700)
}
