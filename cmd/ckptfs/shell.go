package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"ckptfs/fs/control"
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
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	there, rest := abs, ""
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist) && there != "/"; _, err = os.Lstat(there) {
		there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest)
	}
	return s.a.with(ctx, there, readWrite, func(k *session) error {
		return do(k.Client, path.Join(k.place.path, rest))
	})
}

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
