package virtual

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/inspect"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
	"ckptfs/fs/virtual/patches"
)

// sinceRoot is .ckptfs/since:
//
//	.ckptfs/since/RUN/A/B.safetensors     what changed from step A of a run to step B, an inspect.Patch
//
// It is there for two complete steps whose tensors the caller may read. It is made when its name is looked
// up, for its size is not known before, so no list has it. Patches are kept for a minute behind their last
// use.
type sinceRoot struct{}

func (r sinceRoot) entry(*Virtual) entry { return entry{dir: r, key: "since", stat: bestRoot{}.stat} }

// SincePath is the path of a patch, below the mount's root.
func SincePath(run, a, b string) string { return path.Join(Name, "since", run, a, b+view.Suffix) }

// sinceKey is the identity of a folder in .ckptfs/since.
type sinceKey struct{ run, step string }

func (sinceRoot) lookup(_ context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	src, err := runNode(v, name)
	if err != nil {
		return entry{}, err
	}
	return entry{dir: sinceRun(name), key: sinceKey{run: name}, src: src, sight: inPlace}, nil
}

func (sinceRoot) list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error) {
	return bestRoot{}.list(v, c)
}

// sinceRun is .ckptfs/since/RUN.
type sinceRun string

// complete are the complete steps of a run.
func (run sinceRun) complete(ctx context.Context, v *Virtual) (out []*steps.Step, err error) {
	_, all, err := v.o.Steps.Run(ctx, "lookup", path.Join(steps.Dir, string(run)))
	for _, s := range all {
		if v.o.Steps.State(s) == control.StepComplete {
			out = append(out, s)
		}
	}
	return out, err
}

// stepNamed is the one of a name, or nil.
func stepNamed(all []*steps.Step, name string) *steps.Step {
	if i := slices.IndexFunc(all, func(s *steps.Step) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

func (run sinceRun) lookup(ctx context.Context, v *Virtual, _ *tree.Asker, name string) (entry, error) {
	all, err := run.complete(ctx, v)
	if err != nil || stepNamed(all, name) == nil {
		return entry{}, missing(err)
	}
	src, err := v.o.Names.Resolve(path.Join(steps.Dir, string(run), name))
	if err != nil {
		return entry{}, unix.ENOENT
	}
	key := sinceKey{string(run), name}
	return entry{dir: sinceStep(key), key: key, src: src, sight: inPlace}, nil
}

func (run sinceRun) list(v *Virtual, c *tree.Asker) (out []tree.DirEntry, err error) {
	all, err := run.complete(context.Background(), v)
	for _, s := range all {
		out = append(out, tree.DirEntry{Name: s.Name, Mode: unix.S_IFDIR})
	}
	return out, err
}

// sinceStep is .ckptfs/since/RUN/A.
type sinceStep sinceKey

func (from sinceStep) lookup(ctx context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	to, ok := strings.CutSuffix(name, view.Suffix)
	if !ok {
		return entry{}, unix.ENOENT
	}
	all, err := sinceRun(from.run).complete(ctx, v)
	a, b := stepNamed(all, from.step), stepNamed(all, to)
	if err != nil || a == nil || b == nil {
		return entry{}, missing(err)
	}
	at := func(step string) string { return path.Join(steps.Dir, from.run, step) }
	for _, step := range []string{from.step, to} {
		n, err := v.o.Names.Resolve(at(step))
		if err != nil {
			return entry{}, unix.ENOENT
		}
		seen := v.visible(c, byPath, n)
		n.Unpin()
		if !seen {
			return entry{}, unix.ENOENT
		}
	}
	make := func() (*inspect.Patch, error) { return v.o.Since(ctx, at(from.step), at(to)) }
	p, err := v.patches.Find(ctx, patches.Key{Run: from.run, From: from.step, To: to,
		FilesFrom: filesOf(a), FilesTo: filesOf(b)}, make)
	if err != nil {
		return entry{}, unpatched(err)
	}
	defer p.Close()
	files := p.Files()
	for _, f := range files {
		if !v.visible(c, byPath, v.o.NodeOf(f)) {
			return entry{}, unix.ENOENT
		}
	}
	src := v.o.NodeOf(files[len(files)-1])
	src.Pin()
	return entry{key: p, src: src, sight: byPath, patch: p}, nil
}

// unpatched is the error of a name whose patch cannot be made: ENOENT where there can be none.
func unpatched(err error) error {
	if errors.Is(err, view.ErrNoView) || errors.Is(err, tree.ErrNotRegular) {
		return unix.ENOENT
	}
	return err
}

// list has no names: see sinceRoot.
func (sinceStep) list(*Virtual, *tree.Asker) ([]tree.DirEntry, error) { return nil, nil }

// filesOf says which files a step has.
func filesOf(s *steps.Step) string {
	var b strings.Builder
	for _, f := range s.Files.All() {
		b.WriteString(f.Rel)
		b.WriteByte(0)
		for k := range 8 {
			b.WriteByte(byte(f.Ino >> (8 * k)))
		}
	}
	return b.String()
}

// openPatch is an open patch.
type openPatch struct {
	unwritten
	p *inspect.Patch
}

// open opens a patch; ESTALE when it is gone: its name is looked up again.
func (o openPatch) open() (openPatch, content.Mode, error) {
	if !o.p.Retain() {
		return openPatch{}, 0, unix.ESTALE
	}
	return o, content.Cached, nil
}

func (o openPatch) Read(b []byte, off int64) (int, error) {
	n, err := o.p.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (o openPatch) Close() { o.p.Close() }
