package inout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/inplace"
)

// begin writes the journal, unless m is that of an earlier run, and unmounts the store. undo has all as it
// was, and returns why it is so.
func (l *leave) begin(ctx context.Context, d *disk.Folder, p *inplace.Pair, m *inplace.Move,
) (_ *inplace.Move, undo func(error) error, err error) {
	var line Line
	if l.mountpoint != "" {
		if err := l.bound(); err != nil {
			return nil, nil, err
		}
		line = l.again(l.MountedBy(ctx, l.store, l.mountpoint))
	}
	if m == nil {
		if m, err = p.Begin(inplace.Leave); err != nil {
			return nil, nil, err
		}
		l.own = true
	}
	l.changes = true
	undo = func(err error) error { return l.undo(d, p, m, line, err) }
	if l.mountpoint != "" {
		if err = l.unmount(ctx); err != nil && mountAt(l.mountpoint) != nil {
			return nil, nil, errors.Join(err, inplace.End(d))
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, undo(err)
	}
	return m, undo, nil
}

// unmount unmounts the store. An interrupt does not end it in the middle, where it is not known what is so.
func (l *leave) unmount(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		l.Say("%s: interrupted; waiting for the end of its unmount", text.Printable(l.mountpoint))
	})
	defer stop()
	return l.Unmount(context.WithoutCancel(ctx), l.mountpoint)
}

// undo mounts the store again that was mounted before, with what programs made meanwhile. It does nothing
// once the tree has left. The journal of an earlier run stays: it tells every command of that run's move,
// which had unmounted the store.
func (l *leave) undo(d *disk.Folder, p *inplace.Pair, m *inplace.Move, line Line, err error) error {
	if moved, merr := p.Moved(m); merr == nil && moved {
		return fmt.Errorf("%w; the folder is whole, at %s: %s ends what was begun", err, l.dir, l.same())
	}
	if l.mountpoint != "" {
		return l.mountAgain(d, line, err)
	}
	if !l.own {
		return fmt.Errorf("%w; %s has the files still; %s goes on", err, l.store, l.same())
	}
	if names, rerr := os.ReadDir(l.dir); errors.Is(rerr, os.ErrNotExist) || rerr == nil && len(names) == 0 {
		err = errors.Join(err, inplace.End(d))
	}
	return fmt.Errorf("%w; %s has the files still, and can be mounted as before; %s goes on", err, l.store, l.same())
}

// same is the command line of this call, for any folder that it is called in.
func (l *leave) same() string {
	words := []string{"ckptfs", "leave"}
	for _, a := range l.args {
		if abs, err := filepath.Abs(a); err == nil {
			a = abs
		}
		words = append(words, a)
	}
	return "`" + text.Command(words...) + "`"
}

// mountAgain mounts the store as it was mounted, also after an interrupt.
func (l *leave) mountAgain(d *disk.Folder, line Line, err error) error {
	ctx := context.Background()
	_ = free(ctx, l, l.store)
	if merr := l.Mount(ctx, l.claim, line); merr != nil {
		return fmt.Errorf("%w; %s has the files still, and was not mounted again: %w; %s goes on", err, l.store,
			merr, l.same())
	}
	m, rerr := inplace.Read(d)
	_ = tellKept(l, l.mountpoint, m)
	if rerr := errors.Join(rerr, inplace.End(d)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return fmt.Errorf("%w; %s is mounted again; %s goes on", err, l.mountpoint, l.same())
}

// again is a command line that mounts the store again, as an earlier one did, in the background. What
// programs make in the empty folder moves into the store then.
func (l *leave) again(line Line) Line {
	flags := []string{"--adopt", "--foreground=false"}
	if l.foreign {
		flags = append(flags, "--foreign")
	}
	end := slices.Index(line.Words, "--")
	if end < 0 {
		end = len(line.Words)
	}
	line.Words = slices.Insert(slices.Clone(line.Words), end, flags...)
	return line
}
