package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Survey looks at every file once after a start. It queues files that are not packed, and finds out which
// packed files are resident. As many goroutines look as there are processors; beside requests, all but one as
// long as other programs leave processors idle.
//
// After an unclean end it repairs: it finishes transitions that were cut off. It runs beside requests: what a
// kill cut off is read by its manifest. If the host was booted since, or the disk did not take something, it
// drops local copies that may be wrong, and runs before the first request. After a clean end it runs beside
// the requests, too, and has nothing to repair.
type Survey struct {
	Passes *Passes
	Repair bool // the store was not closed in order
	// Unbelieved: no local copy is to be believed, since the host was booted, or the disk did not take
	// something.
	Unbelieved bool
	Still      bool        // nothing is packed in the background: what is not packed is not noted
	Stop       func() bool // reports whether it is to end early

	// Files that were looked at; that are not packed; whose local copy was dropped; whose partial local copy
	// was removed.
	files, unpacked, dropped, finished atomic.Int64

	blind, ended atomic.Bool // it could not look at something; it is over
}

// errStopped: the survey is to end early.
var errStopped = errors.New("stopped")

// Run looks at every file. It is called once.
func (s *Survey) Run() {
	defer s.ended.Store(true)
	defer s.Passes.Queue.Settle()
	t := s.Passes.with(s.look)
	if s.Repair {
		t.Turn = nil
	}
	t.Failed = func(dir *names.Node, path string, err error) error {
		if err != unix.ENOENT || !dir.Dead() { // else it is gone meanwhile: the mount may be in use
			s.skip(path, err)
		}
		return nil
	}
	if s.Passes.Names.Tour(context.Background(), t) != nil {
		s.blind.Store(true)
	}
}

// look looks at a file. It reports and passes over one that it cannot look at.
func (s *Survey) look(path string, n *names.Node, st *unix.Stat_t) error {
	if s.Stop() {
		return errStopped
	}
	if err := s.file(n, st); err != nil && !n.Dead() {
		s.skip(path, err)
	}
	return nil
}

func (s *Survey) skip(path string, err error) {
	s.blind.Store(true)
	s.Passes.Report(slog.LevelError, "could not be looked at", "path", path, "reason", err)
}

func (s *Survey) file(n *names.Node, found *unix.Stat_t) error {
	p, f := s.Passes, n.File()
	f.Lock()
	defer f.Unlock()
	s.files.Add(1)
	if err := f.LoadLocked(); err != nil {
		return err
	}
	is := f.StateLocked()
	if is.Damage != nil {
		return nil
	}
	st, err := asFound(n, found)
	if err != nil {
		return err
	}
	if is.Packed() && !p.ReadOnly {
		p.Packed(f)
	}
	if is.Record.Lost && !p.ReadOnly {
		p.Queue.FoundLost(f)
	}
	switch {
	case !is.Packed():
		if is.Writers > 0 || is.Dirty {
			return nil // a program writes it, or it is queued
		}
		settled := content.SumHolds(&is.Record, &st)
		wantsSum := !settled && st.Size < tree.HeaderSize || settled && is.Record.Epoch != p.Epoch()
		noted := !p.ReadOnly && !s.Still
		if noted && st.Size > 0 && wantsSum {
			p.Sums.Add(f)
		}
		if settled || st.Size < tree.HeaderSize {
			return nil
		}
		s.unpacked.Add(1)
		if !noted {
			return nil
		}
		f.SetDirtyLocked()
		p.Queue.Found(f, st.Mtim.Nano())
	case is.Record.Hollow:
		switch {
		case !s.Repair || is.Hydrating || is.InUse: // in use already: a read goes by the manifest
		case st.Blocks*512 > maxHeader:
			s.finished.Add(1)
			return f.DisbelieveLocked()
		case !f.HeadedLocked(st.Size): // its size has not reached the disk, or a hydration was cut off
			return f.DisbelieveLocked()
		}
	case s.Unbelieved:
		s.dropped.Add(1)
		return f.DisbelieveLocked()
	case !n.Dead():
		p.Hot.Found(f, st.Size, st.Atim.Nano())
	}
	return nil
}

// maxHeader bounds what a hollow file takes on the disk: one block for its header, of any usual size.
const maxHeader = 64 << 10

// Repaired is a line about what was repaired; "" for nothing.
func (s *Survey) Repaired() string {
	if !s.Repair {
		return ""
	}
	far := ""
	if !s.ended.Load() {
		far = " so far"
	}
	return fmt.Sprintf("the store was not closed in order: %d files looked at%s, %d not packed yet, "+
		"%d local copies dropped, %d partial ones removed",
		s.files.Load(), far, s.unpacked.Load(), s.dropped.Load(), s.finished.Load())
}

// Looked is how many files it has come to.
func (s *Survey) Looked() int64 { return s.files.Load() }

// Blind reports whether it could not look at something.
func (s *Survey) Blind() bool { return s.blind.Load() }
