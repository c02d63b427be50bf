package tree

import (
	"errors"
	"io/fs"
	"os"

	"ckptfs/cas/disk"
)

// NewFile makes a file of the store's own: what has its name goes, and a link that is put there meanwhile
// leads nowhere. So a user who may write the store's folder cannot have another file written over.
func NewFile(d *disk.Folder, name string) (*os.File, error) {
	if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// WriteNew is os.WriteFile to a NewFile.
func WriteNew(d *disk.Folder, name string, data []byte) error {
	f, err := NewFile(d, name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
