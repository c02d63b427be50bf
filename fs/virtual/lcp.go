package virtual

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
)

// lcpRoot is .ckptfs/lcp: a directory for each run, and in it a file for each complete step. The file holds
// the model that has most in common with the step's model, as `ckptfs match --like` finds it: a
// control.MatchAnswer as JSON. The answer is found when the file is opened. The open fails with EINVAL for a
// step of several models, and with ENODATA for a step without one. An answer names models of all users, so
// these names are for the daemon's user, as the control socket is.
type lcpRoot struct{}

func (r lcpRoot) entry(*Virtual) entry {
	return entry{dir: r, key: "lcp", stat: owners(unix.S_IFDIR | 0o500)}
}

func (lcpRoot) lookup(_ context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	found, err := v.o.Steps.Of(name)
	if err != nil || found[name] == nil {
		return entry{}, missing(err)
	}
	run := lcpRun(name)
	return entry{dir: run, key: run, sight: toOwner, stat: owners(unix.S_IFDIR | 0o500)}, nil
}

func (lcpRoot) list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error) {
	if !v.visible(c, toOwner, nil) {
		return nil, unix.EACCES
	}
	return bestRoot{}.list(v, c)
}

// lcpRun is .ckptfs/lcp/RUN.
type lcpRun string

func (run lcpRun) lookup(_ context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	found, err := v.o.Steps.Of(string(run))
	st := stepNamed(found[string(run)], name)
	if err != nil || st == nil || v.o.Steps.State(st) != control.StepComplete {
		return entry{}, missing(err)
	}
	answer := func(ctx context.Context, v *Virtual) ([]byte, error) {
		like := path.Join(steps.Dir, string(run), name)
		a, found, err := v.o.Models.Match(ctx, control.MatchOptions{Like: like})
		if found != nil {
			found.Unpin()
		}
		if err != nil {
			return nil, err
		}
		return a.Text()
	}
	key := [2]string{string(run), name}
	return entry{key: key, sight: toOwner, stat: owners(unix.S_IFREG | 0o400), text: answer}, nil
}

func (run lcpRun) list(v *Virtual, _ *tree.Asker) (out []tree.DirEntry, err error) {
	found, err := v.o.Steps.Of(string(run))
	for _, s := range found[string(run)] {
		if v.o.Steps.State(s) != control.StepComplete {
			continue
		}
		out = append(out, tree.DirEntry{Name: s.Name, Mode: unix.S_IFREG})
	}
	return out, err
}
