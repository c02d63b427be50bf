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
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// dialReader connects to the daemon of a read-only mount. The error is control.ErrNoDaemon when there is
// none.
func dialReader(ctx context.Context, m *mountinfo.Info) (*control.Client, error) {
	uid := ownerOf(m)
	c, err := control.DialAt(ctx, control.DeviceSocket(uid, m.Major, m.Minor))
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

// reach is dial, which waits for the next daemon where one was killed: as long as somebody keeps the store or
// the mount for it, or an earlier one is closing the store. errLate: it took longer than patience, or ctx.
func reach(ctx context.Context, p *place.Place, patience time.Duration) (*control.Client, error) {
	var a asked
	for began := time.Now(); ; {
		kept := tree.Held(p.Store) || a.waits(p) // before: a daemon that ends gives up its socket first
		c, err := dial(ctx, p)
		switch {
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout):
			return c, err
		case err != nil && kept && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) > patience): // the call may find that the time is over before ctx does
			return nil, errLate
		case !errors.Is(err, control.ErrNoDaemon) || !kept:
			return c, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// hangs reports whether nobody serves a mount, which has not ended all the same: its processes were killed
// while the kernel let one of them wait, for what only they could have answered.
func hangs(ctx context.Context, p *place.Place) bool {
	answered := make(chan struct{})
	go func() {
		var st unix.Statfs_t
		_ = unix.Statfs(p.Mount.Mountpoint, &st)
		close(answered)
	}()
	select {
	case <-answered:
		return false
	case <-ctx.Done():
		return false
	case <-time.After(gap):
	}
	if _, err := os.Stat(filepath.Join(p.Store, tree.LockFile)); err != nil || tree.Used(p.Store) {
		return false
	}
	c, err := dial(ctx, p)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, control.ErrNoDaemon)
}

// asked is a question that a mount was asked, which it has not answered yet; nil: none.
type asked chan error

// waits reports whether a mount is kept for its next daemon, or has one: of one that only reads the store's
// lock does not tell.
func (a *asked) waits(p *place.Place) bool {
	if p.Mount == nil {
		return false
	}
	if *a == nil {
		told := make(asked, 1)
		go func() {
			var st unix.Statfs_t
			err := unix.Statfs(p.Mount.Mountpoint, &st)
			if err == nil && st.Type != unix.FUSE_SUPER_MAGIC { // it was unmounted
				err = unix.ENOTCONN
			}
			told <- err
		}()
		*a = told
	}
	select {
	case err := <-*a:
		*a = nil
		return err != unix.ENOTCONN
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// errLate: somebody keeps a mount for its next daemon, which does not answer yet.
var errLate = fmt.Errorf("its daemon ended, and the next daemon does not answer yet: %w", control.ErrNoDaemon)

// dial connects to the daemon that has the store of a place: the one that writes, or a reader that has it
// mounted.
func dial(ctx context.Context, p *place.Place) (*control.Client, error) {
	if p.Mount != nil {
		if c, err := dialReader(ctx, p.Mount); err == nil {
			return c, nil
		}
		return control.Dial(ctx, p.Store)
	}
	c, err := control.Dial(ctx, p.Store)
	if !errors.Is(err, control.ErrNoDaemon) {
		return c, err
	}
	if m := place.MountOf(p.Store); m != nil {
		if c, rerr := dialReader(ctx, m); rerr == nil {
			return c, nil
		}
	}
	return nil, err
}
