package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/volume"
)

// places is the program to the commands that move folders into stores and out.
type places struct{ shell }

func (p places) Say(format string, args ...any) {
	fmt.Fprintf(p.a.err, "ckptfs: %s\n", text.Printable(fmt.Sprintf(format, args...)))
}

func (p places) Unfit(message string) error { return &exitError{exitMountpoint, errors.New(message)} }

func (p places) Place(path string) (store, mountpoint, inside string, err error) {
	at, err := find(path)
	if err != nil {
		return "", "", "", err
	}
	if at.mount != nil && at.mount.Root == "/" {
		return at.store, at.mount.Mountpoint, at.path, nil
	}
	return at.store, mountpointOf(at.store), at.path, nil
}

func (p places) Mount(ctx context.Context, args ...string) error {
	mount := *p.a
	mount.args = append([]string{"mount"}, args...)
	_, err := mount.spawn(ctx)
	return err
}

func (p places) Unmount(ctx context.Context, mountpoint string) error {
	quiet := *p.a
	quiet.out = io.Discard
	return quiet.umount(ctx, mountpoint, &umountConfig{noWait: true})
}

func (p places) Volume(store string) volume.Options { return asOpened(p.a, store) }

func (p places) Damaged() error { return errFoundDamage }
