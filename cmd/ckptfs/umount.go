package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/holder"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/unmount"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// umountConfig is the umount command's line.
type umountConfig struct {
	noWait, lazy, force bool
	leaving             bool // for leave, which has no such flags
	remote              bool
	timeout             time.Duration // 0: as long as it takes, but for a mount that is in use
}

// forceGrace is how long a daemon whose mount was taken away may take to close the store before --force kills
// it.
const forceGrace = 30 * time.Second

func (a *app) umountCmd() *cobra.Command {
	var c umountConfig
	cmd := &cobra.Command{
		Use:     "umount [flags] MOUNTPOINT|STORE",
		Aliases: []string{"unmount"},
		Short:   "Pack what is left, and unmount",
		Long: `Packs what is left, with a progress bar on a terminal, unmounts, and returns when the daemon has closed the store. A
busy mount stays (exit code 4). The command then lists the processes that use it, in all mount namespaces that it can
see: process, command and what it has open. An interrupted command leaves the mount working. A mount that
no process serves any more is cleared. If the daemon did not close the store in order, the exit code is 1, and the next
mount looks at every file.

What is not published to the store's remote yet is not waited for; the command says how much it is, and the next mount
publishes it. With --remote it is published first.

--timeout bounds the whole; a busy mount is tried again until then. --lazy detaches the mount at once and lets its users
go on. --force takes it from them: their reads and writes fail from then on. A daemon that does not end is killed. Files
that were closed are safe.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.lazy && c.force || c.timeout < 0 || c.remote && (c.lazy || c.force || c.noWait) {
				return exit.Wrong(cmd, "--lazy and --force are two ways, with neither and not with --no-wait goes --remote, and --timeout is a time such as 30s")
			}
			return a.umount(cmd.Context(), args[0], &c)
		},
	}
	cmd.Flags().BoolVar(&c.noWait, "no-wait", false, "do not wait for packing: the next mount continues it")
	cmd.Flags().BoolVar(&c.remote, "remote", false, "publish what is complete first, and wait for it")
	cmd.Flags().BoolVar(&c.lazy, "lazy", false, "detach at once; the daemon ends when the last open file is closed")
	cmd.Flags().BoolVar(&c.force, "force", false, "take the mount from its users, whose reads and writes then fail; no packing")
	cmd.Flags().Var((*remote.Span)(&c.timeout), "timeout", "stop trying after so long, such as 30s, 5m, 1d; until then a busy mount is tried again")
	return cmd
}

func (a *app) umount(ctx context.Context, arg string, c *umountConfig) error {
	p, err := place.Find(arg)
	if err != nil {
		return err
	}
	mountpoint := ""
	if p.Mount != nil {
		mountpoint = p.Mount.Mountpoint
		if p.Mount.Root != "/" {
			return exit.With(exit.Usage, fmt.Errorf("%s is a bind mount of a part of %s: `umount %s` undoes it", mountpoint, p.Store, text.Word(mountpoint)))
		}
	}
	if mountpoint == "" {
		if m := place.MountOf(p.Store); m != nil {
			mountpoint, p.Mount = m.Mountpoint, m
		}
	}
	if p.Path != "" {
		return exit.With(exit.Usage, fmt.Errorf("%s is inside: name the mountpoint or the store itself", arg))
	}
	wd, err := os.Readlink("/proc/self/cwd")
	if err == nil && mountpoint != "" && procs.Within(wd, mountpoint) {
		_ = os.Chdir("/") // this process must not be a user of the mount
	}

	if p.Mount != nil && hangs(ctx, p) {
		if err := unmount.Abort(mountpoint); err != nil {
			return err
		}
		return a.clear(p, mountpoint, c.lazy, false)
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, errTimeout)
		defer cancel()
	}
	patience := holder.Patience() // and then the mount is detached
	if c.lazy || c.force {
		patience = gap
	}
	for asked := 0; asked < mostDaemons; asked++ {
		cl, err := reach(ctx, p, patience)
		if errors.Is(err, errLate) {
			break
		}
		if errors.Is(err, control.ErrNoDaemon) || err != nil && (c.lazy || c.force) && mountpoint != "" {
			return a.clear(p, mountpoint, c.lazy, asked > 0)
		}
		if err != nil {
			return err
		}
		err = a.umountBy(ctx, cl, p, mountpoint, c)
		cl.Close()
		if !control.WentAway(err) {
			return err
		}
	}
	if c.lazy || c.force {
		return a.clear(p, mountpoint, c.lazy, false)
	}
	if mountpoint == "" {
		mountpoint = "the mount of " + p.Store
	}
	msg := mountpoint + " not unmounted: " + errLate.Error() + "; its log says why, and --lazy detaches the mount"
	if _, err := os.Stat(p.Store); errors.Is(err, fs.ErrNotExist) {
		msg = fmt.Sprintf("%s not unmounted: its store %s is gone, so its daemon cannot be asked: --force ends it", mountpoint, p.Store)
	}
	return control.Busy(msg)
}

// mostDaemons is how many daemons of a mount are asked after each other, when each ends before it has
// answered.
const mostDaemons = 10

// umountBy has a daemon unmount.
func (a *app) umountBy(ctx context.Context, cl *control.Client, p *place.Place, mountpoint string,
	c *umountConfig) error {
	if mountpoint == "" { // it is in another container, or this is another user
		st, err := cl.Status(ctx)
		if err != nil {
			return late(ctx, err, "the daemon of "+p.Store+" does not answer", procs.Device{})
		}
		mountpoint = st.Mountpoint
	}
	dev, _ := place.DeviceOf(mountpoint)
	if own := place.MountOf(p.Store); own != nil && own.Mountpoint != mountpoint && !c.force && !c.lazy {
		if st, err := cl.Status(ctx); err == nil && st.Mountpoint == own.Mountpoint {
			return exit.With(exit.Usage, fmt.Errorf("%s is a bind mount of %s: `umount %s` undoes it", mountpoint, st.Mountpoint, text.Word(mountpoint)))
		}
	}
	end := watch(p, cl.PID())
	defer end.close()
	if c.force {
		cl.Close() // the daemon would wait for it
		return a.forceUnmount(ctx, p.Store, mountpoint, end)
	}
	note := ""
	if !c.noWait && !c.lazy {
		update, done := a.progress("packing")
		err := cl.Sync(ctx, update)
		done()
		if err != nil {
			return late(ctx, err, mountpoint+" not unmounted, for not everything is packed (--no-wait unmounts all the same)", dev)
		}
		if c.remote {
			if err := remote.PushAll(ctx, shell{a}, cl); err != nil {
				return late(ctx, err, mountpoint+" not unmounted, for not everything is published", dev)
			}
		}
		if st, err := cl.Status(ctx); err == nil {
			text.NamePlain(a.err, st)
			note = text.Unpublished(st.Remote)
		}
	}
	if err := a.tryUnmount(ctx, cl, mountpoint, dev, c); err != nil {
		return err
	}
	if !c.lazy {
		if err := a.awaitEnd(ctx, end, mountpoint, dev); err != nil {
			return err
		}
		return a.ended(p.Store, mountpoint, note, end.inOrder(ctx, p.Store))
	}
	return a.sayUnmounted(p.Store, mountpoint, true, "")
}

var errTimeout = errors.New("the time of --timeout is over")

// late makes of an error that is only that time ran out one that lists the users, if there are any.
func late(ctx context.Context, err error, what string, dev procs.Device) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTimeout):
		msg := what + ": " + errTimeout.Error()
		if who := procs.Users(dev); who != "" {
			msg += "; in use by " + who
		}
		return control.Busy(msg)
	case ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unseen is how long a mount is tried whose users cannot be named: most often they have left by the time one
// looks, as a process does that was about to execute another program.
const unseen = 2 * time.Second

// tryUnmount asks the daemon to unmount: until a user of the mount is found, or until --timeout.
func (a *app) tryUnmount(ctx context.Context, cl *control.Client, mountpoint string, dev procs.Device,
	c *umountConfig) error {
	first := "" // what the user was told first
	for began := time.Now(); ; {
		err := cl.Unmount(ctx, c.lazy)
		if err != nil && ctx.Err() != nil {
			return unmount.Late(ctx, err, errTimeout, mountpoint, first, dev)
		}
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		found, busy := unmount.InUse(ctx, cl, mountpoint, dev)
		if c.timeout == 0 && (found || time.Since(began) > unseen) {
			if c.leaving {
				return control.Busy(busy + "; run the command again once nothing uses it")
			}
			return control.Busy(busy + "; --lazy detaches it, --timeout waits for its users")
		}
		if c.timeout > 0 && first == "" {
			first = busy
			fmt.Fprintf(a.err, "ckptfs: %s; trying on for %v\n", text.Printable(busy), c.timeout)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return unmount.Late(ctx, ctx.Err(), errTimeout, mountpoint, first, dev)
		}
	}
}

// awaitEnd waits for the daemon, and says why it takes long when that is known: the mount is bound to another
// place, or lives on in another container.
func (a *app) awaitEnd(ctx context.Context, end *ending, mountpoint string, dev procs.Device) error {
	quick, cancel := context.WithTimeout(ctx, time.Second/2)
	err := end.wait(quick)
	cancel()
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return late(ctx, err, mountpoint+" is unmounted, and its daemon has not closed the store yet", procs.Device{})
	}
	who := procs.Elsewhere("/proc", dev)
	if len(who) > 0 {
		fmt.Fprintf(a.err, "ckptfs: %s is unmounted, and still mounted elsewhere, %s: the daemon serves on until that is unmounted, too\n",
			text.Printable(mountpoint), strings.Join(who, "; "))
	}
	if err := end.wait(ctx); err != nil {
		what := mountpoint + " is unmounted, and its daemon has not closed the store yet"
		if len(who) > 0 {
			what = mountpoint + " is unmounted, and still mounted elsewhere, " + strings.Join(who, "; ")
		}
		return late(ctx, err, what, procs.Device{})
	}
	return nil
}

// forceUnmount takes the mount away whoever uses it, and ends the daemon.
func (a *app) forceUnmount(ctx context.Context, store, mountpoint string, end *ending) error {
	if err := unmount.Abort(mountpoint); err != nil {
		return err
	}
	_ = end.signal(syscall.SIGTERM)
	grace, cancel := context.WithTimeout(ctx, forceGrace)
	defer cancel()
	note := "taken from its users"
	if err := end.wait(grace); err != nil {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout) {
			return ctx.Err()
		}
		if err := end.kill(); err != nil {
			return fmt.Errorf("%s is detached, but its daemon does not end: %w; the store can be mounted again once it has ended", mountpoint, err)
		}
		note = "its daemon did not end, and was killed"
		dead, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceGrace)
		defer cancel()
		if err := end.wait(dead); err != nil {
			return fmt.Errorf("%s is detached, but its daemon does not die: %w; it waits for the disk of the store: see the kernel's log", mountpoint, err)
		}
	}
	return a.ended(store, mountpoint, note, end.inOrder(context.WithoutCancel(ctx), store))
}

// ended says that a mount is gone; unclean is why its store may not be in order.
func (a *app) ended(store, mountpoint, note string, unclean error) error {
	if unclean == nil {
		return a.sayUnmounted(store, mountpoint, false, note)
	}
	if note != "" {
		note = "; " + note
	}
	return fmt.Errorf("%s is unmounted%s; but %w", mountpoint, note, unclean)
}

// clear unmounts what no daemon answers for. asked: one did, and ended meanwhile.
func (a *app) clear(p *place.Place, mountpoint string, lazy, asked bool) error {
	if mountpoint == "" {
		return exit.With(exit.NotStore, fmt.Errorf("store %s is not mounted: there is nothing to unmount", p.Store))
	}
	if err := release(mountpoint, p.Store, true); err != nil {
		return err
	}
	note, unclean := "its daemon was gone", tree.ClosedInOrder(p.Store, time.Now())
	if asked && !lazy {
		return a.ended(p.Store, mountpoint, "its daemon ended meanwhile", unclean)
	}
	if unclean != nil { // no failure of this command's
		note += ", and the store was not closed in order: the next mount looks at every file"
	}
	return a.sayUnmounted(p.Store, mountpoint, lazy, note)
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
		fmt.Fprintf(w, "%s unmounted%s\n", text.Printable(mountpoint), note)
	})
}
