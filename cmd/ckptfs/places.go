package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/inout"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
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

func (p places) Mount(ctx context.Context, claim *os.File, line inout.Line) error {
	mount := *p.a
	mount.args = line.Words
	_, err := mount.spawn(ctx, spawned{line.Folder, claim})
	return err
}

// MountedBy asks the daemon's process, whose arguments are those of the command that mounted. Where that
// cannot be asked the line has no options.
func (p places) MountedBy(ctx context.Context, store, mountpoint string) inout.Line {
	without := inout.Line{Words: []string{"mount", store, mountpoint}}
	c, err := control.Dial(ctx, store)
	if err != nil {
		return without
	}
	defer c.Close()
	list := func(name string) []string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.PID(), name))
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	line := inout.Line{Words: list("cmdline")[1:]}
	for _, entry := range list("environ") {
		if folder, is := strings.CutPrefix(entry, folderEnv+"="); is {
			line.Folder = folder
		}
	}
	if line.Folder == "" || !slices.Contains(line.Words, "mount") {
		return without
	}
	return line
}

func (p places) Unmount(ctx context.Context, mountpoint string) error {
	quiet := *p.a
	quiet.out = io.Discard
	return quiet.umount(ctx, mountpoint, &umountConfig{noWait: true, leaving: true})
}

func (p places) Volume(store string) volume.Options { return asOpened(p.a, store) }

func (p places) Damaged() error { return errFoundDamage }
