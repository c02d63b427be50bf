package volume

import (
	"context"
	"path"
	"strings"
	"time"

	"ckptfs/fs/names"
	"ckptfs/fs/share"
	"ckptfs/fs/steps"
	"ckptfs/fs/virtual"
	"ckptfs/fs/virtual/ways"
)

// ensure brings the names in a folder up to date with what others published. more is what is asked for in it,
// or "".
func (s *sharing) ensure(ctx context.Context, dir *names.Node, more string) {
	one := s.get()
	switch {
	case one == nil:
	case dir.Synth() != nil:
		if dir.IsVirtual() {
			s.ensureShown(ctx, one, path.Join(dir.Path(), more))
		}
	case dir.ID() == rootID || dir.Below(steps.Dir):
		one.Ensure(ctx, dir.Path())
	}
}

// ensureShown is ensure of what a name below .ckptfs shows.
func (s *sharing) ensureShown(ctx context.Context, one *share.Share, p string) {
	kind, shown, _ := strings.Cut(strings.TrimPrefix(p, virtual.Name+"/"), "/")
	switch kind {
	case virtual.Best.Name(): // links into the run, which the kernel follows by what it knows
		run, _, _ := strings.Cut(shown, "/")
		below(ctx, one, path.Join(steps.Dir, run))
		ctx, end := context.WithTimeout(ctx, heardWithin)
		defer end()
		share.Heard(ctx, one)
	case virtual.Make.Name(), virtual.Tensors.Name():
		if kind == virtual.Make.Name() {
			shown = ways.Of(shown)
		}
		one.Ensure(ctx, shown)
		if dir := path.Dir(shown); dir != "." {
			one.Ensure(ctx, dir)
		}
	}
}

// heardWithin bounds for how long a request waits until the kernel heard of names: it may have locked the
// folder of one of them for that request's caller.
const heardWithin = time.Second

// appear has all names appear that others published at or below paths, which a command is about: what it
// looks at looks into no folder by itself. What is not reached is as it was seen last.
func (s *sharing) appear(ctx context.Context, paths ...string) {
	one := s.get()
	if one == nil {
		return
	}
	for _, p := range paths {
		below(ctx, one, p)
	}
	share.Heard(ctx, one)
}

// below is appear of one path, before the kernel heard of it.
func below(ctx context.Context, one *share.Share, p string) {
	p = strings.Trim(path.Clean("/"+p), "/")
	if p == "" || p == virtual.Name || strings.HasPrefix(p, virtual.Name+"/") {
		one.Ensure(ctx, "")
		one.Ensure(ctx, steps.Dir)
		return
	}
	_ = one.EnsureBelow(ctx, p) // the command meets what cannot be listed
}

// rootID is the kernel's id of the mount's root.
const rootID = 1
