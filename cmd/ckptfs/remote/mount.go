package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/web"
	"ckptfs/fs/tree"
)

// Places are the store and the mountpoint of a mount's arguments. With a remote the store may be left out: it
// is the folder below the user's data that belongs to this remote.
func (m *MountFlags) Places(args []string) (store, mountpoint string, err error) {
	switch {
	case len(args) == 2:
		return args[0], args[1], nil
	case len(args) != 1 || m.url == "":
		return "", "", errors.New("mount takes STORE MOUNTPOINT, or, with --remote, MOUNTPOINT")
	}
	if store, err = m.ownStore(); err == nil {
		err = os.MkdirAll(filepath.Dir(store), 0o700)
	}
	return store, args[0], err
}

// ownStore is where the store of a remote is that was given no place: not among caches, since what is not
// published yet is there alone.
func (m *MountFlags) ownStore() (string, error) {
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) { // then it is to be ignored (XDG Base Directory Specification)
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place for the store: %w; give STORE", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	_, at, _ := strings.Cut(m.url, "://")
	name := strings.ReplaceAll(strings.Trim(at, "/"), "/", "+") // which no URL of a remote has
	return filepath.Join(data, "ckptfs", name), nil
}

// Joins reports whether the store is to have a remote that the flags name.
func (m *MountFlags) Joins() bool { return m.url != "" }

// Join joins the store of a mount to the remote that --remote names, and makes it if there is none. It
// returns nil if the store had joined it before. With an error it may have been joined.
func (m *MountFlags) Join(ctx context.Context, s Shell, store string) (*Added, error) {
	if err := m.checkMirror(ctx); m.url == "" || err != nil {
		return nil, err
	}
	c := newCommands(s)
	joined, err := joinedTo(store, m.address)
	switch {
	case err != nil:
		return nil, err
	case joined != nil && m.reader && !joined.ReadOnly():
		return nil, otherRole(store, joined)
	case joined != nil:
		return nil, nil
	}
	if unmade(store) {
		return c.begin(ctx, m.address, store, nil, m.role)
	}
	if _, err := c.Store(store); err != nil {
		return nil, err
	}
	if (m.reader || m.address.ReadOnly()) && !unmade(filepath.Join(store, tree.TreeDir)) {
		return nil, fmt.Errorf("store %s has files of its own, and its mounts would be read-only: give another one", store)
	}
	added, err := c.join(ctx, m.address, store, m.role)
	if err != nil {
		return nil, err
	}
	return added, c.look(ctx, store)
}

// checkMirror asks a mirror whether it can be read in parts. One that does not answer may do so later.
func (m *MountFlags) checkMirror(ctx context.Context) error {
	if m.mirror == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mirrorPatience)
	defer cancel()
	server, err := web.Open(m.mirror, nil)
	if err == nil {
		err = server.CheckRanges(ctx)
	}
	return err
}

// OnlyReads reports whether a store has a remote that nothing can be published to.
func OnlyReads(store string) bool {
	j, err := remote.ReadJoined(store)
	return err == nil && j.ReadOnly()
}
