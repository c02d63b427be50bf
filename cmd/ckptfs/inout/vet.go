package inout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
)

// vet looks for everything that keeps the folder from being adopted, while nothing is changed. root: it is to
// be what a mount begins with.
func (a *adopt) vet(ctx context.Context, root bool) error {
	if err := a.places(true); err != nil {
		return err
	}
	if who := procs.Standing("/proc", a.dir); len(who) > 0 {
		return control.Busy(fmt.Sprintf("%s: what is in it is reached by more than its path, which would go on past the mount: %s; "+
			"have programs leave the folder, and unmount what is bound elsewhere, first", a.dir, strings.Join(who, ", ")))
	}
	var err error
	report, done := counting(a, "looking at names")
	a.looked, err = inplace.Look(ctx, a.dir, report)
	done()
	if err != nil {
		return err
	}
	err = a.judge(a.looked)
	if err == nil && root {
		err = a.refuse(a.looked.Own, ownName)
	}
	return err
}

// places looks at where folder and store lie, and whether the folder may move.
func (a *adopt) places(moves bool) error {
	st, err := os.Lstat(a.dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return a.Unfit(a.dir + " is no folder")
	}
	if procs.Within(a.store, a.dir) || procs.Within(a.dir, a.store) {
		return a.Unfit(fmt.Sprintf("%s and the store %s: neither can lie in the other", a.dir, a.store))
	}
	if store, mountpoint, _, err := a.Place(a.dir); err == nil {
		if a.dir == store {
			return a.Unfit(fmt.Sprintf("%s is a store: `ckptfs mount %s MOUNTPOINT` mounts it", a.dir, text.Word(a.dir)))
		}
		if mountpoint == "" {
			mountpoint = store
		}
		return a.Unfit(fmt.Sprintf("%s is in the store %s already: there is nothing to adopt", a.dir, mountpoint))
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("read the list of mounts: %w", err)
	}
	for _, m := range mounts {
		switch {
		case m.Mountpoint == a.dir && !moves:
		case m.Mountpoint == a.dir:
			return a.Unfit(a.dir + " is a mountpoint, which cannot be moved: adopt a folder in it, or copy it: --store names a store on another disk")
		case procs.Within(m.Mountpoint, a.dir):
			return a.Unfit(fmt.Sprintf("%s: something is mounted in it, on %s, and would not be seen any more: unmount it first", a.dir, m.Mountpoint))
		}
	}
	if other, err := a.elsewhere(); err != nil || !moves || !other || a.chosen {
		return err
	}
	return a.Unfit(fmt.Sprintf("%s and %s are on different disks: --store names a store on the same disk, where the folder moves to, "+
		"or on another one, which it is copied to", a.dir, a.store))
}

// nested fails for a store that was named and lies in another one. Of one beside the folder places says more.
func (a *adopt) nested() error {
	if !a.chosen {
		return nil
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("read the list of mounts: %w", err)
	}
	if err := place.Nested(a.store, mounts); err != nil {
		return a.Unfit("the store " + err.Error())
	}
	return nil
}

// refuse is the error of a folder that has files of a kind.
func (a *adopt) refuse(f inplace.Found, why string) error {
	if f.N == 0 {
		return nil
	}
	return a.Unfit(fmt.Sprintf("%s: %s: %s", a.dir, why, f))
}

// ownName is why a folder cannot become a mount's root.
const ownName = "a mount has a folder of this name itself, which would not be reached any more: rename it first"

// judge says what in a folder keeps it from being adopted, and warns of what works otherwise on a mount.
func (a *adopt) judge(l *inplace.Looked) error {
	err := errors.Join(
		a.refuse(l.Stores, "a store is in it, which would be packed as files: move it away"),
		a.refuse(l.Linked, "files have names outside of the folder, too, that would lead to packed files: remove these names, or copy the files"),
		a.refuse(l.Hollow, "the bytes of these files are in another store, not here: copy them from a mount of it"),
		a.refuse(l.Foreign, "belongs to other users, and only root can adopt it"),
	)
	if err != nil {
		return err
	}
	if l.ACLs.N > 0 {
		a.Say("ACLs and security attributes do not work on a mount: %s", l.ACLs)
	}
	if l.Pipes.N > 0 {
		a.Say("programs that have these sockets and pipes open are to open them again: %s", l.Pipes)
	}
	return nil
}

// twoFolders says what to do about a folder that programs made files in while its store was not mounted.
func twoFolders(dir, store string) string {
	aside := dir + ".aside"
	return fmt.Sprintf("%s is not empty, and its store %s has files already: a program may have written there while the store was not mounted; "+
		"`mv %s %s && %s` mounts the store, copy what you need from %[4]s then", dir, store, text.Word(dir),
		text.Word(aside), text.Command("ckptfs", inplace.Adopt, dir))
}
