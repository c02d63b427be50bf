package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// shell is the program to commands in packages of their own.
type shell struct{ a *app }

func (s shell) Show(v any, human func(io.Writer)) error { return s.a.show(v, human) }

func (s shell) Usage(cmd *cobra.Command, message string) error { return exit.Wrong(cmd, message) }

func (s shell) Say(format string, args ...any) {
	fmt.Fprintf(s.a.err, "ckptfs: %s\n", text.Printable(fmt.Sprintf(format, args...)))
}

// visit is what a command does in a store.
type visit = func(c *control.Client, at *place.Place) error

func (s shell) Look(ctx context.Context, path string, do visit) error {
	return s.a.with(ctx, path, readOnly, as(do))
}

func (s shell) LookPast(ctx context.Context, path string, do visit) error {
	return s.a.with(ctx, path, readPast, as(do))
}

func (s shell) Change(ctx context.Context, path string, do visit) error {
	return s.a.with(ctx, path, readWrite, as(do))
}

func (s shell) Whole(cmd *cobra.Command, path string, do visit) error {
	return whole(s.a, cmd, path, readOnly, as(do))
}

func (s shell) LookTwo(ctx context.Context, path, other string,
	do func(c *control.Client, at *place.Place, other string) error) error {
	return s.a.withTwo(ctx, path, other, func(k *session, other string) error {
		return do(k.Client, k.place, other)
	})
}

func as(do visit) func(*session) error {
	return func(k *session) error { return do(k.Client, k.place) }
}

func (s shell) Store(path string) (string, error) {
	p, err := place.Find(path)
	if err != nil {
		return "", err
	}
	if p.Gone {
		return "", control.NotFound("%s: no such file or directory", path)
	}
	return p.Store, nil
}

// With takes a path that need not be there yet.
func (s shell) With(ctx context.Context, name string, do func(c *control.Client, at string) error) error {
	there, rest, err := place.Existing(name)
	if err != nil {
		return err
	}
	return s.a.with(ctx, there, readWrite, func(k *session) error {
		return do(k.Client, path.Join(k.place.Path, rest))
	})
}

// Inside changes nothing but a store that was not closed in order, which is repaired first.
func (s shell) Inside(ctx context.Context, names []string,
	do func(c *control.Client, at []string) error) error {
	var first *place.Place
	at := make([]string, len(names))
	for i, name := range names {
		p, err := place.FindInside(name)
		if err != nil {
			return err
		}
		if first == nil {
			first = p
		} else if p.Store != first.Store {
			return fmt.Errorf("%s and %s are in different stores, %s and %s: name paths of one", names[0], name, first.Store, p.Store)
		}
		at[i] = p.Path
	}
	k, err := s.a.connect(ctx, first, readOnly)
	if err != nil {
		return err
	}
	return k.end(do(k.Client, at))
}

// Outside fails for a path in the folder of a store: what belongs there is written through its mount.
func (s shell) Outside(path string) error {
	there, _, _ := place.Existing(path) // find has the same error
	p, err := place.Find(there)
	if err == nil && p.Mount == nil {
		err = control.Invalid("%s is in the folder of the store %s: mount it, and name a path in the mount", path, p.Store)
	}
	if errors.Is(err, tree.ErrNotStore) {
		return nil
	}
	return err // also of the store's own files
}

// Terminal reports whether what commands print goes to one.
func (s shell) Terminal() bool {
	f := text.File(s.a.out)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

func (s shell) Out() io.Writer { return s.a.out }

func (s shell) JSON() bool { return s.a.json }

func (s shell) Tell(ctx context.Context, store string, do func(c *control.Client) error) error {
	c, err := reach(ctx, &place.Place{Store: store}, gap)
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

// Waiting shows on a terminal for how long something takes of which nothing else is known.
func (s shell) Waiting(doing string) (done func()) {
	if !s.a.tty || s.a.json {
		return func() {}
	}
	return text.Waiting(s.a.err, doing)
}

func (s shell) IsStore(dir string) bool { return place.IsStore(dir) }

func (s shell) Left(skipped []control.Skip) { s.a.left(skipped) }

func (s shell) Partial() error { return exit.ErrPartial }

// Doing says it on the terminal's last line.
func (s shell) Doing() (say func(what string), done func()) {
	if !s.a.tty || s.a.json {
		return func(string) {}, func() {}
	}
	const clear = "\r\x1b[K"
	return func(what string) { fmt.Fprint(s.a.err, clear, what) }, func() { fmt.Fprint(s.a.err, clear) }
}
