package maintenance

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
)

// Allocated is what a file, or the files of a folder, take on the disk, in bytes.
func Allocated(d *disk.Folder, name string) (int64, error) {
	st, err := d.Lstat(name)
	if err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return st.Blocks * 512, nil
	}
	sub, err := d.Sub(name)
	if err != nil {
		return 0, err
	}
	defer sub.Close()
	var sum int64
	err = sub.Walk(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := sub.Lstat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum, err
}

// CountFiles is the number of regular files below a folder. What cannot be listed is not counted.
func CountFiles(d *disk.Folder, name string) (n int64) {
	_ = d.Walk(name, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}
