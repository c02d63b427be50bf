package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenBelow opens a path below the directory root. It leads through no symbolic link, to nothing above root
// and into no other filesystem.
func OpenBelow(root int, rel string, flags uint64) (int, error) {
	return unix.Openat2(root, rel, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// OpenDirBelow is OpenBelow of a directory that is to be listed.
func OpenDirBelow(root int, rel string) (*os.File, error) {
	fd, err := OpenBelow(root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}
