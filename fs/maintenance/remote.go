package maintenance

import (
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// remote checks a file whose bytes a remote has, as far as its plan. A remote that is not reached is asked
// once.
func (c *check) remote(path string, manifest cas.Hash, size int64) {
	c.count(func() { c.out.Remote++ })
	has, err := c.passes.Files.RemoteSize(manifest)
	if err == nil && has != size {
		err = fmt.Errorf("it has %d bytes, and the remote says %d: %w", size, has, cas.ErrCorrupt)
	}
	if err == nil && c.passes.Plan != nil && !c.unreached.Load() {
		err = c.passes.Plan(manifest)
	}
	switch {
	case err == nil && c.unreached.Load():
		c.count(func() { c.out.Unreached++ })
	case err == nil:
	case damaged(err):
		c.problem(control.Problem{Path: path, What: err.Error()})
	default:
		c.unreached.Store(true)
		c.count(func() { c.out.Unreached++ })
	}
}

// damaged reports whether an error says that a remote has lost a file, and not that it cannot be asked.
func damaged(err error) bool {
	return errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) ||
		errors.Is(err, bucket.ErrNotFound)
}

// remoteLocked mends a file whose bytes a remote has: its size and its header.
func (r *treeRepair) remoteLocked(f *content.File, size int64, manifest cas.Hash) (did string, err error) {
	has, err := r.passes.Files.RemoteSize(manifest)
	if err != nil {
		return "", nil // nothing says how long it is; what a fetch finds does
	}
	h, err := f.HeaderLocked()
	if has == size && err == nil && h.Record.Manifest == manifest && h.Size == size {
		return "", nil
	}
	if err := f.DisbelieveLocked(); err != nil {
		return "", err
	}
	if has != size {
		return fmt.Sprintf("%d bytes long again, not %d", has, size), nil
	}
	return "header written again", nil
}
