package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"ckptfs/fs/control"
)

func (a *app) umountCmd() *cobra.Command {
	var noWait, lazy bool
	cmd := &cobra.Command{
		Use:     "umount [flags] MOUNTPOINT|STORE",
		Aliases: []string{"unmount"},
		Short:   "Pack what waits, unmount, wait until the store is closed",
		Long: `Waits until everything is packed, with a progress bar on a terminal, unmounts, and returns when the daemon has closed
the store. A mount that is in use stays (exit code 4); who uses it is printed as far as it can be known. A mount whose
daemon is gone is cleared.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.umount(cmd.Context(), args[0], noWait, lazy)
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the packing: the next mount goes on with it")
	cmd.Flags().BoolVar(&lazy, "lazy", false, "detach at once; the daemon ends when the last open file is closed, which is not waited for")
	return cmd
}

func (a *app) umount(ctx context.Context, arg string, noWait, lazy bool) error {
	p, err := find(arg)
	if err != nil {
		return err
	}
	mountpoint := ""
	if p.mount != nil {
		mountpoint = p.mount.Mountpoint
		if p.mount.Root != "/" {
			return &exitError{exitUsage, fmt.Errorf("%s is a bind mount of a part of %s: umount(8) undoes it", mountpoint, p.store)}
		}
	}
	if p.path != "" {
		return &exitError{exitUsage, fmt.Errorf("%s is inside: name the mountpoint or the store itself", arg)}
	}

	c, err := control.Dial(ctx, p.store)
	if errors.Is(err, control.ErrNoDaemon) || err != nil && lazy && mountpoint != "" {
		return a.clear(p, mountpoint, lazy)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if mountpoint == "" {
		st, err := c.Status(ctx)
		if err != nil {
			return err
		}
		mountpoint = st.Mountpoint
	}
	if !noWait && !lazy {
		update, done := a.progress("packing")
		err := c.Sync(ctx, update)
		done()
		if err != nil {
			return fmt.Errorf("not unmounted, for not everything is packed (--no-wait unmounts all the same): %w", err)
		}
	}
	end := watch(p.store, c.PID())
	defer end.close()
	if err := c.Unmount(ctx, lazy); err != nil {
		return inUse(ctx, c, mountpoint, err)
	}
	if !lazy {
		if err := end.wait(ctx); err != nil {
			return err
		}
	}
	return a.sayUnmounted(p.store, mountpoint, lazy, "")
}

// clear unmounts what no daemon answers for.
func (a *app) clear(p *place, mountpoint string, lazy bool) error {
	if mountpoint == "" {
		return &exitError{exitNotStore, fmt.Errorf("store %s is not mounted", p.store)}
	}
	if err := detach(mountpoint, true); err != nil {
		return err
	}
	return a.sayUnmounted(p.store, mountpoint, lazy, "its daemon was gone")
}

func (a *app) sayUnmounted(store, mountpoint string, lazy bool, note string) error {
	v := struct {
		Store      string `json:"store"`
		Mountpoint string `json:"mountpoint"`
		Lazy       bool   `json:"lazy"`
		Note       string `json:"note,omitempty"`
	}{store, mountpoint, lazy, note}
	return a.show(v, func(w io.Writer) {
		if note != "" {
			note = "; " + note
		}
		fmt.Fprintf(w, "%s unmounted%s\n", printable(mountpoint), note)
	})
}

// inUse adds to a refusal who is in the way.
func inUse(ctx context.Context, c *control.Client, mountpoint string, err error) error {
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	msg := fmt.Sprintf("%s is in use", mountpoint)
	if st, serr := c.Status(ctx); serr == nil && st.OpenFiles > 0 {
		msg += ", with " + plural(int64(st.OpenFiles), "open file")
	}
	if who := holders("/proc", mountpoint); len(who) > 0 {
		const most = 5
		more := ""
		if len(who) > most {
			more = fmt.Sprintf(" and %d more", len(who)-most)
			who = who[:most]
		}
		msg += ", by " + strings.Join(who, ", ") + more
	}
	return &control.Error{Code: control.CodeBusy, Errno: "EBUSY", Message: msg + "; --lazy detaches it all the same"}
}
