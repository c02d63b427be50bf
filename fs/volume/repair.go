package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// The parts of a store that Repair mends.
const (
	RepairIndex    = maintenance.RepairIndex
	RepairSegments = maintenance.RepairSegments
	RepairTree     = maintenance.RepairTree
)

// Repair mends one part of a store that nobody has open. What it cannot use it moves to lost+found; it deletes nothing. It
// may be interrupted and repeated. The error is a *LockedError when the store is mounted.
func Repair(ctx context.Context, part string, o Options, report func(control.Progress)) (*control.Repaired, error) {
	out := &control.Repaired{Part: part, Actions: []control.Action{}}
	if !slices.Contains([]string{RepairIndex, RepairSegments, RepairTree}, part) {
		return nil, fmt.Errorf("there is no %q to repair: index, segments or tree", part)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	lock, err := tree.Acquire(o.Dir, o.Now())
	if err != nil {
		return nil, err
	}
	// As it was found: recovery is Open's.
	err = errors.Join(maintenance.RepairClosed(o.Dir, part, o.Now, out, report), lock.Release(lock.Before.Clean))
	if err != nil {
		return out, err
	}
	v, err := Open(o)
	if err != nil {
		return out, err
	}
	if part == RepairTree {
		err = v.repairTree(ctx, out, report)
	}
	st := v.store.Stats()
	out.Records = st.Chunks.Records + st.Lists.Records + st.Manifests.Records
	return out, errors.Join(err, v.Close(context.WithoutCancel(ctx)))
}

// repairTree mends the files of an open store.
func (v *Volume) repairTree(ctx context.Context, out *control.Repaired, report func(control.Progress)) error {
	r := &treeRepair{v: v, out: out}
	done := 0
	err := v.names.Walk(ctx, func(p string, n *names.Node) error {
		did, lost, err := r.file(n)
		if err != nil {
			return &fs.PathError{Op: "repair", Path: p, Err: err}
		}
		if lost != nil {
			r.lost = append(r.lost, lostFile{p, lost})
		}
		if did != "" {
			out.Actions = append(out.Actions, control.Action{Path: p, Did: did})
		}
		if done++; report != nil {
			report(control.Progress{DoneFiles: done, Current: p})
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Not while the directories are read.
	for _, l := range r.lost {
		to, err := v.moveAside(l.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		out.Actions = append(out.Actions, control.Action{Path: l.path, Did: fmt.Sprintf("moved to %s: %v", maintenance.Rel(v.dir, to), l.err)})
		v.report(slog.LevelWarn, "a file was moved to lost+found", "path", l.path, "reason", l.err)
	}
	return nil
}

type lostFile struct {
	path string
	err  error
}

type treeRepair struct {
	v    *Volume
	out  *control.Repaired
	lost []lostFile
}

// file mends a file and says what it did. lost says why its bytes are not to be had, so that it is to be moved aside.
func (r *treeRepair) file(n *names.Node) (did string, lost, err error) {
	v, f := r.v, n.File()
	f.Lock()
	defer f.Unlock()
	err = f.LoadLocked()
	if err == nil && !f.StateLocked().Packed() {
		err = f.VetLocked()
	}
	if errors.Is(err, unix.ENOENT) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	why := f.StateLocked().Damage
	if errors.Is(why, cas.ErrNewer) {
		return "", nil, nil
	}
	if why != nil {
		h, err := f.HeaderLocked()
		if err != nil {
			return "", why, nil
		}
		// Whatever lies behind the header is to be holes again, of the right size.
		if err := f.WriteRecordLocked(h.Record); err != nil {
			return "", nil, err
		}
		f.MendLocked()
		if err := f.DisbelieveLocked(); err != nil {
			return "", nil, err
		}
		did = "record restored from the file's header"
	}
	is := f.StateLocked()
	if !is.Packed() {
		return did, nil, nil
	}
	m, missing := v.content.Complete(is.Record.Manifest)
	if missing != nil && !is.Record.Hollow && !is.Hydrating {
		// The bytes in place are believed, and now they are all there is.
		if err := f.UnpackLocked(false); err != nil {
			return did, nil, err
		}
		v.queue.Add(f)
		return "kept by its bytes in place, and packed again: " + missing.Error(), nil, nil
	}
	if missing != nil {
		return "", missing, nil
	}
	var st unix.Stat_t
	if err := n.Stat(&st); err != nil {
		return did, nil, err
	}
	if st.Size != m.Size {
		if err := f.DisbelieveLocked(); err != nil {
			return did, nil, err
		}
		return fmt.Sprintf("%d bytes long again, not %d", m.Size, st.Size), nil, nil
	}
	if is.Record.Hollow && !is.Hydrating {
		if h, err := f.HeaderLocked(); err != nil || h.Record.Manifest != is.Record.Manifest || h.Size != st.Size {
			if err := f.DisbelieveLocked(); err != nil {
				return did, nil, err
			}
			if did == "" {
				did = "header written anew"
			}
		}
	}
	return did, nil, nil
}

// moveAside moves a file of the tree to the same path below lost+found/tree, or to the first free name beside that.
func (v *Volume) moveAside(p string) (string, error) {
	from := filepath.Join(v.treePath(), p)
	base := filepath.Join(v.dir, tree.LostFound, tree.TreeDir, p)
	if err := os.MkdirAll(path.Dir(base), 0o700); err != nil {
		return "", err
	}
	to := base
	for i := 1; ; i++ {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		if err == nil {
			return to, v.names.Sync()
		}
		if err != unix.EEXIST {
			return "", &fs.PathError{Op: "move to " + tree.LostFound, Path: p, Err: err}
		}
		to = fmt.Sprintf("%s.%d", base, i)
	}
}
