package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// shell is the program to commands in packages of their own.
type shell struct{ a *app }

func (s shell) Show(v any, human func(io.Writer)) error { return s.a.show(v, human) }

func (s shell) Usage(cmd *cobra.Command, message string) error {
	return &usageError{msg: message, cmd: cmd}
}

func (s shell) Store(path string) (string, error) {
	p, err := find(path)
	if err != nil {
		return "", err
	}
	if p.gone {
		return "", control.NotFound("%s: no such file or directory", path)
	}
	return p.store, nil
}

// With takes a path that need not be there yet.
func (s shell) With(ctx context.Context, name string, do func(c *control.Client, at string) error) error {
	there, rest, err := existing(name)
	if err != nil {
		return err
	}
	return s.a.with(ctx, there, readWrite, func(k *session) error {
		return do(k.Client, path.Join(k.place.path, rest))
	})
}

// Inside changes nothing but a store that was not closed in order, which is repaired first.
func (s shell) Inside(ctx context.Context, names []string,
	do func(c *control.Client, at []string) error) error {
	var first *place
	at := make([]string, len(names))
	for i, name := range names {
		p, err := findInside(name)
		if err != nil {
			return err
		}
		if first == nil {
			first = p
		} else if p.store != first.store {
			return fmt.Errorf("%s and %s are in different stores, %s and %s: name paths of one", names[0], name, first.store, p.store)
		}
		at[i] = p.path
	}
	k, err := s.a.connect(ctx, first, readOnly)
	if err != nil {
		return err
	}
	return k.end(do(k.Client, at))
}

// Outside fails for a path in the folder of a store: what belongs there is written through its mount.
func (s shell) Outside(path string) error {
	there, _, _ := existing(path) // find has the same error
	p, err := find(there)
	if err == nil && p.mount == nil {
		err = control.Invalid("%s is in the folder of the store %s: mount it, and name a path in the mount", path, p.store)
	}
	if errors.Is(err, tree.ErrNotStore) {
		return nil
	}
	return err // also of the store's own files
}

// Terminal reports whether what commands print goes to one.
func (s shell) Terminal() bool {
	f, ok := s.a.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (s shell) Out() io.Writer { return s.a.out }

func (s shell) JSON() bool { return s.a.json }

func (s shell) Tell(ctx context.Context, store string, do func(c *control.Client) error) error {
	c, err := reach(ctx, &place{store: store}, gap)
	if errors.Is(err, control.ErrNoDaemon) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func (s shell) Make(ctx context.Context, store string) error {
	v, err := volume.Open(volume.Options{Dir: store, Create: true, HotSize: -1})
	if err != nil {
		return err
	}
	return v.Close(ctx)
}

func (s shell) Progress(doing string) (update func(control.Progress), done func()) {
	return s.a.progress(doing)
}

func (s shell) Saying(doing func() string) (update func(control.Progress), done func()) {
	if !s.a.tty || s.a.json {
		return nil, func() {}
	}
	return text.Progress(s.a.err, doing)
}

func (s shell) IsStore(dir string) bool { return isStore(dir) }

func (s shell) Left(skipped []control.Skip) { s.a.left(skipped) }

func (s shell) Partial() error { return errPartial }

// Doing says it on the terminal's last line.
func (s shell) Doing() (say func(what string), done func()) {
	if !s.a.tty || s.a.json {
		return func(string) {}, func() {}
	}
	const clear = "\r\x1b[K"
	return func(what string) { fmt.Fprint(s.a.err, clear, what) }, func() { fmt.Fprint(s.a.err, clear) }
}
