package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewFile makes a file of the store's own: what has its name goes, and a link that is put there meanwhile
// leads nowhere. So a user who may write the store's folder cannot have another file written over.
func NewFile(path string) (*os.File, error) {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

// WriteNew is os.WriteFile to a NewFile.
func WriteNew(path string, data []byte) error {
	f, err := NewFile(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// openOwn opens a file of the store's own. It follows no link, waits for no FIFO's other end, and takes
// nothing but a file.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(fmt.Errorf("%s is not a file: it is not of ckptfs; move it away", path), err)
	}
	return f, nil
}
