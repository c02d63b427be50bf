package steps

import (
	"golang.org/x/sys/unix"
)

// Folders are the tree's root, runs/ and the runs, by inode, with the time of their last change (ctime, ns
// since 1970): a name that came or went changes it, and so does another name of the folder itself.
type Folders map[uint64]int64

// Folders looks at them as they are now. Where there is no runs/ there are no runs.
func (s *Steps) Folders() (Folders, error) {
	all := Folders{}
	var st unix.Stat_t
	if err := unix.Fstat(s.root, &st); err != nil {
		return nil, err
	}
	all[st.Ino] = st.Ctim.Nano()
	fd, err := openDirAt(s.root, Dir)
	if noFolder(err) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	all[st.Ino] = st.Ctim.Nano()
	runs, err := dirsIn(fd)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if err := unix.Fstatat(fd, r.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil && err != unix.ENOENT {
			return nil, err
		} else if err == nil {
			all[st.Ino] = st.Ctim.Nano()
		}
	}
	return all, nil
}
