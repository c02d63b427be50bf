// Package inout has the commands that make a folder a mounted store, and a store a plain folder again.
// Package ckptfs/fs/inplace specifies what is done to the disk, and in which order.
//
//	ckptfs adopt                        mount --adopt, which it starts
//	  looks whether that can be done
//	  makes the store
//	  writes the journal
//	  starts ───────────────────────▶     Move: mounts, and the folders change places
//	                                      opens the store, serves
//	  ◀──────────────────── mounted ──
//	  removes the journal
//
// What fails after the folders changed places is undone by adopt. If that was killed, too, the folder is in
// the store, and the next adopt goes on from there.
//
// A folder on another disk than its store is copied instead, and stays (bring.go). Then the store may be
// mounted on its path (replace.go).
package inout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/unmount"
	"ckptfs/fs/control"
	"ckptfs/fs/fusefs"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// Shell is what the commands need of the program.
type Shell interface {
	// Show prints a result, as JSON if that was asked for, and Say a line on standard error.
	Show(v any, human func(io.Writer)) error
	Say(format string, args ...any)
	// Usage is the error of a command line that makes no sense, Unfit that of a folder that cannot be
	// a mountpoint.
	Usage(cmd *cobra.Command, message string) error
	Unfit(message string) error
	// Place finds the store that a path lies in, where that is mounted, or "", and the path in it.
	Place(path string) (store, mountpoint, inside string, err error)
	// With connects to the store that a path lies in, which need not be there yet; at is the path in it.
	With(ctx context.Context, path string, do func(c *control.Client, at string) error) error
	// Inside reads the store that paths lie in, and changes nothing in it.
	Inside(ctx context.Context, paths []string, do func(c *control.Client, at []string) error) error
	// Mount runs a command line of mount, and waits until it is mounted. The first daemon has claim, which
	// may be nil, open until then, too.
	Mount(ctx context.Context, claim *os.File, line Line) error
	// MountedBy is the command line that has the store mounted there.
	MountedBy(ctx context.Context, store, mountpoint string) Line
	// Unmount unmounts without packing. A mount in use stays.
	Unmount(ctx context.Context, mountpoint string) error
	// Volume is how a store is opened for a command.
	Volume(store string) volume.Options
	Progress(doing string) (update func(control.Progress), done func())
	// Outside fails for a path in the folder of a store.
	Outside(path string) error
	// Left names what was left as it is, and Partial is the error of that.
	Left([]control.Skip)
	Partial() error
	// Damaged is the error when damage was found, which was named already.
	Damaged() error
}

// Line is a command line of mount.
type Line struct {
	Words  []string // without the program's name
	Folder string   // that relative paths start from; "": this process's
}

// strippingNames is what a command does that removes the attributes of a store.
const strippingNames = "removing the store's attributes"

// counting shows a phase that looks at names, on a terminal.
func counting(s Shell, doing string) (report inplace.Report, done func()) {
	update, done := s.Progress(doing)
	if update == nil {
		return nil, done
	}
	return func(names int) { update(control.Progress{DoneFiles: names}) }, done
}

// fsType is the type that mountinfo shows for our mounts.
const fsType = "fuse.ckptfs"

// Commands are adopt and leave.
func Commands(s Shell) []*cobra.Command { return []*cobra.Command{adoptCommand(s), leaveCommand(s)} }

