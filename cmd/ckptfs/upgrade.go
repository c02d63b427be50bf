package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/holder"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/fusefs"
	"ckptfs/fs/handover"
)

func (a *app) upgradeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade MOUNTPOINT",
		Short: "Replace the daemon of a mount by this program",
		Long: `Replaces the daemon of a mount, of an older or newer ckptfs, by the program that you run. The mount stays: open files
stay open, and calls that are made meanwhile wait, usually for less than a second. It is refused if the two programs do
not hand a mount over in the same format. If this program cannot serve the store, the one that did goes on.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error { return a.upgrade(cmd.Context(), args[0]) },
	}
}

// upgradePatience bounds how long a mount is waited for whose next daemon does not answer.
const upgradePatience = 2 * time.Minute

func (a *app) upgrade(ctx context.Context, arg string) error {
	p, err := place.Find(arg)
	if err != nil {
		return err
	}
	if p.Mount == nil {
		if p.Mount = place.MountOf(p.Store); p.Mount == nil {
			return exit.With(exit.NotStore, fmt.Errorf("store %s is not mounted", p.Store))
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cl, err := dial(ctx, p)
	if err != nil {
		return err
	}
	was := cl.PID()
	end := watch(p, was)
	end.alone()
	defer end.close()
	err = cl.Upgrade(ctx, program, handover.Version)
	cl.Close()
	if told := (*control.Error)(nil); errors.As(err, &told) && !control.WentAway(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradePatience)
	defer cancel()
	if err := end.wait(ctx); err != nil {
		return fmt.Errorf("the daemon does not end: %w", err)
	}
	st, err := awaitDaemon(ctx, p)
	if err != nil {
		return err
	}
	if st.Version != version {
		return fmt.Errorf("%s could not serve %s, and %s goes on; the daemon's log says why", version, p.Mount.Mountpoint, st.Version)
	}
	out := struct {
		Mountpoint string `json:"mountpoint"`
		Version    string `json:"version"`
		PID        int    `json:"pid"`
	}{st.Mountpoint, st.Version, st.PID}
	return a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s is served by ckptfs %s, process %d\n", text.Printable(out.Mountpoint), out.Version, out.PID)
	})
}

// awaitDaemon waits until a daemon answers for a mount.
func awaitDaemon(ctx context.Context, p *place.Place) (*control.Status, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		cl, err := dial(ctx, p)
		if err == nil {
			st, serr := cl.Status(ctx)
			cl.Close()
			if err = serr; err == nil {
				return st, nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("no daemon serves %s: %w", p.Mount.Mountpoint, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// handOver ends this process for the next daemon, which is the program at a path. It is
// control.Mount.Upgrade.
func handOver(srv *fusefs.Server, link *holder.Link, log *slog.Logger, program string) error {
	exe, err := os.OpenFile(program, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer exe.Close()
	if err := link.Next(int(exe.Fd())); err != nil {
		return err
	}
	log.Info("upgrade: this daemon ends, and another program serves the mount", "program", program)
	go func() {
		const patience = 2 * time.Second // with requests that wait for something
		srv.Leave(patience)
		os.Exit(holder.ExitUpgrade)
	}()
	return nil
}
