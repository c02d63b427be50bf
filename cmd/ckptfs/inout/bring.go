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

	"golang.org/x/sys/unix"

	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/inplace"
	"ckptfs/fs/takeout"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// brought is what adopt prints of a folder on another disk.
type brought struct {
	Dir      string         `json:"dir"`
	Store    string         `json:"store"`
	Path     string         `json:"path,omitempty"` // in the mount, with --into
	Original string         `json:"original"`       // where the folder is, which is kept
	Mounted  bool           `json:"mounted"`        // the store is mounted where the folder was
	Files    int64          `json:"files"`
	Bytes    int64          `json:"bytes"`
	Compared int            `json:"compared"`
	Skipped  []control.Skip `json:"skipped"`
	Writers  []string       `json:"writers,omitempty"` // programs that go on to write to the original
}

// bring copies the folder, which is on another disk than the store, and compares the copy. The folder stays.
type bring struct {
	*adopt
	to      string // with --into: the path in the store
	src     *takeout.Folder
	checked *takeout.Checked
	out     brought
}

// elsewhere reports whether the folder and the store are on different disks.
func (a *adopt) elsewhere() (bool, error) {
	var dir, there unix.Stat_t
	if err := unix.Stat(a.dir, &dir); err != nil {
		return false, &os.PathError{Op: "stat", Path: a.dir, Err: err}
	}
	err := unix.Stat(a.store, &there)
	if err == unix.ENOENT {
		err = unix.Stat(filepath.Dir(a.store), &there)
	}
	if err != nil {
		return false, &os.PathError{Op: "stat", Path: a.store, Err: err}
	}
	return dir.Dev != there.Dev, nil
}

// bring brings the folder into the store d, nil if that is to be made, or with --into to a path in it.
func (a *adopt) bring(ctx context.Context, d *disk.Folder, to string) error {
	b := &bring{adopt: a, to: to, checked: takeout.NewChecked(time.Now)}
	b.out = brought{Dir: a.dir, Store: a.store, Path: to, Original: a.dir}
	if err := b.vet(ctx); err != nil {
		return err
	}
	var err error
	if b.src, err = takeout.OpenFolder(a.dir, tree.XattrName); err != nil {
		return err
	}
	defer b.src.Close()
	if d == nil {
		if err := b.roomBeside(); err != nil {
			return err
		}
		if d, err = a.make(); err != nil {
			return err
		}
		defer d.Close()
		v, err := volume.Open(b.Volume(a.store)) // makes the index, without which nobody can only read it
		if err == nil {
			err = v.Close(ctx)
		}
		if err != nil {
			return err
		}
	}
	has, err := b.has(d)
	if err != nil {
		return err
	}
	if has {
		err = b.compare(ctx)
	} else {
		err = b.copy(ctx, d)
	}
	if err == nil && a.replace {
		err = b.replaced(ctx, d)
	}
	if err != nil {
		return err
	}
	return b.end()
}

// vet looks for everything that keeps the folder from being copied, or replaced, while nothing is changed.
func (b *bring) vet(ctx context.Context) error {
	if err := b.places(b.replace); err != nil {
		return err
	}
	if b.replace {
		if err := b.replaceable(); err != nil {
			return err
		}
	}
	report, done := counting(b, "looking at names")
	l, err := inplace.Look(ctx, b.dir, report)
	done()
	if err != nil {
		return err
	}
	b.looked, b.out.Files, b.out.Bytes = l, l.Files, l.Bytes
	err = b.refuse(l.Stores, "a store is in it, which would be packed as files: move it away")
	if err == nil && b.to == "" {
		err = b.refuse(l.Own, ownName)
	}
	if err == nil {
		err = b.refuse(l.Hollow, "the bytes of these files are in another store, not here: copy them from a mount of it")
	}
	if err == nil && b.replace {
		err = b.refuse(l.Foreign, "belongs to other users, and only root can have a mount replace it")
	}
	return err
}

// has reports whether there is something where the folder is to be.
func (b *bring) has(d *disk.Folder) (bool, error) {
	if b.to != "" {
		_, err := os.Lstat(b.to)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return true, err
	}
	names, err := d.ReadDir(tree.TreeDir)
	return len(names) > 0, err
}

