package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
)

// RepairTree mends the files of an open store, and adds to out what it did.
func (p *Passes) RepairTree(ctx context.Context, out *control.Repaired, report func(control.Progress)) error {
	r := &treeRepair{passes: p, out: out}
	done := 0
	err := p.Names.Walk(ctx, func(path string, n *names.Node) error {
		did, lost, err := r.file(n)
		if err != nil {
			return &fs.PathError{Op: "repair", Path: path, Err: err}
		}
		if lost != nil {
			r.lost = append(r.lost, lostFile{path, lost})
		}
		if did != "" {
			out.Actions = append(out.Actions, control.Action{Path: path, Did: did})
		}
		if done++; report != nil {
			report(control.Progress{DoneFiles: done, Current: path})
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The lost files move now, when no directory is being read.
	for _, l := range r.lost {
		to, err := moveAside(p.Folder, p.Names.RootFd(), l.path)
		if err == nil {
			err = p.SyncNames()
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		did := fmt.Sprintf("moved to %s: %v", Rel(p.Folder, to), l.err)
		out.Actions = append(out.Actions, control.Action{Path: l.path, Did: did})
		p.Report(slog.LevelWarn, "a file was moved to lost+found", "path", l.path, "reason", l.err)
	}
	return nil
}

type lostFile struct {
	path string
	err  error
}

type treeRepair struct {
	passes *Passes
	out    *control.Repaired
	lost   []lostFile
}

// file mends a file and returns what it did. lost is why the file's bytes cannot be read: then it is to be
// moved to lost+found.
func (r *treeRepair) file(n *names.Node) (did string, lost, err error) {
	p, f := r.passes, n.File()
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
		if err := f.RestoreLocked(h.Record); err != nil {
			return "", nil, err
		}
		did = "record restored from the file's header"
	}
	is := f.StateLocked()
	if !is.Packed() {
		return did, nil, nil
	}
	if is.Record.Remote {
		mended, err := r.remoteLocked(n, is)
		return cmp.Or(mended, did), nil, err
	}
	m, missing := p.Files.Complete(is.Record.Manifest)
	if missing != nil && !is.Record.Hollow && !is.Hydrating {
		// The local copy is all there is. It is believed.
		if err := f.UnpackLocked(false); err != nil {
			return did, nil, err
		}
		p.Queue.Add(f)
		return "its local copy is kept, and packed again: " + missing.Error(), nil, nil
	}
	if missing != nil {
		return "", missing, nil
	}
	mended, err := sizeLocked(n, is, m.Size)
	return cmp.Or(mended, did), nil, err
}

// sizeLocked mends a packed file that has another size than its manifest says, or, being hollow, no right
// header.
func sizeLocked(n *names.Node, is content.State, size int64) (did string, err error) {
	var st unix.Stat_t
	if err := n.Stat(&st); err != nil {
		return "", err
	}
	f := n.File()
	if st.Size != size {
		return fmt.Sprintf("%d bytes long again, not %d", size, st.Size), f.DisbelieveLocked()
	}
	if !is.Record.Hollow || is.Hydrating {
		return "", nil
	}
	h, err := f.HeaderLocked()
	if err == nil && h.Record.Manifest == is.Record.Manifest && h.Size == size {
		return "", nil
	}
	return "header written again", f.DisbelieveLocked()
}
