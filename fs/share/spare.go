package share

import (
	"context"
	"errors"

	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/rested"
	"ckptfs/fs/share/shared"
)

// Spare drops published files, least recently used first, until they are of so many bytes, and returns what
// it dropped; see Drop, which asks the remote for each object before. used is when a file was used last, in
// nanoseconds since 1970. A remote that is not reached ends it.
func (s *Share) Spare(ctx context.Context, bytes int64, used func(*names.Node) (int64, error)) (
	*control.Dropped, error) {
	d := &dropping{Share: s, out: control.Dropped{Skipped: []control.Skip{}}}
	known := func(p string) (bool, error) {
		k, err := s.o.State.Name(p)
		return k != nil, err
	}
	some, err := rested.Files{Names: s.o.Names, Now: s.o.Now(), Known: known, Used: used}.Oldest(ctx)
	if err == nil && len(some) > 0 {
		_, err = fetchHeads(ctx, s) // as Drop does
	}
	for _, c := range some {
		if err != nil || d.out.Bytes >= bytes || unasked(d.unheld) {
			break
		}
		err = d.path(ctx, c.Path)
	}
	if err == nil && unasked(d.unheld) {
		err = d.unheld
	}
	return &d.out, err
}

// unasked reports whether an error is that the remote itself could not be asked.
func unasked(err error) bool {
	return err != nil && !errors.Is(err, bucket.ErrNotFound) && !lost(err)
}

// path drops the file at a path, if it is there still.
func (d *dropping) path(ctx context.Context, p string) error {
	n, err := d.o.Names.Resolve(p)
	if err != nil {
		return shared.Gone(err)
	}
	defer n.Unpin()
	if n.File() == nil {
		return nil
	}
	return d.file(ctx, p, n)
}
