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

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/host"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/tree"
)

// adopt is one call of the command.
type adopt struct {
	Shell
	dir, store string
	options    []string // of the mount, as given
	foreign    bool
	chosen     bool // the store was named: it may be on another disk
	replace    bool // a folder on another disk gives its path to the mount

	claim  *os.File // nobody else moves a folder of the store; nil: there is none yet
	looked *inplace.Looked
	made   bool // the store, by this call
	alone  bool // other users do not see the mount
}

func adoptCommand(s Shell) *cobra.Command {
	a := &adopt{Shell: s}
	var into string
	cmd := &cobra.Command{
		Use:   "adopt [flags] DIR",
		Short: "Make a folder a mounted store, in place and without copying it",
		Long: `Makes the folder DIR a store that is mounted on DIR. Nothing is copied: the folder moves by one rename into the store,
DIR.ckptfs beside it unless --store names another folder. Its files are then packed in the background. Files that
programs have open stay open, and what they write is there.

With --into the folder moves to a path in a store that there is, mounted or not, and is gone from where it was.

Where the store is on another disk, the files are copied, synced, read back and compared with the folder. What changes
meanwhile is copied again. The folder is kept as it is. With --replace it is kept as DIR.original, and the store is
mounted on DIR; nobody may use the folder then. What cannot be copied, as sockets and ACLs, is named (exit code 7).

If the command is killed, or the power goes, the folder is where it was or in the store, whole. Run the command again:
it ends what was begun. If nothing can be mounted, the folder is put back.

DIR is not adopted while a program stands in it, has a folder of it open or mounted elsewhere: it would go on past the
mount. Nor is it if a file in it has another name outside of DIR: that name would lead to a file that is packed.

` + "`ckptfs leave DIR`" + ` is the way back.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return s.Usage(cmd, "adopt takes a folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if a.dir, err = absolute(args[0]); err != nil {
				return err
			}
			a.foreign, _ = cmd.Flags().GetBool("foreign")
			if cmd.Flags().Changed("into") {
				if a.store != "" || len(a.options) > 0 || a.replace {
					return s.Usage(cmd, "--into names a path in a store that there is: without --store, --replace and -o")
				}
				if into == "" {
					return s.Usage(cmd, "--into is empty: is a variable not set?")
				}
				if into, err = filepath.Abs(into); err != nil {
					return err
				}
				return a.into(cmd.Context(), into)
			}
			if a.chosen = cmd.Flags().Changed("store"); !a.chosen {
				a.store = a.dir + inplace.Beside
			}
			if a.store, err = absolute(a.store); err != nil {
				return err
			}
			return a.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&a.store, "store", "", "the store's folder (default DIR.ckptfs)")
	cmd.Flags().StringVar(&into, "into", "", "move the folder to this path in the mount of a store")
	cmd.Flags().BoolVar(&a.replace, "replace", false, "if it is copied to another disk: keep the folder as DIR.original, and mount the store on DIR")
	cmd.Flags().StringArrayVarP(&a.options, "options", "o", nil, "options of the mount, as mount(8) gives them: name[=value],…")
	return cmd
}

// renamed is why --replace has no sense on one disk.
const renamed = " and its store are on one disk, where the folder itself moves and no original stays: leave out --replace"

func (a *adopt) run(ctx context.Context) (err error) {
	if a.claim, err = claim(ctx, a, a.store); err != nil {
		return err
	}
	defer func() {
		if a.claim != nil {
			a.claim.Close()
		}
	}()
	d, m, err := folder(a.store, a.foreign)
	if err != nil {
		return err
	}
	if d != nil {
		defer d.Close()
	}
	begun := m != nil && m.Way == inplace.Adopt && string(m.Dir) == a.dir
	if d != nil && (begun || m == nil) && a.mounted() {
		switch {
		case len(a.options) > 0 && !begun && !a.apart(): // else this may end what was begun with them
			return a.Unfit(fmt.Sprintf("%s is a mount of %s already, and -o is for a new one: `ckptfs umount %s` first", a.dir, a.store, text.Word(a.dir)))
		case a.replace && !a.apart():
			return a.Unfit(a.dir + renamed)
		}
		return a.end(d)
	}
	if err := errors.Join(clear(a.store, a.dir), a.nested()); err != nil {
		return err
	}
	if m != nil && !begun {
		return control.Busy(place.Begun(&inplace.Begun{Store: a.store, Move: *m}))
	}
	if err := a.again(d, m, begun); err != nil {
		return err
	}
	other, err := a.elsewhere()
	if err != nil {
		return err
	}
	if a.replace && !other && !(d != nil && a.apart()) {
		return a.Unfit(a.dir + renamed)
	}
	if other && a.chosen && !a.unmounted() {
		return a.bring(ctx, d, "")
	}
	here := host.Here()
	if err := here.CheckFUSE(false); err != nil {
		return err
	}
	others := here.CheckFUSE(true) == nil // who saw the folder is to see the mount
	a.alone = !others
	if d != nil && m == nil && a.unmounted() {
		if err := a.Mount(ctx, a.claim, a.line(others)); err != nil {
			return err
		}
		return a.end(d)
	}
	if begun { // what is in the folder may be another thing by now
		if begun, err = a.moved(d, m); err != nil {
			return err
		}
	}
	if !begun {
		if err := a.vet(ctx, true); err != nil {
			return err
		}
	}
	fresh := false // its folder, too, was made by this call
	if d == nil {
		_, missing := os.Lstat(a.store)
		if d, err = a.make(); err != nil {
			return err
		}
		a.made = true
		defer d.Close()
		fresh = errors.Is(missing, fs.ErrNotExist)
	}
	if !begun {
		if err := a.begin(ctx, d); err != nil {
			if a.made && tree.Unmake(d) == nil && fresh {
				_ = os.Remove(a.store)
			}
			return err
		}
	}
	return a.mount(ctx, d, others)
}

// mounted reports whether the store is mounted on the folder, and served.
func (a *adopt) mounted() bool {
	m := mountAt(a.dir)
	ours := m != nil && m.FSType == fsType && m.Source == a.store
	return ours && errors.Is(clear(a.store, a.dir), unix.EBUSY)
}

// unmounted reports whether the folder was adopted before, and is only to be mounted: the store has the
// files, and the folder none.
func (a *adopt) unmounted() bool {
	inStore, err := os.ReadDir(filepath.Join(a.store, tree.TreeDir))
	if err != nil || len(inStore) == 0 {
		return false
	}
	inDir, err := os.ReadDir(a.dir)
	return err == nil && len(inDir) == 0
}

// again makes the empty folder again that a folder left behind which is in the store, if somebody removed it.
func (a *adopt) again(d *disk.Folder, m *inplace.Move, begun bool) error {
	if _, err := os.Lstat(a.dir); d == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if begun {
		if moved, err := a.moved(d, m); err != nil || !moved {
			return err
		}
	} else if names, err := d.ReadDir(tree.TreeDir); err != nil || len(names) == 0 {
		return err
	}
	return os.Mkdir(a.dir, 0o755)
}

// moved reports whether the folder of the journal is in the store.
func (a *adopt) moved(d *disk.Folder, m *inplace.Move) (bool, error) {
	p, err := inplace.NewPair(d, a.dir)
	if err != nil {
		return false, err
	}
	defer p.Close()
	moved, err := p.Moved(m)
	if errors.Is(err, inplace.ErrOther) {
		return false, nil // begin looks whether the store has files
	}
	return moved, err
}

// make makes the store, or opens one that an earlier call made, and makes it durable.
func (a *adopt) make() (*disk.Folder, error) {
	d, err := tree.OpenOrCreate(a.store, a.foreign, time.Now())
	if !a.chosen && (errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)) {
		err = fmt.Errorf("%w: --store names another folder for it", err)
	}
	if err != nil {
		return nil, err
	}
	up, err := os.Open(filepath.Dir(a.store))
	if err == nil {
		err = errors.Join(up.Sync(), up.Close(), d.SyncDir("."))
	}
	if err == nil {
		a.claim, err = inplace.Claim(d)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// begin writes the journal, for a store that has no files.
func (a *adopt) begin(ctx context.Context, d *disk.Folder) error {
	if tree.Used(a.store) {
		return control.Busy(fmt.Sprintf("the store %s is in use", a.store))
	}
	names, err := d.ReadDir(tree.TreeDir)
	if err != nil {
		return err
	}
	if len(names) > 0 && a.store == a.dir+inplace.Beside {
		return a.Unfit(twoFolders(a.dir, a.store))
	}
	if len(names) > 0 {
		return a.Unfit(fmt.Sprintf("the store %s has files already: name another with --store, or mount it and move the folder into the mount", a.store))
	}
	p, err := inplace.NewPair(d, a.dir)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := a.strip(ctx); err != nil {
		return err
	}
	_, err = p.Begin(inplace.Adopt)
	return err
}

// strip removes what a store that the folder was once in left on its files.
func (a *adopt) strip(ctx context.Context) error {
	if a.looked.Marked.N == 0 {
		return nil
	}
	up, err := disk.OpenFolder(filepath.Dir(a.dir))
	if err != nil {
		return err
	}
	defer up.Close()
	report, done := counting(a, strippingNames)
	defer done()
	return inplace.Strip(ctx, up, filepath.Base(a.dir), inplace.Adopt, report)
}

// mount has the folder moved and mounted. If that fails, the folder is put back.
func (a *adopt) mount(ctx context.Context, d *disk.Folder, others bool) error {
	err := a.Mount(ctx, a.claim, a.line(others, "--adopt"))
	if err == nil {
		return a.end(d)
	}
	m, berr := a.back(d)
	if berr != nil {
		return fmt.Errorf("%w; the folder is whole, at %s or in %s, and was not put back: %w; run the command again",
			err, a.dir, d.Join(tree.TreeDir), berr)
	}
	said := ""
	if names, rerr := d.ReadDir(tree.TreeDir); a.made && rerr == nil && len(names) == 0 {
		said = fmt.Sprintf("; the store that was made, %s, is empty: the next adopt uses it, `rm -r %s` removes it",
			a.store, text.Word(a.store))
	}
	_ = tellKept(a, a.dir, m)
	return fmt.Errorf("%w; %s is as it was%s", err, a.dir, said)
}

// line is the command line of the mount.
func (a *adopt) line(others bool, flags ...string) Line {
	words := append([]string{"mount"}, flags...)
	if a.foreign {
		words = append(words, "--foreign")
	}
	if others {
		words = append(words, "--allow-other")
	}
	for _, o := range a.options {
		words = append(words, "-o", o)
	}
	return Line{Words: append(words, a.store, a.dir)}
}

// back puts the folder back once the daemon has ended that could not serve it. The journal tells what was
// kept.
func (a *adopt) back(d *disk.Folder) (*inplace.Move, error) {
	ctx := context.Background() // also after an interrupt
	if err := free(ctx, a, a.store); err != nil {
		return nil, err
	}
	if err := errors.Join(clear(a.store, a.dir), clear(a.store, d.Join(tree.TreeDir))); err != nil {
		return nil, err
	}
	m, err := inplace.Read(d)
	if err != nil || m == nil {
		return nil, err
	}
	return inplace.Back(ctx, d, m)
}

// end removes the journal: the store is mounted.
func (a *adopt) end(d *disk.Folder) error {
	m, err := inplace.Read(d)
	if err != nil {
		return err
	}
	if err := inplace.End(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	v := struct {
		Dir   string         `json:"dir"`
		Store string         `json:"store"`
		Kept  []inplace.Kept `json:"both_kept"` // names that programs had made meanwhile, too
		*inplace.Looked
	}{a.dir, a.store, keptIn(m), a.looked}
	err = a.Show(v, func(w io.Writer) {
		what := ""
		if a.looked != nil {
			files, bytes := text.Plural(a.looked.Files, "file"), text.Bytes(a.looked.Bytes)
			what = fmt.Sprintf(", with %s, %s", files, bytes)
		}
		fmt.Fprintf(w, "%s is a mount of %s now%s\n", text.Printable(a.dir), text.Printable(a.store), what)
		back := "`ckptfs leave " + text.Word(a.dir) + "` undoes it"
		if a.apart() {
			back = "`ckptfs leave " + text.Word(a.dir) + " --copy DIR` copies them out again"
		}
		fmt.Fprintf(w, "its files are packed in the background; `ckptfs sync %s` waits for that, %s\n",
			text.Word(a.dir), back)
		if a.alone {
			fmt.Fprintln(w, "other users cannot look into it, root neither: that needs user_allow_other in /etc/fuse.conf, and then a new mount")
		}
		a.keeps(w)
	})
	return errors.Join(err, tellKept(a, a.dir, m))
}

// keeps tells of the original of a store on another disk, which a run that was cut short did not tell of.
func (a *adopt) keeps(w io.Writer) {
	original := a.dir + inplace.Original
	if onTwo(original, a.store) {
		fmt.Fprintf(w, "the original is kept, %s: `rm -r %s` removes it, once you need it no more\n",
			text.Printable(original), text.Word(original))
	}
}

// apart reports whether the store is on another disk than the folder that it is mounted at.
func (a *adopt) apart() bool { return onTwo(filepath.Dir(a.dir), a.store) }

// onTwo reports whether two paths are known to be on different disks.
func onTwo(one, other string) bool {
	var a, b unix.Stat_t
	return unix.Lstat(one, &a) == nil && unix.Stat(other, &b) == nil && a.Dev != b.Dev
}
