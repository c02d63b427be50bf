package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/nofuse"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/volume"
)

// places is the program to the commands that move folders into stores and out.
type places struct{ a *app }

func (p places) Show(v any, human func(io.Writer)) error { return p.a.show(v, human) }

func (p places) Say(format string, args ...any) {
	fmt.Fprintf(p.a.err, "ckptfs: %s\n", text.Printable(fmt.Sprintf(format, args...)))
}

func (p places) Usage(cmd *cobra.Command, message string) error { return shell(p).Usage(cmd, message) }

func (p places) Busy(message string) error {
	return &control.Error{Code: control.CodeBusy, Errno: "EBUSY", Message: message}
}

func (p places) Unfit(message string) error {
	return &exitError{exitMountpoint, errors.New(message)}
}

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

func (p places) Inside(ctx context.Context, paths []string,
	do func(c *control.Client, at []string) error) error {
	return shell(p).Inside(ctx, paths, do)
}

func (p places) With(ctx context.Context, path string, do func(c *control.Client, at string) error) error {
	return shell(p).With(ctx, path, do)
}

func (p places) CanMount() (others bool, err error) {
	const device, conf = "/dev/fuse", "/etc/fuse.conf"
	if nofuse.Check(device, conf, true) == nil {
		return true, nil
	}
	return false, nofuse.Check(device, conf, false)
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

func (p places) Volume(store string) volume.Options {
	log := logs.New(p.a.err, "text", "warn")
	return volume.Options{
		Dir: store, Foreign: p.a.foreign, CacheBytes: defaultMemory / 2,
		RemoteOptions: volume.RemoteOptions{Remote: remote.Open},
		Log: func(level slog.Level, msg string, args ...any) {
			log.Log(context.Background(), level, msg, args...)
		},
	}
}

func (p places) Progress(doing string) (update func(control.Progress), done func()) {
	return p.a.progress(doing)
}

func (p places) Damaged() error { return errFoundDamage }