// copy copies the folder to a place of the store's disk, compares the copy, and moves that into the store.
func (b *bring) copy(ctx context.Context, d *disk.Folder) error {
	if b.to == "" && tree.Used(b.store) {
		return control.Busy(fmt.Sprintf("the store %s is in use: unmount it, or bring the folder into its mount with --into", b.store))
	}
	at, err := inplace.NewArriving(d, b.dir)
	if err != nil {
		return err
	}
	defer at.Close()
	at.Note(b.to)
	others, err := at.Others()
	if err != nil {
		return err
	}
	for _, path := range others {
		b.Say("%s: a copy of another folder is there, which was not ended: `rm -r` it if nobody is to go on with it", text.Printable(path))
	}
	there, err := at.Room()
	if err == nil {
		err = b.room(d, there)
	}
	if err != nil {
		return err
	}
	did, err := takeout.Mirror(ctx, b.src, at.Root(), at.Name, b.checked, os.Geteuid() == 0, b.Progress)
	if err != nil {
		return fmt.Errorf("%w; %s is as it was, and nothing of it in the store; what was copied is kept for the next run", err, b.dir)
	}
	b.out.Compared = did.Same
	b.skipped(did.Skipped)
	if len(did.Failed) > 0 {
		b.named(did.Failed)
		return fmt.Errorf("%s is as it was, and nothing of it in the store, since %s could not be copied; "+
			"what was copied is kept: have the programs end that change them, or mend what is named, and run the command again", b.dir, text.Plural(int64(len(did.Failed)), "name"))
	}
	if b.to != "" {
		return b.With(ctx, b.to, func(c *control.Client, to string) error {
			return c.TakeIn(ctx, at.Path(), to)
		})
	}
	lock, err := tree.Acquire(d, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(at.Enter(), lock.Return())
}

// roomBeside is room before there is a store.
func (b *bring) roomBeside() error {
	d, err := nearest(b.store)
	if err != nil {
		return err
	}
	defer d.Close()
	return b.room(d, 0)
}

// room looks that a disk has room for what is to be copied yet.
func (b *bring) room(d *disk.Folder, there int64) error {
	_, free, err := d.Space()
	if err != nil {
		return err
	}
	needed := b.looked.Room - there + slack
	if needed <= free {
		return nil
	}
	return fmt.Errorf("the files take %s, of which %s are there, and the disk of %s has %s free: free %s: %w", text.Bytes(b.looked.Room),
		text.Bytes(there), b.store, text.Bytes(free), text.Bytes(needed-free), unix.ENOSPC)
}

// compare looks whether the store has the folder already.
func (b *bring) compare(ctx context.Context) error {
	var differ []control.Skip
	inside := b.to
	if inside == "" {
		inside = b.store
	}
	time.Sleep(takeout.Unsettled)
	err := b.Inside(ctx, []string{inside}, func(c *control.Client, at []string) error {
		update, done := b.Progress("comparing")
		defer done()
		found, err := takeout.Compare(ctx, b.src, ".", c, at[0],
			takeout.Options{Progress: update, Checked: b.checked, Attributes: true})
		if err == nil {
			b.out.Compared, differ = found.Same, found.Differ
			b.skipped(found.Skipped)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(differ) == 0 {
		return b.still(ctx, b.src)
	}
	b.named(differ)
	if b.to != "" {
		return b.Unfit(fmt.Sprintf("%s is there already, and %s of %s differ or are not in it: name what is to be made", b.to,
			text.Plural(int64(len(differ)), "name"), b.dir))
	}
	return b.Unfit(fmt.Sprintf("the store %s has files already, and %s of %s differ or are not in it: mount the store and copy these, "+
		"or name another with --store", b.store, text.Plural(int64(len(differ)), "name"), b.dir))
}

// still fails if the folder is not what was compared any more.
func (b *bring) still(ctx context.Context, src *takeout.Folder) error {
	open, err := b.checked.Open(ctx, src, ".")
	if err != nil || len(open) == 0 {
		return err
	}
	return control.Busy(fmt.Sprintf("%s: programs change it: %q is not what was compared: have them end, and run the command again",
		b.dir, open[0]))
}

// skipped notes what is not copied. It is named at the end.
func (b *bring) skipped(all []control.Skip) { b.out.Skipped = append(b.out.Skipped, all...) }

// named names the first of some files.
func (b *bring) named(all []control.Skip) {
	const most = 20
	some := make([]control.Skip, 0, most)
	for _, s := range all[:min(len(all), most)] {
		some = append(some, control.Skip{Path: filepath.Join(b.dir, s.Path), Reason: s.Reason})
	}
	b.Left(some)
	if more := len(all) - len(some); more > 0 {
		b.Say("and %d more", more)
	}
}

// end says what there is now.
func (b *bring) end() error {
	if b.out.Skipped == nil {
		b.out.Skipped = []control.Skip{}
	}
	b.out.Writers = b.writers(b.out.Original)
	err := b.Show(b.out, func(w io.Writer) {
		o := &b.out
		place := "the store " + o.Store
		if o.Path != "" {
			place = o.Path
		}
		fmt.Fprintf(w, "%s has all of %s: %s, %s, each compared with the original\n", text.Printable(place), text.Printable(o.Dir),
			text.Plural(o.Files, "file"), text.Bytes(o.Bytes))
		switch {
		case o.Mounted:
			fmt.Fprintf(w, "%s is a mount of the store now; its files are packed in the background\n", text.Printable(o.Dir))
		case o.Path == "":
			onPath := ""
			if mountAt(o.Dir) == nil { // a mountpoint cannot be renamed
				onPath = fmt.Sprintf("; `ckptfs adopt --replace --store %s %s` mounts it on the folder's path", text.Word(o.Store), text.Word(o.Dir))
			}
			fmt.Fprintf(w, "`ckptfs mount %s MOUNTPOINT` mounts it%s\n", text.Word(o.Store), onPath)
		}
		fmt.Fprintf(w, "the original is kept, %s: `rm -r %s` removes it, once you need it no more\n",
			text.Printable(o.Original), text.Word(o.Original))
		if len(o.Writers) > 0 {
			fmt.Fprintf(w, "what these programs write from now on is in the original alone: %s\n", strings.Join(o.Writers, ", "))
		}
	})
	if err != nil || len(b.out.Skipped) == 0 {
		return err
	}
	b.named(b.out.Skipped)
	return b.Partial()
}
