package maintenance

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Allocated is what a file, or the files of a folder, take on the disk.
func Allocated(path string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(path, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil && err != unix.ENOENT {
			return err
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum, err
}

// CountFiles is the number of regular files below a folder. What cannot be listed is not counted.
func CountFiles(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}
