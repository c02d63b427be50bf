package virtual

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

// bestRoot is .ckptfs/best: a directory for each run, and in it for each metric the symbolic links METRIC.min
// and METRIC.max to the best complete step. A metric's name is written as runs.FileName does. The links are
// for callers who may list runs/ and the run. Of the steps those take part whose metrics the caller may read,
// so two callers may be led to two steps.
type bestRoot struct{}

// attrs is the node of runs/, or of a folder in it, with a reference; nil when it is not there. Its
// permissions and times are those of the folder that is shown here.
func (bestRoot) attrs(v *Virtual, run string) *names.Node {
	n, err := v.o.Names.Resolve(path.Join(steps.Dir, run))
	if err != nil {
		return nil
	}
	if !n.IsDir() {
		n.Unpin()
		return nil
	}
	return n
}

// bestKey is the identity of what the name of a run leads to.
type bestKey struct {
	run string
	src *names.Node
}

func (r bestRoot) entry(*Virtual) entry { return entry{dir: r, key: "best", stat: r.stat} }

// stat has the permissions of runs/ as they are now; without it, those of the mount's root.
func (r bestRoot) stat(v *Virtual) (tree.Attr, error) {
	src := r.attrs(v, "")
	if src == nil {
		src = v.o.Names.Root()
		src.Pin()
	}
	defer src.Unpin()
	a, err := src.Attr()
	a.Mode = unix.S_IFDIR | withoutWrite(a.Mode, unix.S_IFDIR)
	a.Settled = false
	return a, err
}

func (bestRoot) lookup(_ context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	src, err := runNode(v, name)
	if err != nil {
		return entry{}, err
	}
	return entry{dir: bestRun(name), key: bestKey{name, src}, src: src}, nil
}

// runNode is the node of a run's folder, with a reference; ENOENT when there is no such run.
func runNode(v *Virtual, name string) (*names.Node, error) {
	found, err := v.o.Steps.Of(name)
	if err != nil || found[name] == nil {
		return nil, missing(err)
	}
	src := bestRoot{}.attrs(v, name)
	if src == nil {
		return nil, unix.ENOENT
	}
	return src, nil
}

// missing is ENOENT unless there is another error.
func missing(err error) error {
	if err == nil {
		return unix.ENOENT
	}
	return err
}

func (bestRoot) list(v *Virtual, _ *tree.Asker) ([]tree.DirEntry, error) {
	names, err := v.o.Steps.Names()
	out := make([]tree.DirEntry, len(names))
	for i, name := range names {
		out[i] = tree.DirEntry{Name: name, Mode: unix.S_IFDIR}
	}
	return out, err
}

// bestRun is .ckptfs/best/RUN.
type bestRun string

func (run bestRun) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	if _, err := run.target(v, c, name); err != nil {
		return entry{}, err
	}
	target := func(v *Virtual, c *tree.Asker) (string, error) { return run.target(v, c, name) }
	return entry{key: [2]string{string(run), name}, link: target}, nil
}

func (run bestRun) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	all, err := run.judged(v, c)
	for _, metric := range runs.Names(all) {
		for _, mode := range []runs.Mode{runs.Min, runs.Max} {
			if _, ok := runs.Best(all, metric, mode); ok {
				name := runs.FileName(metric) + "." + mode.String()
				out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFLNK})
			}
		}
	}
	return out, err
}

// judged are the steps that take part for a caller: those whose metrics the caller may read, of a run that it
// may list.
func (run bestRun) judged(v *Virtual, c *tree.Asker) ([]runs.Step, error) {
	src := bestRoot{}.attrs(v, string(run))
	if src == nil {
		return nil, nil
	}
	defer src.Unpin()
	if !v.visible(c, inPlace, src) {
		return nil, nil
	}
	found, err := v.o.Steps.Of(string(run))
	all := slices.Clone(found[string(run)])
	return v.o.Steps.Judged(slices.DeleteFunc(all, func(s *steps.Step) bool {
		return slices.ContainsFunc(s.Guards, func(g tree.Guard) bool { return !c.Passes(g) })
	})), err
}

// target is where a link leads, from its place.
func (run bestRun) target(v *Virtual, c *tree.Asker, name string) (string, error) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", unix.ENOENT
	}
	mode, err := runs.ParseMode(name[dot+1:])
	metric, ok := runs.MetricOf(name[:dot])
	if err != nil || !ok {
		return "", unix.ENOENT
	}
	all, err := run.judged(v, c)
	if err != nil {
		return "", err
	}
	i, ok := runs.Best(all, metric, mode)
	if !ok {
		return "", unix.ENOENT
	}
	return path.Join("../../..", steps.Dir, string(run), all[i].Name), nil
}
