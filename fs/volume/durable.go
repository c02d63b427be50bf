package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// syncEvery is how often the kernel is asked what of local copies it could not write, while some came since
// the last time. By then it has written most of them by itself.
const syncEvery = time.Minute

// durability makes everything durable, at the end and for the command sync, and asks the kernel now and then
// what it could not write.
type durability struct {
	v     *Volume
	every time.Duration // between two looks
	quit  chan struct{}
	end   sync.WaitGroup

	// ofBefore is syncfs(2) by the descriptor that the store's lock is held by, which was open before this
	// process was: it is told of what the kernel told others since, or an earlier process that did not come
	// to act on it. The first sync asks by it, too. nil: it was asked, or no mount was taken over.
	ofBefore atomic.Pointer[func() error]

	told    atomic.Int64          // failures that were known at the last one
	failed  atomic.Pointer[error] // the first one
	unnamed atomic.Pointer[error] // the first one that no file tells of
}

// syncTree makes everything durable. After an error no local copy is believed that is not known to be
// durable, and each file is asked whether it is the one that was not written. Nothing else calls syncfs: it
// would take the error away.
func (s *durability) syncTree() (err error) {
	known := false
	s.v.content.SyncAll(func() (err error) {
		err, known = s.syncfs()
		return err
	}, func(failed error) { err = s.synced(failed, known) })
	return err
}

// syncfs is syncfs(2) of the store's filesystem. known: an earlier process was told of an error, too, and has
// named the files, or left what to say of it (takeDoubt).
func (s *durability) syncfs() (err error, known bool) {
	err = s.v.names.SyncTree()
	if ask := s.ofBefore.Swap(nil); ask != nil {
		if before := (*ask)(); before != nil && err == nil {
			return before, s.v.lock.Before.Failed
		}
	}
	return err, false
}

// synced acts on the error of a sync of the filesystem, nil if there is none, and returns it with what more
// there is to say. known: somebody has said what it means.
func (s *durability) synced(err error, known bool) error {
	v, before := s.v, s.told.Load()
	if err == nil {
		nodes{v.names}.eachFile(v.content.Settled)
		s.told.Store(s.failuresKnown())
		return nil
	}
	v.content.Doubt.Store(true)
	if !known { // until it is; a kill may come before
		s.noteInLock(s.unnamedBy(fmt.Errorf("the disk did not take all that was written: %w", err)))
	}
	v.report(slog.LevelError, "the disk did not take all that was written; look for the cause in the kernel's log", "reason", err)
	err = fmt.Errorf("the disk did not take all that was written: %w", err)
	s.failed.CompareAndSwap(nil, &err)
	known = s.failuresKnown() > before || known
	if werr := v.names.Walk(context.Background(), func(_ string, n *names.Node) error {
		f := n.File()
		f.Lock()
		err := f.LoadLocked()
		packed := f.StateLocked().Packed()
		f.Unlock()
		switch {
		case err != nil:
		case packed:
			known = v.content.NotWritten(f) || known
		default:
			known = f.Sync() != nil || known
		}
		return nil
	}); werr != nil {
		err = errors.Join(err, werr)
	}
	nodes{v.names}.eachFile(func(f *content.File) { v.content.Suspect(f, err) })
	s.told.Store(s.failuresKnown())
	if !known { // else those are named, or tried again
		s.noteUnnamed(err)
	}
	s.noteInLock(s.unnamed.Load())
	return err
}

// noteInLock has the next process know of it, too. unnamed may be nil.
func (s *durability) noteInLock(unnamed *error) {
	doubt := ""
	if unnamed != nil {
		doubt = (*unnamed).Error()
	}
	if err := s.v.lock.NotTaken(doubt); err != nil {
		s.v.report(slog.LevelWarn, "after a power cut it will not be known that the disk did not take something", "reason", err)
	}
}

// errToldBefore: an earlier process was told.
var errToldBefore = errors.New("the disk did not take all that was written")

// takeDoubt takes over what an earlier process left that did not end in its order. It may have ended before
// it had rejected what the disk did not take.
func (s *durability) takeDoubt(before tree.Holder) {
	if !before.Failed {
		return
	}
	s.v.content.Doubt.Store(true)
	err := errToldBefore
	if before.Doubt != "" {
		err = errors.New(before.Doubt)
		s.unnamed.Store(&err)
	}
	s.failed.Store(&err)
}

