package maintenance

import (
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
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

// remoteLocked mends a stub: its size and its header.
func (r *treeRepair) remoteLocked(n *names.Node, is content.State) (did string, err error) {
	if !is.Record.Hollow || is.Hydrating {
		return "", nil
	}
	size, err := r.passes.Files.RemoteSize(is.Record.Manifest)
	if err != nil {
		return "", nil // nothing says how long it is; what a fetch finds does
	}
	return sizeLocked(n, is, size)
}
