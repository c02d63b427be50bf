package maintenance

import (
	"cmp"
	"fmt"
	"log/slog"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// Survey looks at every file once after a start. It queues what is not packed and finds the local copies of
// what is.
//
// After an unclean end it runs before the first request and repairs: transitions that were cut off, and bytes
// that may not have reached the disk, when the host was started again since. After a clean end it runs beside
// the requests and has nothing to repair.
type Survey struct {
	Passes  *Passes
	Repair  bool        // the store was not closed in order
	NewBoot bool        // the host was started since
	Stop    func() bool // reports whether it is to end early

	files, unpacked, dropped, finished int

	hot []hotFile // with a reference each

	blind bool // something could not be looked at
}

// hotFile is a packed file that is resident.
type hotFile struct {
	node  *names.Node
	size  int64
	atime unix.Timespec
}

// Run looks at every file. It is called once.
func (s *Survey) Run() {
	s.dir(s.Passes.Names.Root())
	// The list is in the order of last use.
	slices.SortStableFunc(s.hot, func(a, b hotFile) int {
		return cmp.Or(cmp.Compare(a.atime.Sec, b.atime.Sec), cmp.Compare(a.atime.Nsec, b.atime.Nsec))
	})
	for _, h := range s.hot {
		f := h.node.File()
		f.Lock()
		if f.StateLocked().Resident() && !s.Passes.Hot.Knows(f) && !h.node.Dead() {
			s.Passes.Hot.Found(f, h.size)
		}
		f.Unlock()
		h.node.Unpin()
	}
}

// dir looks at what is in dir. What cannot be looked at is reported and passed over: the rest is not to
// suffer.
func (s *Survey) dir(dir *names.Node) {
	names, err := dir.ListQuietly()
	if err != nil {
		s.skip(dir, "", err)
		return
	}
	for _, e := range names {
		if s.Stop() {
			s.blind = true
			return
		}
		if e.Name == "." || e.Name == ".." || e.Mode != unix.S_IFDIR && e.Mode != unix.S_IFREG {
			continue
		}
		n, _, err := s.Passes.Names.Child(dir, e.Name)
		if err == unix.ENOENT {
			continue // gone meanwhile
		}
		if err != nil {
			s.skip(dir, e.Name, err)
			continue
		}
		if n.IsDir() {
			s.dir(n)
		} else if n.File() != nil {
			if err := s.file(n); err != nil {
				s.skip(dir, e.Name, err)
			}
		}
		n.Unpin()
	}
}

func (s *Survey) skip(dir *names.Node, name string, err error) {
	s.blind = true
	s.Passes.Report(slog.LevelError, "could not be looked at", "path", path.Join(dir.Path(), name), "reason", err)
}

func (s *Survey) file(n *names.Node) error {
	ps, f := s.Passes, n.File()
	f.Lock()
	defer f.Unlock()
	s.files++
	if err := f.LoadLocked(); err != nil {
		return err
	}
	is := f.StateLocked()
	if is.Damage != nil {
		return nil
	}
	var st unix.Stat_t
	if err := n.Stat(&st); err != nil {
		return err
	}
	if is.Packed() && !ps.ReadOnly {
		ps.Packed(f)
	}
	switch {
	case !is.Packed():
		if is.Writers > 0 || is.Dirty {
			return nil // a writer or the queue has it already
		}
		settled := content.SumHolds(&is.Record, &st)
		wantsSum := !settled && st.Size < tree.HeaderSize || settled && is.Record.Epoch != ps.Epoch()
		if !ps.ReadOnly && st.Size > 0 && wantsSum {
			ps.Sums.Add(f)
		}
		if settled || st.Size < tree.HeaderSize {
			return nil
		}
		s.unpacked++
		if ps.ReadOnly {
			return nil
		}
		f.SetDirtyLocked()
		ps.Queue.Add(f)
	case is.Record.Hollow:
		switch {
		case !s.Repair:
		case st.Blocks*512 > maxHeader:
			s.finished++
			return f.DisbelieveLocked()
		case !f.HeadedLocked(st.Size): // its size has not reached the disk, or a copy was cut off
			return f.DisbelieveLocked()
		}
	case s.NewBoot:
		s.dropped++
		return f.DisbelieveLocked()
	default:
		n.Pin()
		s.hot = append(s.hot, hotFile{n, st.Size, st.Atim})
	}
	return nil
}

// maxHeader is what a hollow file may take on the disk: a block for its header, of whatever size blocks have.
const maxHeader = 64 << 10

// Repaired says in a line what was repaired, "" for nothing.
func (s *Survey) Repaired() string {
	if !s.Repair {
		return ""
	}
	return fmt.Sprintf("the store was not closed in order: %d files looked at, %d not packed yet, %d caches dropped, %d half-made caches removed",
		s.files, s.unpacked, s.dropped, s.finished)
}

// Blind reports whether something could not be looked at.
func (s *Survey) Blind() bool { return s.blind }
