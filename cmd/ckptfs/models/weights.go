package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/fs/view"
)

// unchanged is an error if a file was written to, or replaced.
func unchanged(root *os.Root, rel string, was os.FileInfo) error {
	now, err := root.Lstat(rel)
	if err == nil && (now.ModTime() != was.ModTime() || now.Size() != was.Size() || !os.SameFile(now, was)) {
		err = fmt.Errorf("%s was written to meanwhile", rel)
	}
	return err
}

// writeIn makes a file of weights that has the times and the owner of the checkpoint, and these attributes.
// made is false if it is there already, as an interrupted command leaves it. What an interruption leaves
// otherwise lies in the run's folder, not in the step, and is removed as what rundir leaves.
func writeIn(ctx context.Context, root *os.Root, rel string, src io.ReaderAt, st os.FileInfo, plan *view.View,
	attrs map[string][]byte) (made bool, err error) {
	if _, err := root.Lstat(rel); !errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(err, canHave(ctx, root, rel, src, plan)); err != nil {
			return false, err
		}
		return false, asMade(root, rel, st, attrs)
	}
	aside := fmt.Sprintf("%s%016x", rundir.Forgotten, rand.Uint64())
	tmp, err := root.OpenFile(aside, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer func() {
		tmp.Close()
		err = errors.Join(err, root.Remove(aside))
	}()
	err = eachPart(ctx, plan, src, func(p []byte, off int64) error {
		_, err := tmp.WriteAt(p, off)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := asOwned(tmp, st); err != nil {
		return false, err
	}
	for name, value := range attrs {
		if err := unix.Fsetxattr(int(tmp.Fd()), name, value, 0); err != nil {
			return false, fmt.Errorf("its attribute %s: %w", name, err)
		}
	}
	if err := errors.Join(tmp.Chmod(st.Mode().Perm()), tmp.Sync(), tmp.Close()); err != nil {
		return false, err
	}
	if err := root.Chtimes(aside, time.Time{}, st.ModTime()); err != nil {
		return false, err
	}
	if err := root.Link(aside, rel); err != nil { // which replaces nothing
		return false, err
	}
	if err := syncDir(root, path.Dir(rel)); err != nil {
		return false, errors.Join(err, root.Remove(rel))
	}
	return true, nil
}

func syncDir(root *os.Root, rel string) error {
	dir, err := root.Open(rel)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// asMade has a file of weights that was there be as durable as one that was made, and have the time and the
// attributes of the checkpoint that it lacks.
func asMade(root *os.Root, rel string, st os.FileInfo, attrs map[string][]byte) error {
	f, err := openThere(root, rel)
	if f == nil || err != nil {
		return errors.Join(errOther, err)
	}
	defer f.Close()
	for name, value := range attrs {
		err := unix.Fsetxattr(int(f.Fd()), name, value, unix.XATTR_CREATE)
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("its attribute %s: %w", name, err)
		}
	}
	if err := root.Chtimes(rel, time.Time{}, st.ModTime()); err != nil {
		return err
	}
	return errors.Join(f.Sync(), syncDir(root, path.Dir(rel)))
}

var errOther = errors.New("there is another file of the name that its weights would have: " +
	"move it away first")

// openThere opens the file that has the name of the weights; nil: there is none. A link is another file,
// since what it leads to may go.
func openThere(root *os.Root, rel string) (*os.File, error) {
	st, err := root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errOther
	}
	return openIn(root, rel)
}

// openIn opens a file for reading, and no link.
func openIn(root *os.Root, rel string) (*os.File, error) {
	return root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // a FIFO would wait
}

// canHave is an error if another file has the name of the weights: what writeIn would say.
func canHave(ctx context.Context, root *os.Root, rel string, src io.ReaderAt, plan *view.View) error {
	there, err := openThere(root, rel)
	if there == nil || err != nil {
		return err
	}
	return errors.Join(sameAsPlan(ctx, there, src, plan), there.Close())
}

// asOwned gives a file the owner and the group of another one.
func asOwned(f *os.File, st os.FileInfo) error {
	var is unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return err
	}
	of := ownerOf(st)
	if is.Uid == of.Uid && is.Gid == of.Gid {
		return nil
	}
	return f.Chown(int(of.Uid), int(of.Gid))
}

// eachPart calls do with the bytes of a view, in order.
func eachPart(ctx context.Context, plan *view.View, src io.ReaderAt,
	do func(p []byte, off int64) error) error {
	buf := make([]byte, 4<<20)
	for off := int64(0); off < plan.Size(); {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := plan.ReadAt(src, buf[:min(int64(len(buf)), plan.Size()-off)], off)
		if n == 0 {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if err := do(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// sameAsPlan is an error unless a file has the bytes of a view.
func sameAsPlan(ctx context.Context, f *os.File, src io.ReaderAt, plan *view.View) error {
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() != plan.Size() {
		return errors.Join(errOther, err)
	}
	got := make([]byte, 4<<20)
	return eachPart(ctx, plan, src, func(p []byte, off int64) error {
		if _, err := f.ReadAt(got[:len(p)], off); err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(got[:len(p)], p) {
			return errOther
		}
		return nil
	})
}