// syncNames makes durable every name and record.
func (s *durability) syncNames() error {
	if s.v.content.Missed() {
		return s.syncTree()
	}
	if err := s.v.sharing.sync(); err != nil {
		return err
	}
	all := false
	err := s.v.names.Sync(func() error { all = true; return s.syncTree() })
	if err != nil && !all {
		s.namesNotWritten(err)
	}
	return err
}

// noteUnnamed has every sync fail from now on, for something that no file tells of.
func (s *durability) noteUnnamed(err error) { s.unnamed.Store(s.unnamedBy(err)) }

// unnamedBy is what there is to say if no file tells of an error: what was said already.
func (s *durability) unnamedBy(err error) *error {
	if before := s.unnamed.Load(); before != nil {
		return before
	}
	err = fmt.Errorf("at %s %w, and no file tells of it: what was written before may be wrong; look for the cause in the kernel's log, check what was saved, and mount again",
		s.v.now().Format(time.DateTime), err)
	return &err
}

// namesNotWritten notes that names or records are not on the disk. They are not lost for this
// process: the next start has to look at every file.
func (s *durability) namesNotWritten(err error) {
	s.v.content.Doubt.Store(true)
	s.v.report(slog.LevelError, "the disk did not take names of files; look for the cause in the kernel's log", "reason", err)
	err = fmt.Errorf("the disk did not take names of files: %w", err)
	s.failed.CompareAndSwap(nil, &err)
	s.noteUnnamed(err)
	s.noteInLock(s.unnamed.Load())
}

// failuresKnown counts what explains that the disk says it could not write something: files of which it is
// known, and packing that failed, but not for want of room before anything was written.
func (s *durability) failuresKnown() int64 {
	c := &s.v.content.Count
	return c.NotWritten.Load() + c.PackErrs.Load() - c.RoomErrs.Load()
}

// losses are the files that may have lost bytes, by path, and how many more there are.
func (s *durability) losses() (all []control.Failure, more int) {
	all = failures(func(f func(*content.File, error, time.Time, int)) { more = s.v.queue.Losses(f) })
	return all, more
}

// loss is what the disk did not take, as Status has it.
func (s *durability) loss() *control.Loss {
	all, more := s.losses()
	l := &control.Loss{Files: all, More: more}
	if e := s.unnamed.Load(); e != nil {
		l.Other = (*e).Error()
	} else if len(all)+more == 0 {
		return nil
	}
	return l
}

// lost names a file that may have lost bytes; nil when there is none.
func (s *durability) lost() error {
	all, more := s.losses()
	var errs []error
	if e := s.unnamed.Load(); e != nil {
		errs = append(errs, *e)
	}
	switch {
	case len(all) > 0:
		others := ""
		if n := len(all) - 1 + more; n > 0 {
			others = fmt.Sprintf("; so it is with %d more, which `ckptfs status` names", n)
		}
		errs = append(errs, fmt.Errorf("%s may have lost bytes, for the disk did not take all that was written to it: %s (write it again, or remove it%s)",
			all[0].Path, all[0].Reason, others))
	case more > 0:
		errs = append(errs, fmt.Errorf("%d files may have lost bytes, for the disk did not take all that was written to them; the log names them: write them again, or remove them", more))
	}
	return errors.Join(errs...)
}

// finish makes durable what was written since the start, at its end. The error says that not all is.
func (s *durability) finish() error {
	if s.v.content.Unsynced() || s.v.hot.Grew.Load() || s.ofBefore.Load() != nil {
		// A clean end says that local copies can be believed after a boot too.
		if err := s.syncTree(); err != nil {
			return errors.Join(err, s.lost())
		}
	}
	err := s.lost()
	if e := s.failed.Load(); e != nil && err == nil {
		err = fmt.Errorf("%w; the next start looks at every file", *e)
	}
	return err
}

// start asks the kernel now and then, until stop.
func (s *durability) start() {
	s.quit = make(chan struct{})
	s.end.Go(func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-s.quit:
				return
			case <-tick.C:
				if s.v.content.Unsynced() || s.ofBefore.Load() != nil {
					s.syncTree()
				}
			}
		}
	})
}

func (s *durability) stop() {
	if s.quit != nil {
		close(s.quit)
	}
	s.end.Wait()
}
