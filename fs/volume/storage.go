package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/proven"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
	"ckptfs/fs/policy/live"
	"ckptfs/fs/queue"
	"ckptfs/fs/tree"
	"ckptfs/index/anchors"
	"ckptfs/index/chunks"
)

// storage is a store's folder on the disk, and the parts that read and write it below the tree.
type storage struct {
	folder   *disk.Folder // kept open, for all that is done in it
	readOnly bool
	now      func() time.Time
	report   func(level slog.Level, msg string, args ...any)

	id      [16]byte
	lock    *tree.Lock
	rules   *live.Live
	reserve *queue.Reserve
	index   *chunks.DB
	anchors *anchors.Index // nil: there is none
	store   *store.Store
	known   *proven.Known
	reads   *reads
	asm     *assemble.Reader

	watch func(*chunks.DB) store.Locator // returns the index for the store to use
}

// open opens the index and the segments. The caller closes it after an error, too.
func (s *storage) open(o Options, watch func(*chunks.DB) store.Locator) error {
	s.watch = watch
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCache
	}
	var err error
	s.index, err = chunks.Open(s.folder.Join(tree.IndexFile), chunks.Options{
		StoreID: s.id, ReadOnly: s.readOnly, Folder: s.folder, Aside: s.folder.Join(tree.LostFound),
	})
	if err != nil {
		return s.unready(err)
	}
	if r := s.index.Recovered(); r != "" {
		s.report(slog.LevelWarn, "index rebuilt from the segments", "reason", r)
	}
	var files disk.FS = s.folder
	opt := store.Options{NewIndex: s.newIndex, Now: s.now, Room: s.reserve.Room, MakeRoom: s.reserve.MakeRoom}
	if s.readOnly {
		files = disk.ReadOnly{FS: files}
		opt = store.Options{ReadOnly: true, Now: s.now}
	}
	s.known = proven.New(s.spill())
	opt.Known = s.known
	opt.ExpectBytes, opt.Spill = o.ExpectBytes, s.spill()
	opt.Untrusted = o.Untrusted || o.Foreign || !s.lock.AtHome(s.folder)
	opt.Verified = s.verified
	opt.Unreadable = func(n uint32, err error) {
		s.report(slog.LevelError, "a segment cannot be read: the files that need it are damaged, the others are not; "+
			"see `ckptfs check`", "segment", n, "reason", err)
	}
	s.store, err = store.Open(files, s.folder.Join(tree.SegmentsDir), s.id, watch(s.index), opt)
	if err != nil {
		return s.unready(err)
	}
	if opt.Untrusted && s.store.Stats().Segments > 0 {
		s.report(slog.LevelInfo, "reads compare BLAKE3, which takes longer: the store is not known to lie where all of it was checked; "+
			"`ckptfs check --read-data` ends that")
	}
	s.openAnchors()
	s.reads = &reads{local: s.store}
	s.asm = assemble.New(s.reads, assemble.Options{CacheBytes: o.CacheBytes, Mapped: o.Mapped})
	return nil
}

// openAnchors opens the index of anchors. What is found with its help is not needed.
func (s *storage) openAnchors() {
	if s.readOnly {
		return
	}
	var err error
	s.anchors, err = anchors.Open(s.folder, s.folder.Join(tree.AnchorsDir), anchors.Options{
		Store: s.id, Alive: func(m cas.Hash) bool {
			var at [1]cas.Location
			return s.store.Locate([]cas.Hash{m}, at[:]) != nil || at[0].Segment != 0
		},
	})
	if err != nil {
		s.report(slog.LevelWarn, "tensors of other names are not found", "reason", err)
	}
}

// spill is where tables lie that take much memory; nil: there is none, for nothing is written.
func (s *storage) spill() *disk.Folder {
	if s.readOnly {
		return nil
	}
	return s.folder
}

// verified notes that all that the store holds is whole where it lies.
func (s *storage) verified() {
	if err := s.lock.SetHome(s.folder); err != nil {
		s.report(slog.LevelWarn, "reads stay slower: it could not be noted that the store is whole", "reason", err)
	}
}

// close closes what is open; the lock stays.
func (s *storage) close() error {
	var errs []error
	if s.asm != nil {
		s.asm.Close()
		errs = append(errs, s.reads.close())
	}
	if s.anchors != nil {
		errs = append(errs, s.anchors.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.index != nil {
		errs = append(errs, s.index.Close())
	}
	return errors.Join(errs...)
}

func acquire(folder *disk.Folder, o Options) (*tree.Lock, error) {
	switch {
	case o.Lock != nil && o.ReadOnly:
		return tree.InheritShared(folder, o.Lock)
	case o.Lock != nil:
		return tree.Inherit(folder, o.Now(), o.Lock)
	case o.ReadOnly:
		return tree.AcquireShared(folder)
	}
	return tree.Acquire(folder, o.Now())
}

// LockFd is the descriptor that the store's lock is held by. As long as a process has it no other one can
// open the store.
func (s *storage) LockFd() int { return s.lock.Fd() }

// newIndex puts a damaged index aside; the store fills the new one.
func (s *storage) newIndex(reason error) (store.Locator, error) {
	err := s.index.Renew(reason)
	s.report(slog.LevelWarn, "index rebuilt from the segments", "reason", s.index.Recovered())
	return s.watch(s.index), err
}

// unready is the error of an open that failed: it wraps ErrNeedsRecovery if an open for writing would mend
// the store.
func (s *storage) unready(err error) error {
	if !s.readOnly {
		return err
	}
	if errors.Is(err, chunks.ErrOlder) {
		return olderError{fmt.Errorf("%s: the index is of an earlier version of ckptfs: mount the store once for "+
			"writing, which makes it again (%w)", s.folder.Path(), err)}
	}
	mended := []error{store.ErrNeedsRecovery, store.ErrIndexAhead, cas.ErrCorrupt, fs.ErrNotExist}
	for _, m := range mended {
		if errors.Is(err, m) {
			return fmt.Errorf("%s: %w (%w)", s.folder.Path(), ErrNeedsRecovery, err)
		}
	}
	return err
}

// olderError is an ErrNeedsRecovery in other words: the store was closed in order.
type olderError struct{ error }

func (e olderError) Is(target error) bool { return target == ErrNeedsRecovery }
func (e olderError) Unwrap() error        { return e.error }

// empty reports whether no name is in the tree.
func (s *storage) empty() bool {
	dir, err := s.folder.OpenDir(tree.TreeDir)
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}
