// Package rested finds published files that nobody used for a while, and whose bytes are here.
package rested

import (
	"cmp"
	"context"
	"path"
	"slices"
	"time"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// AtATime bounds the files that are looked for at a time.
const AtATime = 4096

// File is a file that may be dropped.
type File struct {
	Path string
	used int64 // nanoseconds since 1970
}

// Files says what to look for.
type Files struct {
	Names *names.Names
	Now   time.Time
	// Known reports whether the remote has a name, as far as is known.
	Known func(p string) (bool, error)
	// Used is when a file was used last, in nanoseconds since 1970.
	Used func(*names.Node) (int64, error)
}

// Oldest are the published files of runs whose bytes are here, and that rest: those that were used longest
// ago, oldest first.
func (f Files) Oldest(ctx context.Context) (some []File, err error) {
	top, err := f.Names.Resolve(steps.Dir)
	if err != nil {
		return nil, shared.Gone(err)
	}
	defer top.Unpin()
	rested := f.Now.Add(-restsFor).UnixNano()
	err = f.Names.WalkBelow(ctx, steps.Dir, top, func(p string, n *names.Node) error {
		if is, err := f.counts(p, n); err != nil || !is {
			return err
		}
		at, err := f.Used(n)
		if err != nil {
			return shared.Gone(err)
		}
		if at < rested {
			some = append(some, File{p, at})
		}
		if len(some) == 2*AtATime {
			some = oldestOf(some)
		}
		return ctx.Err()
	})
	return oldestOf(some), err
}

func oldestOf(some []File) []File {
	slices.SortFunc(some, func(a, b File) int { return cmp.Compare(a.used, b.used) })
	return some[:min(len(some), AtATime)]
}

// counts reports whether a file is packed here and was published, as far as its record tells.
func (f Files) counts(p string, n *names.Node) (bool, error) {
	if !shared.MayPublish(path.Base(p)) || !packedHere(n.File()) {
		return false, nil
	}
	a, err := n.Attr()
	if err != nil || a.Size <= record.MaxInline { // its bytes come with its name
		return false, shared.Gone(err)
	}
	return f.Known(p)
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
