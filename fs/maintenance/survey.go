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

// Survey looks at every file once after a start. It queues files that are not packed, and finds out which
// packed files are resident.
//
// After an unclean end it repairs: it finishes transitions that were cut off. If the host was booted since,
// it drops local copies that may not have reached the disk. It runs before the first request then, unless
// this process took a mount over, whose requests do not wait. After a clean end it runs beside the requests,
// too, and has nothing to repair.
type Survey struct {
	Passes *Passes
	Repair bool // the store was not closed in order
	// Unbelieved: no local copy is to be believed, since the host was booted, or the disk did not take
	// something.
	Unbelieved bool
	Stop       func() bool // reports whether it is to end early

	// Files that were looked at; that are not packed; whose local copy was dropped; whose partial local copy
	// was removed.
	files, unpacked, dropped, finished int

	hot []hotFile // with a reference each

	blind bool // it could not look at something
}

// hotFile is a resident packed file.
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

// dir looks at what is in dir. It reports and passes over what it cannot read.
func (s *Survey) dir(dir *names.Node) {
	names, err := dir.ListQuietly()
	if err == unix.ENOENT && dir.Dead() {
		return // gone meanwhile: the mount may be in use
	}
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
			if err := s.file(n); err != nil && !n.Dead() {
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
	p, f := s.Passes, n.File()
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
		if !p.ReadOnly && st.Size > 0 && wantsSum {
			p.Sums.Add(f)
		}
		if settled || st.Size < tree.HeaderSize {
			return nil
		}
		s.unpacked++
		if p.ReadOnly {
			return nil
		}
		f.SetDirtyLocked()
		p.Queue.Add(f)
	case is.Record.Hollow:
		switch {
		case !s.Repair || is.Hydrating || is.InUse: // in use already: a read goes by the manifest
		case st.Blocks*512 > maxHeader:
			s.finished++
			return f.DisbelieveLocked()
		case !f.HeadedLocked(st.Size): // its size has not reached the disk, or a hydration was cut off
			return f.DisbelieveLocked()
		}
	case s.Unbelieved:
		s.dropped++
		return f.DisbelieveLocked()
	default:
		n.Pin()
		s.hot = append(s.hot, hotFile{n, st.Size, st.Atim})
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
	return fmt.Sprintf("the store was not closed in order: %d files looked at, %d not packed yet, "+
		"%d local copies dropped, %d partial ones removed", s.files, s.unpacked, s.dropped, s.finished)
}

// Blind reports whether it could not look at something.
func (s *Survey) Blind() bool { return s.blind }
