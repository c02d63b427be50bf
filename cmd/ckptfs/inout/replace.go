package inout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/host"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/takeout"
	"ckptfs/fs/tree"
)

// writers are the programs that may write to files of a folder.
func (b *bring) writers(dir string) []string { return procs.Writing("/proc", dir) }

// replaceable looks whether the store may be mounted on the folder's path, and the folder kept beside it.
func (b *bring) replaceable() error {
	if err := host.Here().CheckFUSE(false); err != nil {
		return err
	}
	if tree.Used(b.store) {
		return control.Busy(fmt.Sprintf("the store %s is in use: unmount it first", b.store))
	}
	aside := b.dir + inplace.Original
	names, err := os.ReadDir(aside)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case len(names) > 0:
		return b.Unfit(aside + " is there already, where the folder is to be kept: move it away")
	}
	who := append(procs.Standing("/proc", b.dir), b.writers(b.dir)...)
	if len(who) > 0 {
		return control.Busy(fmt.Sprintf("%s: programs use it, and would go on with the original: %s; have them end first", b.dir,
			strings.Join(who, ", ")))
	}
	return nil
}

// replaced keeps the folder as DIR.original, and mounts the store on its path. What fails is undone.
func (b *bring) replaced(ctx context.Context, d *disk.Folder) error {
	root, err := d.OpenDir(".")
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(root.Fd())) // also what was there already
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", b.store, err)
	}
	if err := b.replaceable(); err != nil { // once more: the copy may have taken hours
		return err
	}
	if err := inplace.Aside(b.dir); err != nil {
		return err
	}
	err = b.unused(ctx)
	if err == nil {
		others := host.Here().CheckFUSE(true) == nil
		err = b.Mount(ctx, b.claim, b.line(others))
	}
	if err != nil {
		return fmt.Errorf("%w; %w", err, b.putBack())
	}
	b.out.Original, b.out.Mounted = b.dir+inplace.Original, true
	return nil
}

// unused looks that nobody reached the folder until it was moved, after it was looked at last.
func (b *bring) unused(ctx context.Context) error {
	aside := b.dir + inplace.Original
	if who := b.writers(aside); len(who) > 0 {
		return control.Busy(fmt.Sprintf("%s: programs write to it: %s; have them end first", b.dir, strings.Join(who, ", ")))
	}
	src, err := takeout.OpenFolder(aside, "")
	if err != nil {
		return err
	}
	defer src.Close()
	return b.still(ctx, src)
}

// putBack has the folder where it was, with what programs made in the empty one. It returns how that ended.
func (b *bring) putBack() error {
	if err := errors.Join(clear(b.store, b.dir), inplace.Aside(b.dir)); err != nil {
		return fmt.Errorf("the original is kept, %s, and was not put back: %w; run the command again", b.dir+inplace.Original, err)
	}
	err := b.gather(b.dir+inplace.Original, b.dir)
	if err == nil {
		err = unix.Rmdir(b.dir + inplace.Original)
	}
	if err != nil {
		return fmt.Errorf("the original is %s, as it was; what was made there meanwhile is in %[1]s%s: %w", b.dir, inplace.Original, err)
	}
	return fmt.Errorf("the store has all of %s, which is as it was", b.dir)
}

func (b *bring) gather(from, to string) error {
	empty, err := os.Open(from)
	if err != nil {
		return err
	}
	defer empty.Close()
	full, err := os.Open(to)
	if err != nil {
		return err
	}
	defer full.Close()
	return inplace.Gather(empty, full, 0, func(k inplace.Kept) error {
		b.Say("%s", k.Says(to))
		return nil
	})
}
