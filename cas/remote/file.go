package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ckptfs/cas/disk"
)

// JoinedPath is where a store says which remote it publishes to.
func JoinedPath(store string) string { return filepath.Join(store, JoinedFile) }

// ReadJoined reads STORE/remote; os.ErrNotExist if the store has no remote.
func ReadJoined(store string) (Joined, error) {
	p, err := os.ReadFile(JoinedPath(store))
	if err != nil {
		return Joined{}, err
	}
	j, err := ParseJoined(p)
	if err != nil {
		err = fmt.Errorf("%s: %w", JoinedPath(store), err)
	}
	return j, err
}

// Write makes STORE/remote, whole or not at all.
func (j Joined) Write(store string) error {
	tmp := JoinedPath(store) + ".new"
	fsys := disk.OS{}
	f, err := fsys.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(j.Encode(), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, JoinedPath(store)); err != nil {
		return err
	}
	return fsys.SyncDir(store)
}
