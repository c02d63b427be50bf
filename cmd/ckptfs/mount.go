package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/holder"
	"ckptfs/cmd/ckptfs/logs"
	"ckptfs/cmd/ckptfs/memory"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/size"
	"ckptfs/cmd/ckptfs/text"
)

// leastMemory is the least --memory: the daemon cannot do without it.
const leastMemory = 64 << 20

// mountConfig is the mount command's line, checked.
type mountConfig struct {
	store      string // absolute
	mountpoint string // absolute, without symlinks

	hotSize       size.Flag
	maxUnpacked   size.Flag
	memory        size.Flag
	cacheSize     size.Flag // of it; not set: half
	packCPUs      int
	noPassthrough bool
	noDelta       bool
	noRecipes     bool
	noIDs         bool
	allowOther    bool
	nonEmpty      bool
	mkdir         bool
	readOnly      bool
	metrics       string // address, "" for none
	remote        remote.MountFlags

	foreground bool
	logFile    string
	logFormat  string
	logLevel   string
	options    []string // -o, as given
	kernel     []string // those of them that the kernel keeps, in order
	shown
	untold
}

// shown is what is shown of what is in the tree.
type shown struct{ noViews, hideTorn bool }

// untold is what no help tells of: mount(8) says it, or ckptfs adopt.
type untold struct {
	sloppy bool // an unknown option is no error
	fake   bool // everything but the mount
	adopt  bool // the folder at the mountpoint becomes the store's tree first
}