// absolute is a path without symbolic links, of which the last name need not exist yet.
func absolute(path string) (string, error) {
	if path == "" {
		return "", control.Invalid("a path is empty: is a variable not set?")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(abs); err == nil {
		return resolved, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(abs)), nil
}

// folder opens the folder of a store that may be there, and reads the journal in it. Without a store it is
// nil.
func folder(path string, foreign bool) (*disk.Folder, *inplace.Move, error) {
	switch _, err := os.Lstat(filepath.Join(path, tree.FormatFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%s: only its owner and root may look into the store: %w", path, err)
	}
	d, err := openStore(path, foreign)
	if err != nil {
		return nil, nil, err
	}
	m, err := inplace.Read(d)
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, m, nil
}

// openStore is tree.OpenStore, after a mount of the store was cleared that nobody serves.
func openStore(path string, foreign bool) (*disk.Folder, error) {
	if err := clear(path, filepath.Join(path, tree.TreeDir)); err != nil {
		return nil, err
	}
	return tree.OpenStore(path, foreign)
}

// answers is how long a mount may take to answer.
const answers = 10 * time.Second

// clear takes away a mount of a store whose daemon is gone. It is EBUSY if it is served, or about to be.
func clear(store, at string) error {
	for range 8 { // one may cover another
		m := mountAt(at)
		if m == nil || m.FSType != fsType || m.Source != store {
			return nil
		}
		asked := make(chan error, 1)
		go func() {
			var st unix.Statfs_t
			asked <- unix.Statfs(at, &st)
		}()
		select {
		case err := <-asked:
			if !errors.Is(err, unix.ENOTCONN) {
				return fmt.Errorf("%s is mounted on %s: %w", store, at, unix.EBUSY)
			}
		case <-time.After(answers):
			return fmt.Errorf("%s is being mounted on %s, and does not answer: %w", store, at, unix.EBUSY)
		}
		if err := unmount.Detach(at, true); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: mounts of %s are there that cannot be cleared: %w", at, store, unix.EBUSY)
}

// mountAt is the mount on a folder, nil if none is. It asks nobody.
func mountAt(at string) *mountinfo.Info {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != at, false
	})
	if err != nil || len(mounts) == 0 {
		return nil
	}
	return mounts[len(mounts)-1] // the last one covers the others
}

// Move is what a mount does first that is made for adopt: the folder of the journal becomes the store's tree,
// and the mount is where it was. Programs that come wait until it is served.
func Move(store, dir string, foreign bool, o fusefs.Options, warn func(msg string, args ...any),
) (_ *fusefs.Prepared, err error) {
	d, err := tree.OpenStore(store, foreign)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	lock, err := tree.Acquire(d, time.Now()) // nobody opens it meanwhile
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Return()) }()
	m, err := inplace.Read(d)
	if err == nil && (m == nil || string(m.Dir) != dir) {
		err = fmt.Errorf("%s: no folder is about to move there: `ckptfs adopt %s` begins that", store, text.Word(dir))
	}
	if err != nil {
		return nil, err
	}
	p, err := inplace.NewPair(d, dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	moved, err := p.Moved(m)
	if err != nil {
		return nil, err
	}
	since := int64(0)
	if m.Way == inplace.Leave { // it is there still, and the mount had covered what is older
		moved, since = !moved, m.Begun
	}
	if !moved {
		if mount := moveMounted(p, d, o); mount != nil {
			return mount, p.Settle(inplace.Adopt)
		}
		if err := p.Swap(); err != nil {
			return nil, err
		}
	}
	return mountMoved(p, d, dir, since, o, warn)
}

// moveMounted moves the folder together with the mount; nil: it was not moved, as that needs root.
func moveMounted(p *inplace.Pair, d *disk.Folder, o fusefs.Options) *fusefs.Prepared {
	if os.Geteuid() != 0 {
		return nil
	}
	at := d.Join(tree.TreeDir)
	mount, err := fusefs.Prepare(at, o)
	if err != nil {
		return nil
	}
	if err := p.SwapMounted(); err != nil {
		mount.Drop()
		_ = unmount.Detach(at, true)
		return nil
	}
	return mount
}

// mountMoved mounts where the folder was, which has moved. What programs made there since moves after it.
func mountMoved(p *inplace.Pair, d *disk.Folder, dir string, since int64, o fusefs.Options,
	warn func(msg string, args ...any)) (*fusefs.Prepared, error) {
	empty, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer empty.Close()
	mount, err := fusefs.Prepare(dir, o)
	if err != nil {
		return nil, err
	}
	full, err := d.OpenDir(tree.TreeDir)
	if err == nil {
		defer full.Close()
		err = inplace.Gather(empty, full, since, func(k inplace.Kept) error {
			warn("both files of a name are kept", "folder", dir, "name", string(k.Name), "kept as", string(k.As))
			return inplace.Note(d, k)
		})
	}
	if err = errors.Join(err, p.Settle(inplace.Adopt)); err != nil {
		mount.Drop()
		return nil, err
	}
	return mount, nil
}

// tellKept names what was kept under another name, and returns the error of that: not all is as it was.
func tellKept(s Shell, dir string, m *inplace.Move) error {
	if m == nil || len(m.Kept) == 0 && m.MoreKept == 0 {
		return nil
	}
	for _, k := range m.Kept {
		s.Say("%s", k.Says(dir))
	}
	if m.MoreKept > 0 {
		s.Say("%s: %s more were kept so: their names end with .kept-1, or another number", text.Printable(dir),
			text.Plural(m.MoreKept, "file"))
	}
	return bothKept{s.Partial()}
}

// bothKept is Partial, in other words.
type bothKept struct{ error }

func (bothKept) Error() string   { return "of some names both files are kept" }
func (b bothKept) Unwrap() error { return b.error }

// keptIn are the names of a journal that were kept.
func keptIn(m *inplace.Move) []inplace.Kept {
	if m == nil || m.Kept == nil {
		return []inplace.Kept{}
	}
	return m.Kept
}

// room is how much room a command needs, and there is.
type room struct {
	Files  int64 `json:"files"`
	Needed int64 `json:"needed_bytes"`
	Free   int64 `json:"free_bytes"`

	packed int64 // bytes of the packed files
}

// slack is room that is asked for beyond what the files take: the filesystem's own records.
const slack = 16 << 20

// short is the error where the disk has less room than that. Few files need little of the slack.
func (r room) short() error {
	needed := r.Needed + min(slack, r.Needed/16+256<<10)
	if r.Needed == 0 || needed <= r.Free {
		return nil
	}
	return fmt.Errorf("the files that are packed take %s more when they are plain, and the disk has %s free: free %s, or give --copy and a folder on another disk: %w",
		text.Bytes(needed), text.Bytes(r.Free), text.Bytes(needed-r.Free), unix.ENOSPC)
}
