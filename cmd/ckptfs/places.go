package main

import (
	"context"
	"errors"
	"io"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/volume"
)

// places is the program to the commands that move folders into stores and out.
type places struct{ shell }

func (p places) Unfit(message string) error { return exit.With(exit.Mountpoint, errors.New(message)) }

func (p places) Place(path string) (store, mountpoint, inside string, err error) {
	at, err := place.Find(path)
	if err != nil {
		return "", "", "", err
	}
	if at.Mount != nil && at.Mount.Root == "/" {
		return at.Store, at.Mount.Mountpoint, at.Path, nil
	}
	return at.Store, place.MountpointOf(at.Store), at.Path, nil
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
	return quiet.umount(ctx, mountpoint, &umountConfig{noWait: true, leaving: true})
}

func (p places) Volume(store string) volume.Options { return asOpened(p.a, store) }

func (p places) Damaged() error { return errFoundDamage }
