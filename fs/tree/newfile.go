package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
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
// nothing but a file: else the error wraps cas.ErrCorrupt.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, and nothing of a store may lead out of it: put the file itself there: %w",
			path, cas.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file: it is not of ckptfs; move it away: %w", path, cas.ErrCorrupt)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