func (a *app) mountCmd() *cobra.Command {
	c := &mountConfig{
		hotSize:     size.Auto(true),
		maxUnpacked: size.Auto(true),
		memory:      size.Default("512MiB", memory.Default),
		cacheSize:   size.Auto(false),
	}
	cmd := &cobra.Command{
		Use:   "mount [flags] [STORE] MOUNTPOINT",
		Short: "Mount a store, and make it if there is none",
		Long: `Mounts STORE at MOUNTPOINT and goes to the background once it is mounted. A STORE that does not exist, or is an
empty folder, is made. Its parent folder must exist.

With --remote the store is joined to a remote first, unless it is, and what other machines published appears in the
mount; its bytes are fetched when they are read. STORE may be left out then: it is the folder of this remote below
~/.local/share/ckptfs ($XDG_DATA_HOME/ckptfs).

    ckptfs mount --remote s3://models/team ./store /mnt/ckpt

With the right to do so (root, or CAP_SYS_ADMIN) the kernel itself reads and writes plain and resident files
(passthrough).
Otherwise the daemon does (served). The command prints which, and why; so does ` + "`ckptfs status`" + `.

With --read-only the daemon writes nothing to the store's folder, which may be on a read-only disk. It packs and evicts
nothing, and writes a log only if --log-file names one. The store must have been closed in order.

SIGTERM and SIGINT unmount as soon as no file is open. A second signal detaches the mount at once.

Options may be given as mount(8) gives them: -o hot_size=10%,no_views,allow_other. After ` + "`make install`" + ` a
line of /etc/fstab mounts at boot:

    /data/store  /mnt/ckpt  fuse.ckptfs  hot_size=10%,allow_other,_netdev  0  0`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.applyOptions(cmd.Flags()); err != nil {
				return exit.Wrong(cmd, err.Error())
			}
			if err := c.check(cmd); err != nil {
				return err
			}
			store, mountpoint, err := c.remote.Places(args)
			if err != nil {
				return exit.Wrong(cmd, err.Error())
			}
			if err := c.setPlaces(store, mountpoint); err != nil {
				return err
			}
			return a.mount(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.Var(&c.hotSize, "hot-size", "bound on the bytes that packed files keep resident: a size, N% of the disk, 0 for none; auto is 5% of the disk, at most 32GiB")
	f.Var(&c.maxUnpacked, "max-unpacked", "closes of written files wait while more than that is not packed: a size, N% of the disk; auto is a quarter of what is free")
	f.Var(&c.memory, "memory", "bound on the daemon's own memory (RssAnon), at least 64MiB; pages of the mapped index are the kernel's cache (RssFile), and come on top")
	f.Var(&c.cacheSize, "cache-size", "the part of --memory that decoded chunks may take: about half, or a size of at least 1MiB")
	f.IntVar(&c.packCPUs, "pack-cpus", 0, "processors that packing may use; 0 for those that other programs leave, and all while a command waits for it")
	f.BoolVar(&c.noPassthrough, "no-passthrough", false, "serve every read and write through the daemon")
	f.BoolVar(&c.noDelta, "no-delta", false, "store every changed tensor whole, not as its difference from an earlier checkpoint's")
	f.BoolVar(&c.noRecipes, "no-recipes", false, "do not store quantised, converted and merged tensors as computed from those that they were made of")
	f.BoolVar(&c.noIDs, "no-ids", false, "compute artifact ids when a program asks for them, not of every packed file while the daemon is idle")
	f.BoolVar(&c.hideTorn, "hide-torn", false, "list no steps in runs/RUN that are torn, or not complete yet; their names are found")
	f.BoolVar(&c.noViews, "no-views", false, "do not show X.safetensors beside X.pt (X.npz, X.h5, …) below runs/")
	f.BoolVar(&c.allowOther, "allow-other", false, "let other users see the mount (unless root: user_allow_other in /etc/fuse.conf)")
	f.BoolVarP(&c.readOnly, "read-only", "r", false, "change nothing in the store, and mount it beside other readers")
	f.BoolVar(&c.nonEmpty, "non-empty", false, "mount over a folder that holds something, which is then covered")
	f.BoolVar(&c.mkdir, "mkdir", false, "make the mountpoint if it is missing; its parent folder must exist")
	f.StringVar(&c.metrics, "metrics-listen", "", "answer Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	c.remote.Add(f)
	f.BoolVarP(&c.foreground, "foreground", "f", false, "stay in the foreground and log to standard error")
	f.StringVar(&c.logFile, "log-file", "", "where the daemon logs (default STORE/log; with -f standard error)")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringArrayVarP(&c.options, "options", "o", nil, "options as mount(8) gives them: name[=value],…")
	f.BoolVar(&c.sloppy, "sloppy", false, "")
	f.BoolVar(&c.fake, "fake", false, "")
	f.BoolVar(&c.adopt, "adopt", false, "")
	for _, hidden := range []string{"sloppy", "fake", "adopt"} { // mount(8)'s -s and -f; of ckptfs adopt
		f.Lookup(hidden).Hidden = true
	}
	return cmd
}

func (c *mountConfig) check(cmd *cobra.Command) error {
	bad := func(format string, args ...any) error {
		return exit.Wrong(cmd, fmt.Sprintf(format, args...))
	}
	if c.packCPUs < 0 || c.packCPUs > 4096 {
		return bad("--pack-cpus %d: there are %d", c.packCPUs, runtime.NumCPU())
	}
	if c.memory.Bytes < leastMemory {
		return bad("--memory %s: the daemon needs 64MiB", &c.memory)
	}
	if c.cacheSize.Bytes > c.memory.Bytes/4*3 {
		return bad("--cache-size %s does not fit into --memory %s: give three quarters of it at most", &c.cacheSize, &c.memory)
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		return bad("--log-format %q: it is text or json", c.logFormat)
	}
	if _, err := logs.ParseLevel(c.logLevel); err != nil {
		return bad("--log-level %q: it is debug, info, warn or error", c.logLevel)
	}
	if c.readOnly && c.remote.Joins() {
		return bad("--read-only uses no remote: leave out --remote")
	}
	if err := c.remote.Check(); err != nil {
		return bad("%v", err)
	}
	return nil
}

// setPlaces makes all paths absolute: the daemon does not keep the folder it was started in.
func (c *mountConfig) setPlaces(store, mountpoint string) error {
	var err error
	if c.store, err = absolute(store); err != nil {
		return err
	}
	c.store = resolve(c.store)
	if c.mountpoint, err = absolute(mountpoint); err != nil {
		return err
	}
	// Not the mountpoint itself: it may be a dead mount.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(c.mountpoint)); err == nil {
		c.mountpoint = filepath.Join(dir, filepath.Base(c.mountpoint))
	}
	if c.logFile != "" {
		if c.logFile, err = absolute(c.logFile); err != nil {
			return err
		}
	}
	return nil
}

// logPlace is where the daemon logs, unless to standard error.
func (c *mountConfig) logPlace(foreign bool) logs.Place {
	p := logs.Place{File: c.logFile, Foreign: foreign}
	if !c.foreground && !c.readOnly {
		p.Store = c.store
	}
	return p
}

// resolve is a path without symlinks, of which the last name need not exist yet.
func resolve(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// mounted is what the daemon says once it is.
type mounted struct {
	Store      string `json:"store"`
	Mountpoint string `json:"mountpoint"`
	Mode       string `json:"mode"`
	ModeReason string `json:"mode_reason,omitempty"`
	PID        int    `json:"pid"`
	Log        string `json:"log,omitempty"`
	Recovery   string `json:"recovery,omitempty"`

	Notes []string `json:"notes,omitempty"` // what the mount does without; package host

	Remote *remote.Added `json:"remote,omitempty"` // that the store joined just now; not with --foreground
}

// mount is three processes: the one that was called, which waits until there is a mount; the holder, which
// lasts as long as the mount (package holder); and the daemon, of which there may be several after each
// other. In the foreground the first two are one.
func (a *app) mount(ctx context.Context, c *mountConfig) error {
	link, err := holder.Connect()
	if err != nil {
		return err
	}
	if link != nil {
		return a.daemon(ctx, c, link)
	}
	if pipe := readyPipe(); pipe != nil {
		a.hold(c, pipe)
	}
	a.tellBegun(c.store) // it is mounted all the same: what ends the move begins where that is
	if err := a.checkMount(ctx, c); err != nil {
		return err
	}
	if c.fake {
		return nil
	}
	joined, err := c.remote.Join(ctx, shell{a}, c.store)
	if joined != nil && !a.json {
		joined.Print(a.out)
	}
	if err != nil {
		return err
	}
	if c.foreground {
		a.hold(c, nil)
	}
	m, err := a.spawn(ctx, spawned{})
	if err != nil {
		return err
	}
	m.Remote = joined
	return a.sayMounted(m)
}

func (a *app) sayMounted(m *mounted) error {
	return a.show(m, func(w io.Writer) {
		fmt.Fprintf(w, "%s mounted on %s, %s\n", text.Printable(m.Store), text.Printable(m.Mountpoint),
			text.WithReason(m.Mode, m.ModeReason))
		for _, s := range m.Notes {
			fmt.Fprintf(w, "note: %s\n", s)
		}
		if m.Recovery != "" {
			fmt.Fprintf(w, "after an unclean end: %s\n", text.Printable(strings.TrimSpace(m.Recovery)))
		}
	})
}
