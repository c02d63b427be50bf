package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/assemble"
	"ckptfs/fs/share"
	"ckptfs/fs/share/versions"
	"ckptfs/fs/virtual"
)

// losers are the versions of names in the remote that .ckptfs/conflicts shows.
func (s *sharing) losers(ctx context.Context) (shown []virtual.Loser, err error) {
	one := s.get()
	if one == nil {
		return nil, nil
	}
	all, err := one.Versions().Losers(ctx)
	for _, l := range all {
		v := virtual.Loser{Path: l.Path(), Mtime: l.MTime, Link: l.Link,
			Key: loserKey{l.Name, record.Replaced{Writer: l.Origin, Version: l.Version}}}
		if l.File != nil {
			v.Size = l.File.Size
			v.Open = func(context.Context) (virtual.Bytes, error) { return s.openLoser(one, l) }
		}
		shown = append(shown, v)
	}
	return shown, err
}

// loserKey is the identity of a version: of one path and writer none has the number of another.
type loserKey struct {
	path string
	record.Replaced
}

// openLoser opens the bytes of a version. Nothing is asked over the network before they are read.
func (s *sharing) openLoser(one *share.Share, l versions.Loser) (virtual.Bytes, error) {
	if l.File.Manifest.IsZero() {
		return inlined{strings.NewReader(l.File.Inline)}, nil
	}
	if err := one.Expect(l); err != nil {
		return nil, err
	}
	done, err := s.v.reads.Pin(l.File.Manifest)
	if err != nil {
		return nil, err
	}
	f, err := s.v.asm.Open(l.File.Manifest)
	if err == nil && f.Size() != l.File.Size {
		err = errors.Join(fmt.Errorf("a manifest of %d bytes, and its entry says %d: %w", f.Size(), l.File.Size,
			cas.ErrCorrupt), f.Close())
	}
	if err != nil {
		done()
		return nil, err
	}
	return pinned{f, done}, nil
}

// inlined are bytes that an entry has.
type inlined struct{ *strings.Reader }

func (inlined) Close() error { return nil }

// pinned is an open file whose records are found until it is closed.
type pinned struct {
	*assemble.File
	unpin func()
}

func (p pinned) Close() error {
	defer p.unpin()
	return p.File.Close()
}
