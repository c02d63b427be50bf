package share

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// atATime bounds the files that are looked for at a time.
const atATime = 4096

// sparable is a file that may be dropped.
type sparable struct {
	path string
	used int64 // nanoseconds since 1970
}

// Spare drops published files, least recently used first, until they are of so many bytes, and returns what
// it dropped; see Drop, which asks the remote for each object before. used is when a file was used last, in
// nanoseconds since 1970. A remote that is not reached ends it.
func (s *Share) Spare(ctx context.Context, bytes int64, used func(*names.Node) (int64, error)) (
	*control.Dropped, error) {
	d := &dropping{Share: s, out: control.Dropped{Skipped: []control.Skip{}}}
	some, err := oldest(ctx, s, used)
	if err == nil && len(some) > 0 {
		_, err = fetchHeads(ctx, s) // as Drop does
	}
	for _, c := range some {
		if err != nil || d.out.Bytes >= bytes || unasked(d.unheld) {
			break
		}
		err = d.path(ctx, c.path)
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
		return gone(err)
	}
	defer n.Unpin()
	if n.File() == nil {
		return nil
	}
	return d.file(ctx, p, n)
}

// oldest are the published files of runs whose bytes are here, and that rest: those that were used longest
// ago, oldest first.
func oldest(ctx context.Context, s *Share, used func(*names.Node) (int64, error)) (
	some []sparable, err error) {
	top, err := s.o.Names.Resolve(steps.Dir)
	if err != nil {
		return nil, gone(err)
	}
	defer top.Unpin()
	rested := s.o.Now().Add(-restsFor).UnixNano()
	err = s.o.Names.WalkBelow(ctx, steps.Dir, top, func(p string, n *names.Node) error {
		if is, err := isSparable(s, p, n); err != nil || !is {
			return err
		}
		at, err := used(n)
		if err != nil {
			return gone(err)
		}
		if at < rested {
			some = append(some, sparable{p, at})
		}
		if len(some) == 2*atATime {
			some = oldestOf(some)
		}
		return ctx.Err()
	})
	return oldestOf(some), err
}

func oldestOf(some []sparable) []sparable {
	slices.SortFunc(some, func(a, b sparable) int { return cmp.Compare(a.used, b.used) })
	return some[:min(len(some), atATime)]
}

// isSparable reports whether a file is packed here and was published, as far as its record tells.
func isSparable(s *Share, p string, n *names.Node) (bool, error) {
	if !shared.MayPublish(path.Base(p)) || !packedHere(n.File()) {
		return false, nil
	}
	a, err := n.Attr()
	if err != nil || a.Size <= record.MaxInline { // its bytes come with its name
		return false, gone(err)
	}
	k, err := s.o.State.Name(p)
	return k != nil, err
}

func packedHere(f *content.File) bool {
	f.Lock()
	defer f.Unlock()
	if f.LoadLocked() != nil {
		return false
	}
	is := f.StateLocked()
	return is.Packed() && !is.Record.Remote && !is.InUse
}
