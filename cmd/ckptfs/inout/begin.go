package inout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
)

// begin writes the journal, and unmounts the store. undo has all as it was, and returns why it is so.
func (l *leave) begin(ctx context.Context, d *disk.Folder, p *inplace.Pair, m **inplace.Move,
) (undo func(error) error, err error) {
	if l.mountpoint != "" {
		if err := l.bound(); err != nil {
			return nil, err
		}
	}
	args := l.mountedWith(ctx)
	if *m == nil {
		if *m, err = p.Begin(inplace.Leave); err != nil {
			return nil, err
		}
	}
	if l.mountpoint != "" {
		if err := l.Unmount(ctx, l.mountpoint); err != nil {
			if mountAt(l.mountpoint) != nil { // else the next run goes on
				err = errors.Join(err, inplace.End(d))
			}
			return nil, err
		}
	}
	return func(err error) error { return l.undo(d, p, *m, args, err) }, nil
}

// undo mounts the store again that was mounted before, with what programs made meanwhile. It does nothing
// once the tree has left.
func (l *leave) undo(d *disk.Folder, p *inplace.Pair, m *inplace.Move, args []string, err error) error {
	if moved, merr := p.Moved(m); merr == nil && moved {
		return fmt.Errorf("%w; the folder is whole, at %s: run the command again, it ends what was begun", err, l.dir)
	}
	left, rerr := os.ReadDir(l.dir)
	if l.mountpoint == "" {
		if errors.Is(rerr, os.ErrNotExist) || rerr == nil && len(left) == 0 || l.vacant(m) != nil {
			err = errors.Join(err, inplace.End(d))
		}
		return fmt.Errorf("%w; %s has files still, and can be mounted as before", err, l.store)
	}
	if l.vacant(m) != nil { // the mount covered it before, and does so again
		return l.mountAgain(d, args, err)
	}
	return l.mountAgain(d, append([]string{"--adopt"}, args...), err)
}

// mountAgain mounts the store with the options that it had, also after an interrupt.
func (l *leave) mountAgain(d *disk.Folder, args []string, err error) error {
	ctx := context.Background()
	_ = l.free(ctx)
	if merr := l.Mount(ctx, append(args, l.store, l.mountpoint)...); merr != nil {
		return fmt.Errorf("%w; %s has files still, and was not mounted again: %w; `ckptfs leave %s` goes on", err, l.store, merr,
			text.Word(l.dir))
	}
	m, rerr := inplace.Read(d)
	_ = tellKept(l, l.dir, m)
	if rerr := errors.Join(rerr, inplace.End(d)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return fmt.Errorf("%w; %s is mounted again", err, l.mountpoint)
}

// mountedWith are the options of the mount, as its daemon was called.
func (l *leave) mountedWith(ctx context.Context) (args []string) {
	if l.mountpoint == "" {
		return nil
	}
	var called []string
	_ = l.With(ctx, l.mountpoint, func(c *control.Client, _ string) error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.PID()))
		for _, arg := range bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
			called = append(called, string(arg))
		}
		return err
	})
	if len(called) < 2 || called[1] != "mount" {
		if l.foreign {
			args = append(args, "--foreign")
		}
		return args
	}
	return slices.DeleteFunc(called[2:], func(arg string) bool {
		abs, err := absolute(arg)
		return arg == "--adopt" || arg == "--" || arg == "" || err == nil && (abs == l.store || abs == l.dir)
	})
}
