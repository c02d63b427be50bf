package virtual

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// latestRoot is .ckptfs/latest: for each run a symbolic link to the step that it can be gone on from
// (steps.Last). Each use of it finds the step again.
type latestRoot struct{}

func (r latestRoot) entry(*Virtual) entry { return entry{dir: r, key: "latest", stat: bestRoot{}.stat} }

// latestKey is the identity of what the name of a run leads to.
type latestKey string

func (latestRoot) lookup(ctx context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	if _, err := latest(ctx, v, name); err != nil {
		return entry{}, err
	}
	src := bestRoot{}.attrs(v, name)
	if src == nil {
		return entry{}, unix.ENOENT
	}
	link := func(v *Virtual, c *tree.Asker) (string, error) {
		src := bestRoot{}.attrs(v, name)
		if src == nil {
			return "", unix.ENOENT
		}
		defer src.Unpin()
		if !v.visible(c, inPlace, src) {
			return "", unix.ENOENT
		}
		return latest(context.Background(), v, name)
	}
	return entry{key: latestKey(name), src: src, sight: inPlace, link: link}, nil
}

// latest is where the link of a run leads, from its place.
func latest(ctx context.Context, v *Virtual, run string) (string, error) {
	_, all, err := v.o.Steps.Run(ctx, "readlink", path.Join(steps.Dir, run))
	if err != nil {
		return "", unix.ENOENT
	}
	st := v.o.Steps.Last(all)
	if st == nil {
		return "", unix.ENOENT
	}
	return path.Join("../..", steps.Dir, run, st.Name), nil
}

func (latestRoot) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	found, err := v.o.Steps.Of()
	for name, all := range found {
		src := bestRoot{}.attrs(v, name)
		if src == nil {
			continue
		}
		if v.o.Steps.Last(all) != nil && v.visible(c, inPlace, src) {
			out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFLNK})
		}
		src.Unpin()
	}
	return out, err
}
