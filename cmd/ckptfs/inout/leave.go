package inout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// leave is one call of the command.
type leave struct {
	Shell
	store, mountpoint string
	dir               string // where the folder is to be
	foreign           bool
	args              []string // as given
	claim             *os.File // nobody else moves a folder of the store
	changes           bool     // something may have been changed
	own               bool     // the journal is of this run
}

func leaveCommand(s Shell) *cobra.Command {
	l := &leave{Shell: s}
	var to string
	cmd := &cobra.Command{
		Use:   "leave [flags] MOUNTPOINT|STORE [DIR]",
		Short: "Make a store a plain folder again, in place",
		Long: `Unmounts the store, makes every file of it plain, and moves its tree to DIR by one rename; without DIR, to where it was
mounted. Each packed file is read, written and compared with the hashes of its manifest. The store's extended attributes
go. The room that this takes is counted first.

If the command is killed, or the power goes, run it again: it goes on where it was. Until the rename the store can be
mounted as before.

With --copy the files are copied to DIR, on any disk, and compared; the store stays as it is, mounted or not. Cut short,
the copy goes on where it was.

The store's folder remains, with all that was packed, but without files. ` + "`rm -r STORE`" + ` removes it;
` + "`ckptfs adopt DIR`" + ` uses it again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return s.Usage(cmd, "leave takes a mountpoint or a store, and where the folder is to be")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l.foreign, _ = cmd.Flags().GetBool("foreign")
			if cmd.Flags().Changed("copy") {
				if len(args) > 1 {
					return s.Usage(cmd, "leave --copy DIR takes a mountpoint or a store")
				}
				var err error
				if l.dir, err = absolute(to); err != nil {
					return err
				}
				return l.copy(cmd.Context(), args[0])
			}
			l.args = args
			err := l.run(cmd.Context())
			if errors.Is(err, context.Canceled) && !l.changes {
				err = fmt.Errorf("%w; nothing is changed; %s begins again", err, l.same())
			}
			return err
		},
	}
	cmd.Flags().StringVar(&to, "copy", "", "copy the files to this folder, and leave the store as it is")
	return cmd
}

// find finds the store, and where its files are to go.
func (l *leave) find() (err error) {
	l.dir = ""
	if len(l.args) == 2 {
		if l.dir, err = absolute(l.args[1]); err != nil {
			return err
		}
	}
	var inside string
	l.store, l.mountpoint, inside, err = l.Place(l.args[0])
	if err != nil {
		if dir, again := l.begun(l.args[0]); again {
			l.store, l.dir = dir+inplace.Beside, dir
			return nil
		} else if dir != "" && l.dir == "" {
			return l.Unfit(twoFolders(dir, dir+inplace.Beside))
		}
		return err
	}
	if inside != "" {
		return l.Unfit(fmt.Sprintf("%s is in the store %s: name the mountpoint, or the store", l.args[0], l.store))
	}
	if l.dir == "" {
		l.dir = l.mountpoint
	}
	if l.dir == "" {
		l.dir = l.destined()
	}
	if l.dir == "" {
		return l.Unfit(fmt.Sprintf("the store %s is not mounted: say where its files are to be, `ckptfs leave %s DIR`", l.store, text.Word(l.store)))
	}
	return nil
}

// destined is where the files of a store go that is not mounted: where a move that was begun takes them, or,
// if it has none, where they have left to, most likely. "": it is not known.
func (l *leave) destined() string {
	d, m, err := folder(l.store, l.foreign)
	if err != nil || d == nil {
		return ""
	}
	defer d.Close()
	if m != nil && m.Way == inplace.Leave {
		return string(m.Dir)
	}
	if names, err := d.ReadDir(tree.TreeDir); m == nil && err == nil && len(names) == 0 {
		return strings.TrimSuffix(l.store, inplace.Beside)
	}
	return ""
}

// begun reports whether a path is where the files of the store beside it are to be, which was unmounted for
// that, or of which a move was begun, or where they are, which the store has no more. A folder that is not,
// and has files while the store has others, is returned, too.
func (l *leave) begun(path string) (dir string, is bool) {
	dir, err := absolute(path)
	if err != nil {
		return "", false
	}
	d, m, err := folder(dir+inplace.Beside, l.foreign)
	if err != nil || d == nil {
		return "", false
	}
	defer d.Close()
	if m != nil && m.Way == inplace.Leave && string(m.Dir) == dir {
		return dir, true
	}
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(names) == 0 {
		return dir, true
	}
	stored, terr := d.ReadDir(tree.TreeDir)
	if err != nil || terr != nil || m != nil {
		return "", false
	}
	return dir, len(stored) == 0
}

func (l *leave) run(ctx context.Context) error {
	if err := l.find(); err != nil {
		return err
	}
	var err error
	if l.claim, err = claim(ctx, l, l.store); err != nil {
		return err
	}
	if l.claim != nil {
		defer l.claim.Close()
	}
	if err := l.find(); err != nil { // as it is now that nobody else moves it
		return err
	}
	d, m, err := folder(l.store, l.foreign)
	if err != nil {
		return err
	}
	if d == nil {
		return l.Unfit(l.store + " is no store")
	}
	defer d.Close()
	if m != nil && (m.Way != inplace.Leave || string(m.Dir) != l.dir) {
		if err := l.other(d, m); err != nil {
			return err
		}
		m = nil
	}
	if l.mountpoint != "" { // it was mounted since then
		m = nil
	}
	out := &left{Dir: l.dir, Store: l.store, Left: &control.Left{}}
	if m == nil {
		names, err := d.ReadDir(tree.TreeDir)
		if err != nil {
			return err
		}
		if len(names) == 0 && l.mountpoint == "" {
			return l.Show(out, func(w io.Writer) { l.gone(w) })
		}
	}
	p, err := inplace.NewPair(d, l.dir)
	if err != nil {
		return err
	}
	defer p.Close()
	if moved, err := l.moved(d, p, m); err != nil {
		return err
	} else if moved {
		return l.end(d, out)
	}
	if err := l.place(d, m); err != nil {
		return err
	}
	if out.Room, err = l.room(ctx, d); err != nil {
		return err
	}
	m, undo, err := l.begin(ctx, d, p, m)
	if err != nil {
		return err
	}
	if err := l.out(ctx, p, m, out); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("%w; free room there first", err)
		}
		return undo(err)
	}
	return l.end(d, out)
}

// out makes every file plain, and moves the tree. The store is not mounted.
func (l *leave) out(ctx context.Context, p *inplace.Pair, m *inplace.Move, out *left) (err error) {
	if err := free(ctx, l, l.store); err != nil {
		return err
	}
	if err := l.vacant(m); err != nil { // the mount may have covered names
		return err
	}
	if out.Left, err = l.unpack(ctx, out.Room); err != nil {
		return err
	}
	if len(out.Damaged) > 0 {
		l.named(out.Left)
		return l.Damaged()
	}
	return l.move(ctx, p, m)
}

// other looks at the journal of another move: one that adopt ended but for the journal is over.
func (l *leave) other(d *disk.Folder, m *inplace.Move) error {
	if m.Way == inplace.Adopt && l.mountpoint == string(m.Dir) {
		return inplace.End(d)
	}
	return control.Busy(place.Begun(&inplace.Begun{Store: l.store, Move: *m}))
}

// place looks whether the tree can be moved there.
func (l *leave) place(d *disk.Folder, m *inplace.Move) error {
	if procs.Within(l.dir, l.store) || procs.Within(l.store, l.dir) {
		return l.Unfit(fmt.Sprintf("%s and the store %s: neither can lie in the other", l.dir, l.store))
	}
	if l.dir != l.mountpoint {
		if err := l.vacant(m); err != nil {
			return err
		}
	} else if err := l.covered(); err != nil {
		return err
	}
	tr, err := d.Lstat(tree.TreeDir)
	if err != nil {
		return err
	}
	var up unix.Stat_t
	if err := unix.Stat(filepath.Dir(l.dir), &up); err != nil {
		return &os.PathError{Op: "stat", Path: filepath.Dir(l.dir), Err: err}
	}
	if tr.Dev != up.Dev {
		return l.Unfit(fmt.Sprintf("%s and the store %s are on different disks, and a folder moves within one: name a folder beside the store, or copy the files out: --copy FOLDER", l.dir, l.store))
	}
	return nil
}

// bound looks that the mount is nowhere else, where its daemon would go on to serve it.
func (l *leave) bound() error {
	mount := mountAt(l.mountpoint)
	all, err := mountinfo.GetMounts(nil)
	if err != nil || mount == nil {
		return err
	}
	for _, m := range all {
		if m.Major == mount.Major && m.Minor == mount.Minor && m.ID != mount.ID {
			return control.Busy(fmt.Sprintf("%s is mounted elsewhere, too, on %s: end that first", l.mountpoint,
				procs.Unmounting(m.Mountpoint)))
		}
	}
	return nil
}

// vacant looks that nothing is in the folder that the tree changes places with, but what programs made there
// since the move began: that moves after the tree.
func (l *leave) vacant(m *inplace.Move) error {
	names, err := os.ReadDir(l.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range names {
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(l.dir, e.Name()), &st)
		if err == unix.ENOENT || err == nil && m != nil && m.Begun > 0 && st.Ctim.Nano() >= m.Begun {
			continue
		}
		return l.Unfit(fmt.Sprintf("%s is not empty, %q is in it: move that away, or name a new folder", l.dir, e.Name()))
	}
	return nil
}

// covered looks that the mount covers no names. Only root can; vacant looks once it is unmounted.
func (l *leave) covered() error {
	if os.Geteuid() != 0 {
		return nil
	}
	names, err := inplace.Covered(l.mountpoint)
	if err != nil || len(names) == 0 {
		return nil
	}
	return l.Unfit(fmt.Sprintf("%s is not empty, the mount of %s covers %q in it: unmount it, and move that away, or name a new folder",
		l.dir, l.store, names[0]))
}

// room counts the room that the plain files take.
func (l *leave) room(ctx context.Context, d *disk.Folder) (r room, err error) {
	report, done := counting(l, "counting the room")
	n, err := inplace.Needed(ctx, d, report)
	done()
	if err != nil {
		return r, err
	}
	r.Files, r.Needed, r.packed = n.Files, n.Bytes, n.Packed
	if _, r.Free, err = d.Space(); err != nil {
		return r, err
	}
	return r, r.short()
}

// moved reports whether the tree has moved already. What programs had made in the empty folder moves after
// it, unless the store was opened since: what it has then is its own.
func (l *leave) moved(d *disk.Folder, p *inplace.Pair, m *inplace.Move) (bool, error) {
	if m == nil {
		return false, nil
	}
	if moved, err := p.Moved(m); err != nil || !moved {
		return false, err
	}
	at, err := tree.OpenedLast(d)
	if err == nil && m.Opened != 0 && at.UnixNano() == m.Opened {
		return true, p.Follow()
	}
	return true, p.Settle(inplace.Leave)
}

// unpack makes every file plain.
func (l *leave) unpack(ctx context.Context, r room) (*control.Left, error) {
	update, done := l.Progress("restoring")
	defer done()
	return volume.Leave(ctx, l.Volume(l.store), r.packed, update)
}

// move moves the tree, whose files are plain. Nobody opens the store meanwhile.
func (l *leave) move(ctx context.Context, p *inplace.Pair, m *inplace.Move) (err error) {
	d, now := p.Store(), time.Now()
	lock, err := tree.Acquire(d, now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Return()) }()
	report, done := counting(l, strippingNames)
	err = inplace.Strip(ctx, d, tree.TreeDir, inplace.Leave, report)
	done()
	if err != nil {
		return err
	}
	if err := unix.Syncfs(lock.Fd()); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := l.vacant(m); err != nil {
		return err
	}
	if err := p.Opens(m, now); err != nil {
		return err
	}
	return p.Exchange(inplace.Leave)
}
