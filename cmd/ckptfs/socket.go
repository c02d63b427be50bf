package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"

	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// A daemon that may not write to its store has its control socket in the runtime folder of its user instead,
// under the number of its mount's device, which no other mount of this host has while the mount is there.

// runtimeDir is where the sockets of a user's daemons are: what systemd keeps for it, or a folder like that.
func runtimeDir(uid int) string {
	if uid == 0 {
		return "/run/ckptfs"
	}
	if dir := fmt.Sprintf("/run/user/%d", uid); isDir(dir) {
		return filepath.Join(dir, "ckptfs")
	}
	return filepath.Join("/tmp", fmt.Sprintf("ckptfs-%d", uid))
}

func deviceSocket(uid int, dev procs.Device) string {
	return filepath.Join(runtimeDir(uid), fmt.Sprintf("%d-%d.sock", dev.Major, dev.Minor))
}

// makeRuntimeDir makes the folder of this user's sockets. One that another user owns, or may write, is
// refused: in a folder for all, another user may have made it first.
func makeRuntimeDir() error {
	dir := runtimeDir(os.Geteuid())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder of user %d alone: remove it", dir, os.Geteuid())
	}
	return nil
}

// dialReader connects to the daemon of a read-only mount. The error is control.ErrNoDaemon when there is
// none.
func dialReader(ctx context.Context, m *mountinfo.Info) (*control.Client, error) {
	uid := ownerOf(m)
	c, err := control.DialAt(ctx, deviceSocket(uid, procs.Device{Major: m.Major, Minor: m.Minor}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, control.ErrNoDaemon
	}
	if err == nil && int(c.UID()) != uid {
		c.Close()
		return nil, control.ErrNoDaemon // an impostor
	}
	return c, err
}

// ownerOf is the user who mounted m.
func ownerOf(m *mountinfo.Info) int {
	for _, o := range strings.Split(m.VFSOptions, ",") {
		if v, ok := strings.CutPrefix(o, "user_id="); ok {
			uid, _ := strconv.Atoi(v)
			return uid
		}
	}
	return 0
}

// gap is how long a command waits for the next daemon of a mount.
const gap = 5 * time.Second

// reach is dial, which waits for the next daemon where one was killed: as long as somebody keeps the store
// for it, or an earlier one is closing the store.
func reach(ctx context.Context, p *place) (*control.Client, error) {
	for began := time.Now(); ; {
		held := tree.Held(p.store) // before: a daemon that ends gives up its socket first
		c, err := dial(ctx, p)
		if !errors.Is(err, control.ErrNoDaemon) || !held || time.Since(began) > gap || ctx.Err() != nil {
			return c, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial connects to the daemon that has the store of a place: the one that writes, or a reader that has it
// mounted.
func dial(ctx context.Context, p *place) (*control.Client, error) {
	if p.mount != nil {
		if c, err := dialReader(ctx, p.mount); err == nil {
			return c, nil
		}
		return control.Dial(ctx, p.store)
	}
	c, err := control.Dial(ctx, p.store)
	if !errors.Is(err, control.ErrNoDaemon) {
		return c, err
	}
	if m := mountOf(p.store); m != nil {
		if c, rerr := dialReader(ctx, m); rerr == nil {
			return c, nil
		}
	}
	return nil, err
}
