package volume

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

// bestRoot is .ckptfs/best: a directory for each run, and in it for each metric the symbolic links METRIC.min and METRIC.max to
// the best complete step. A metric's name is written as runs.FileName does. Who may list runs/ and a run may list these; a step that
// not all of them may list takes no part.
type bestRoot struct{}

// attrs is the node of runs/ or a folder in it, whose permissions and times are those of what is shown of it here; with a
// reference, nil when it is not there.
func (bestRoot) attrs(v *Volume, run string) *names.Node {
	n, err := v.names.Resolve(path.Join(steps.Dir, run))
	if err != nil {
		return nil
	}
	if !n.IsDir() {
		n.Unpin()
		return nil
	}
	return n
}

// bestKey tells what the name of a run leads to.
type bestKey struct {
	run string
	src *names.Node
}

func (r bestRoot) virtual(v *Volume) virtual {
	src := r.attrs(v, "")
	return virtual{dir: r, key: bestKey{"", src}, src: src}
}

func (bestRoot) lookup(v *Volume, name string) (virtual, error) {
	found, err := v.steps.Of(name)
	if err != nil || found[name] == nil {
		return virtual{}, missing(err)
	}
	src := bestRoot{}.attrs(v, name)
	if src == nil {
		return virtual{}, unix.ENOENT
	}
	return virtual{dir: bestRun(name), key: bestKey{name, src}, src: src}, nil
}

// missing is ENOENT unless there is another error.
func missing(err error) error {
	if err == nil {
		return unix.ENOENT
	}
	return err
}

func (bestRoot) list(v *Volume) ([]tree.DirEntry, error) {
	names, err := v.steps.Names()
	out := make([]tree.DirEntry, len(names))
	for i, name := range names {
		out[i] = tree.DirEntry{Name: name, Mode: unix.S_IFDIR}
	}
	return out, err
}

// bestRun is .ckptfs/best/RUN.
type bestRun string

func (run bestRun) lookup(v *Volume, name string) (virtual, error) {
	if _, err := run.target(v, name); err != nil {
		return virtual{}, err
	}
	return virtual{key: [2]string{string(run), name}, link: func(v *Volume) (string, error) { return run.target(v, name) }}, nil
}

func (run bestRun) list(v *Volume) (out []tree.DirEntry, err error) {
	all, err := run.judged(v)
	for _, metric := range runs.Names(all) {
		for _, mode := range []runs.Mode{runs.Min, runs.Max} {
			if _, ok := runs.Best(all, metric, mode); ok {
				out = append(out, tree.DirEntry{Name: runs.FileName(metric) + "." + mode.String(), Mode: unix.S_IFLNK})
			}
		}
	}
	return out, err
}

// judged are the steps that take part: those that everybody may see who may see the run.
func (run bestRun) judged(v *Volume) ([]runs.Step, error) {
	found, err := v.steps.Of(string(run))
	return v.steps.Judged(slices.DeleteFunc(slices.Clone(found[string(run)]), func(s *steps.Step) bool { return s.Private })), err
}

// target is where a link leads, from its place.
func (run bestRun) target(v *Volume, name string) (string, error) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", unix.ENOENT
	}
	mode, err := runs.ParseMode(name[dot+1:])
	metric, ok := runs.MetricOf(name[:dot])
	if err != nil || !ok {
		return "", unix.ENOENT
	}
	all, err := run.judged(v)
	if err != nil {
		return "", err
	}
	i, ok := runs.Best(all, metric, mode)
	if !ok {
		return "", unix.ENOENT
	}
	return path.Join("../../..", steps.Dir, string(run), all[i].Name), nil
}
