package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// session is a client, and what has to be closed after it.
type session struct {
	*control.Client
	place *place.Place
	close func() error // of the store, when this process opened it
}

// access says what a command does to a store that it opens itself.
type access int

const (
	readOnly  access = iota // it changes nothing, but a store that was not closed in order is repaired first
	readWrite               // it changes the store
	untouched               // nothing is written at all, not even to repair the store
	readPast                // readOnly; and the path may be of what is gone
)

// unlessDry is what a command does to a store that it changes, or only says how it would.
func unlessDry(dry bool) access {
	if dry {
		return untouched
	}
	return readWrite
}

// with finds the path, connects to the volume behind it, runs do and gives everything back.
func (a *app) with(ctx context.Context, path string, how access, do func(*session) error) error {
	p, err := place.Find(path)
	if err != nil {
		return err
	}
	if how == readPast {
		how = readOnly
	} else if p.Gone {
		return control.NotFound("%s: no such file or directory", path)
	}
	s, err := a.connect(ctx, p, how)
	if err != nil {
		return err
	}
	return s.end(do(s))
}

// end closes a session that ended with an error, if any.
func (s *session) end(err error) error {
	s.Client.Close()
	if cerr := s.close(); err == nil {
		err = cerr
	}
	return err
}

// whole is with, for what a command does to the whole store, whichever path in it is named.
func whole(a *app, cmd *cobra.Command, path string, how access, do func(*session) error) error {
	return a.with(cmd.Context(), path, how, func(s *session) error {
		if s.place.Path != "" && !a.json {
			fmt.Fprintf(a.err, "ckptfs: %s is of the whole store %s, not of %s alone\n", cmd.Name(),
				text.Printable(s.place.Store), text.Printable(path))
		}
		return do(s)
	})
}

// withTwo is with, to look at two paths of one store; do is told the other one's place in it.
func (a *app) withTwo(ctx context.Context, path, otherPath string,
	do func(s *session, other string) error) error {
	other, err := place.Find(otherPath)
	if err != nil {
		return err
	}
	return a.with(ctx, path, readPast, func(s *session) error {
		if s.place.Store != other.Store {
			return fmt.Errorf("%s and %s are in different stores, %s and %s: give two paths of one", path, otherPath, s.place.Store, other.Store)
		}
		return do(s, other.Path)
	})
}

// tellBegun says of a store that a folder's move into it, or out of it, is not over, or a copy into it.
func (a *app) tellBegun(store string) {
	if a.json {
		return
	}
	if b := inplace.BegunIn(store); b != nil {
		fmt.Fprintf(a.err, "ckptfs: %s\n", text.Printable(place.Begun(b)))
	}
	for _, c := range inplace.Copies(store) {
		fmt.Fprintf(a.err, "ckptfs: %s\n", text.Printable(place.Copying(store, &c)))
	}
}

// connect asks the daemon; without one it opens the store here.
func (a *app) connect(ctx context.Context, p *place.Place, how access) (*session, error) {
	a.tellBegun(p.Store)
	c, err := reach(ctx, p, gap)
	if err == nil {
		return &session{Client: c, place: p, close: func() error { return nil }}, nil
	}
	if p.Mount != nil && errors.Is(err, fs.ErrPermission) {
		return nil, &control.Error{Code: control.CodeDenied, Errno: "EACCES", Message: p.Mount.Mountpoint +
			": permission denied; only the store's owner and root may ask for it; all may read .ckptfs/best in it"}
	}
	if !errors.Is(err, control.ErrNoDaemon) {
		return nil, err
	}
	if p.Mount != nil && errors.Is(err, errLate) {
		return nil, fmt.Errorf("%s: %w", p.Mount.Mountpoint, err)
	}
	if p.Mount != nil {
		return nil, fmt.Errorf("the daemon of the mount %s does not answer: it died, or is just ending; `ckptfs umount %s` clears the mountpoint", p.Mount.Mountpoint, text.Word(p.Mount.Mountpoint))
	}
	v, err := a.openVolume(p.Store, how)
	if how == readOnly && errors.Is(err, volume.ErrNeedsRecovery) {
		why := "it was not closed in order"
		if tree.ClosedInOrder(p.Store, time.Now()) == nil {
			why = "its index cannot be read as it is"
		}
		fmt.Fprintf(a.err, "ckptfs: repairing %s first: %s\n", text.Printable(p.Store), why)
		v, err = a.openVolume(p.Store, readWrite)
		if errors.Is(err, syscall.EROFS) {
			err = fmt.Errorf("%s: %w (%w)", p.Store, volume.ErrNeedsRecovery, err)
		}
	}
	if err != nil {
		return nil, err
	}
	h := control.NewHandler(v.Services(), control.Mount{Version: version, Store: p.Store, PID: os.Getpid(),
		Started: time.Now()})
	return &session{
		Client: control.InProcess(h),
		place:  p,
		close:  func() error { return v.Close(context.WithoutCancel(ctx)) },
	}, nil
}
