package inout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

// into moves the folder to a path in a store that there is, mounted or not. The store's daemon does it, by
// one rename.
func (a *adopt) into(ctx context.Context, to string) error {
	_, missing := os.Lstat(to)
	taken := !errors.Is(missing, os.ErrNotExist)
	var err error
	var other bool
	above := filepath.Dir(to)
	if a.store, _, _, err = a.Place(above); err == nil {
		other, err = a.elsewhere()
	}
	if err != nil && !taken {
		return err
	}
	if _, err := os.Lstat(above); errors.Is(err, os.ErrNotExist) {
		return a.Unfit(fmt.Sprintf("%s does not exist: `mkdir -p %s` makes it", above, text.Word(above)))
	}
	if other {
		d, err := tree.OpenStore(a.store, a.foreign)
		if err != nil {
			return err
		}
		defer d.Close()
		return a.bring(ctx, d, to)
	}
	if _, err := os.Lstat(a.dir); taken && errors.Is(err, os.ErrNotExist) {
		a.Say("%s is gone and %s is there: an earlier run has taken it in", text.Printable(a.dir), text.Printable(to))
		return nil
	}
	if taken {
		return a.Unfit(to + " is there already: name what is to be made")
	}
	if err := a.vet(ctx, false); err != nil {
		return err
	}
	if err := a.strip(ctx); err != nil {
		return err
	}
	err = a.With(ctx, to, func(c *control.Client, at string) error { return c.TakeIn(ctx, a.dir, at) })
	if err != nil {
		return err
	}
	v := struct {
		Dir   string `json:"dir"`
		Store string `json:"store"`
		Path  string `json:"path"`
		*inplace.Looked
	}{a.dir, a.store, to, a.looked}
	return a.Show(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s is %s now, with %s, %s\n", text.Printable(a.dir), text.Printable(to),
			text.Plural(a.looked.Files, "file"), text.Bytes(a.looked.Bytes))
	})
}
