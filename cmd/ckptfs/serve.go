package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/simd"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/heap"
	"ckptfs/cmd/ckptfs/holder"
	"ckptfs/cmd/ckptfs/host"
	"ckptfs/cmd/ckptfs/inout"
	"ckptfs/cmd/ckptfs/later"
	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/memory"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/scrape"
	"ckptfs/cmd/ckptfs/systemd"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/fusefs"
	"ckptfs/fs/handover"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// spareProcs is how many goroutines more than there are processors may run. One whose system call blocks
// keeps its place until the runtime notices, up to 10 ms later, and some of the daemon's always wait for the
// kernel's next request, or for the disk.
const spareProcs = 6

// serve opens the store, mounts it, or takes over the mount that there is, calls ready, and returns when the
// mount is gone and the store is closed. ctx ends at the first signal, and counts until ready; after that see
// onSignals.
func (a *app) serve(ctx context.Context, c *mountConfig, link *holder.Link,
	ready func(*mounted) error) (err error) {
	lw := &logs.Writer{}
	if c.foreground && c.logFile == "" {
		lw.Attach(a.err)
	}
	log := logs.New(lw, c.logFormat, c.logLevel)
	logPlace := c.logPlace(a.foreign)
	logFile := logPlace.Path()
	mount := fusefs.Options{
		AllowOther:    c.allowOther,
		ReadOnly:      c.readOnly || remote.OnlyReads(c.store),
		Words:         c.kernel,
		NoPassthrough: c.noPassthrough,
		FsName:        c.store,
		Background:    int(c.memory.Bytes >> 23),
		Keeper:        link,
		Log: func(level slog.Level, msg string, args ...any) {
			log.Log(context.Background(), level, msg, args...)
		},
	}
	var logTo *os.File
	var before *fusefs.Takeover // of the mount that a daemon before this one served
	// What a mount is not made without, one that is there goes on without.
	without := func(what string) func(error) {
		return func(err error) {
			log.Error("the mount is served without "+what+" until that can be had again", "err", err)
		}
	}
	if t := link.Taken(); t != nil {
		if logFile != "" {
			defer later.Open(lw.To(logPlace.Open), without("a log")).Close()
		}
		defer func() {
			if err != nil {
				log.Error("the mount could not be taken over", "err", err)
			}
		}()
		log.Warn("the daemon ended, and another one takes the mount over", "why", t.Why(), "tries", t.Tries)
		before, err = fusefs.Take(fusefs.Mounted{
			Device: t.Device, Memory: t.Memory, Kept: t.Kept, Crashed: t.Crashed(),
		}, mount)
		if err != nil {
			return err
		}
		c.mountpoint = before.Mountpoint
	}
	started := time.Now()
	systemd.Notify("STATUS=opening " + c.store)

	var ln net.Listener
	if c.metrics != "" {
		if ln, err = scrape.Listen(c.metrics); err == nil {
			defer ln.Close()
		} else if before == nil {
			return err
		}
	}
	hot, err := c.hotSize.Of(filepath.Dir(c.store))
	if err != nil {
		return err
	}
	keepFree, err := c.remote.KeepFree(filepath.Dir(c.store))
	if err != nil {
		return err
	}
	budget := heap.Budget{All: c.memory.Bytes}
	if c.cacheSize.Given {
		budget.Cache = max(c.cacheSize.Bytes, 1)
	}
	runtime.GOMAXPROCS(cas.Processors + spareProcs)
	unpacked, err := c.maxUnpacked.Of(filepath.Dir(c.store))
	if err != nil {
		return err
	}
	switch {
	case !c.maxUnpacked.Given:
		unpacked = 0 // the volume's default
	case unpacked == 0:
		unpacked = 1
	}
	opt := volume.Options{
		Dir:      c.store,
		Create:   !c.readOnly,
		ReadOnly: c.readOnly,
		Foreign:  a.foreign,
		RemoteOptions: volume.RemoteOptions{
			Remote: c.remote.Open(), Publish: c.remote.Publishes(), RemotePoll: c.remote.Poll(),
			RemoteCache: c.remote.Cache(), RemoteTimeout: c.remote.Timeout(), Runs: c.remote.Runs(),
			KeepFree: keepFree,
		},
		HotSize:     hot,
		MaxUnpacked: unpacked,
		Most:        volume.Most{Models: budget.Models()},
		PackWorkers: c.packCPUs,
		LayoutBytes: budget.LayoutBytes(),
		Alone:       volume.Alone{NoDelta: c.noDelta, NoRecipes: c.noRecipes},
		Shown:       volume.Shown{NoViews: c.noViews, HideTorn: c.hideTorn},
		Moving:      volume.Moving{Outsiders: c.adopt},
		IDsAfter:    map[bool]time.Duration{true: -1}[c.noIDs],
		Log:         mount.Log,
	}
	memory.Bound(&opt, budget)
	if before != nil {
		opt.Create, opt.Resume, opt.Lock = false, before.Resume, before.Lock
	}
	if c.adopt && before == nil {
		mount.Prepared, err = inout.Move(c.store, c.mountpoint, a.foreign, mount, log.Warn)
		if err != nil {
			return host.Here().Refused(c.mountpoint, err)
		}
	}
	v, err := volume.Open(opt)
	if err != nil {
		return err
	}
	if c.readOnly {
		log.Debug("read-only: the store's folder stays as it is")
	} else if changed, err := tree.CloseToOthers(v.Folder()); err != nil {
		log.Warn("the store's folder is open to other users, who can reach its files around the mount", "store", c.store, "err", err)
	} else if changed {
		log.Warn("the store's folder was open to other users; it is its owner's alone now", "store", c.store)
	}
	if !opt.NoViews && tree.HidesOwn(v.Folder()) {
		log.Warn("the store has a file or a folder by the name of the mount's own, which is not reached: "+
			"mount it with --no-views, and rename that", "name", tree.OwnName)
	}
	closing, hurry := context.WithCancel(context.Background())
	defer hurry()
	serving := false
	defer func() {
		if before != nil && !serving {
			v.Abandon()
			return
		}
		cerr := v.Close(closing)
		if cerr != nil {
			log.Error("the store was not closed in order", "err", cerr)
		} else {
			log.Info("closed", "store", c.store)
		}
		if err == nil {
			err = cerr
		}
	}()

	if logFile != "" && before == nil {
		if logPlace.InStore() {
			logTo, err = v.Folder().Open(tree.LogFile, logs.Flags, 0o600)
		} else {
			logTo, err = logs.Open(logFile)
		}
		if err != nil {
			return fmt.Errorf("log file: %w", err)
		}
		lw.Attach(logTo)
	}

	var srv *fusefs.Server
	if before != nil {
		if err := before.Start(); err != nil {
			return err
		}
		srv, serving = before.Server, true
		log.Warn("the mount was taken over", "after", time.Since(link.Taken().Unserved).Round(time.Microsecond))
	} else if srv, err = fusefs.Mount(v, c.mountpoint, mount); err != nil {
		_ = release(c.mountpoint, c.store, true) // what there may be of it already
		return host.Here().Refused(c.mountpoint, err)
	}
	mode, reason := srv.Mode()
	if c.readOnly {
		reason = "read-only; " + reason
	}
	unmount := func(lazy bool) error { return release(c.mountpoint, c.store, lazy) }
	metricsAt := c.metrics
	if ln != nil {
		metricsAt = ln.Addr().String()
	}
	if c.metrics != "" {
		defer later.Open(func() (func(), error) {
			if ln == nil {
				return c.openMetrics(v)
			}
			return scrape.Serve(ln, v.Requests(), built()), nil
		}, without("metrics")).Close()
	}
	asMounted := control.Mount{
		Version: version, Store: c.store, Mountpoint: c.mountpoint, Mode: mode, ModeReason: reason,
		PID: os.Getpid(), Started: started, Kernels: simd.Now().String(), Metrics: metricsAt,
		Log:     log.Info,
		Unmount: func(_ context.Context, lazy bool) error { return unmount(lazy) },
	}
	if link != nil {
		asMounted.Handover = handover.Version
		asMounted.Upgrade = func(program string) error { return handOver(srv, link, log, program) }
	}
	var unanswered error
	ctl := later.Open(func() (func(), error) {
		s, err := c.answer(v, control.NewHandler(v.Services(), asMounted))
		if err != nil {
			return nil, err
		}
		return func() {
			grace, cancel := context.WithTimeout(closing, 5*time.Second)
			defer cancel()
			if cerr := s.Close(grace); cerr != nil {
				log.Warn("control socket", "err", cerr)
			}
		}, nil
	}, func(err error) { unanswered = err })
	if unanswered != nil {
		if before == nil {
			ctl.Close()
			return errors.Join(unanswered, unmount(true))
		}
		without("a control socket")(unanswered)
	}

	stopSignals := onSignals(log, unmount, hurry, before != nil && ctx.Err() != nil)
	defer stopSignals()
	if before == nil && ctx.Err() != nil { // a signal that came before onSignals
		return errors.Join(ctx.Err(), unmount(true))
	}
	log.Info("mounted", "store", c.store, "mountpoint", c.mountpoint, "mode", mode, "reason", reason,
		"version", version, "kernels", simd.Now().String(), "pid", os.Getpid())
	m := &mounted{Store: c.store, Mountpoint: c.mountpoint, Mode: mode, ModeReason: reason,
		PID: os.Getpid(), Log: logFile,
		Notes: host.Here().Less(mode == control.ModeServed && !c.noPassthrough, !c.noViews && !c.readOnly)}
	if st, serr := v.Requests().Status(closing); serr == nil {
		m.Recovery = st.Recovery
		if st.PolicyProblem != "" {
			m.Notes = append(m.Notes, "no rule of the store holds: "+text.Printable(st.PolicyProblem)+
				"; mend it, then `ckptfs policy load`")
		}
	}
	if logFile == "" && !c.foreground {
		lw.Attach(io.Discard)
		logTo, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	if err == nil && logTo != nil && !c.foreground {
		err = logs.Redirect(logTo)
	} else if err == nil && !c.foreground {
		err = lw.Crashes()
	}
	if err == nil {
		err = ready(m)
	}
	switch {
	case err == nil:
		systemd.Notify("READY=1", "STATUS="+c.store+" on "+c.mountpoint+", "+mode)
	case before != nil:
		log.Error("the mount is served, and its holder may not know", "err", err)
		err = nil
	default:
		err = errors.Join(err, unmount(true))
	}

	srv.Wait()
	systemd.Notify("STOPPING=1", "STATUS=closing "+c.store)
	log.Info("unmounted", "mountpoint", c.mountpoint)
	ctl.Close()
	return err
}

// openMetrics serves metrics, of a mount that is there.
func (c *mountConfig) openMetrics(v *volume.Volume) (func(), error) {
	ln, err := scrape.Listen(c.metrics)
	if err != nil {
		return nil, err
	}
	return scrape.Serve(ln, v.Requests(), built()), nil
}

// answer makes the socket at which the daemon is asked. The store is mounted.
func (c *mountConfig) answer(v *volume.Volume, h http.Handler) (*control.Server, error) {
	if !c.readOnly {
		dir, err := v.Folder().OpenDir(".")
		if err != nil {
			return nil, err
		}
		return control.ServeIn(dir, control.SocketName, h)
	}
	dev, ok := place.DeviceOf(c.mountpoint)
	if !ok {
		return nil, fmt.Errorf("the mount on %s went away: another program unmounted it; mount again", c.mountpoint)
	}
	if err := control.MakeRuntimeDir(); err != nil {
		return nil, err
	}
	return control.ServeAt(control.DeviceSocket(os.Geteuid(), dev.Major, dev.Minor), h)
}

// onSignals unmounts on the first SIGTERM or SIGINT, as soon as the mount is not in use. The second detaches
// it with whatever is open, and lets the closing of the store wait for nothing; the third ends the process,
// as a crash would.
//
// asked: the first one has come.
func onSignals(log *slog.Logger, unmount func(lazy bool) error, hurry func(), asked bool) (stop func()) {
	sigs := make(chan os.Signal, 3)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		retry := time.NewTicker(250 * time.Millisecond)
		defer retry.Stop()
		wanted, free, told := 0, false, false
		if asked {
			wanted = 1
		}
		for {
			select {
			case <-done:
				return
			case s := <-sigs:
				wanted++
				log.Info("signal", "signal", s.String(), "count", wanted)
				switch {
				case wanted == 2:
					if !free {
						free = unmount(true) == nil
					}
					hurry()
				case wanted > 2:
					os.Exit(exit.Interrupted)
				}
			case <-retry.C:
			}
			if wanted == 0 || free {
				continue
			}
			if err := unmount(false); err == nil {
				free = true
			} else if !told {
				told = true
				log.Warn("cannot unmount yet, trying on; a second signal detaches the mount", "err", err)
			}
		}
	}()
	return func() {
		signal.Stop(sigs)
		close(done)
	}
}
