package volume

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// survey looks at every stub once after a start. It queues what is not packed and counts the raw copies of what is.
//
// After an unclean end it runs before the first request and repairs: sizes and times of stubs whose writers were cut
// off; caches that may not have reached the disk, when the host was started anew since; raw files whose stub is gone,
// which it moves to lost+found. After a clean end it runs beside the requests and has nothing to repair.
type survey struct {
	v       *Volume
	repair  bool
	newBoot bool
	seen    map[tree.ID]bool
	stop    func() bool

	files, unpacked, dropped, lost int

	blind bool // something could not be looked at, so that nothing may be called lost
}

func (s *survey) run() error {
	if s.repair {
		if err := s.v.content.DropParts(); err != nil {
			return err
		}
	}
	s.dir(s.v.root)
	if !s.repair || s.blind {
		return nil
	}
	return s.v.content.Each(func(id tree.ID, st *unix.Stat_t) error {
		if s.seen[id] {
			return nil
		}
		if st.Size == 0 {
			return s.v.content.Remove(id) // made for a stub that never came, or came with another
		}
		s.lost++
		return os.Rename(s.v.content.Path(id), filepath.Join(s.v.dir, tree.LostFound, id.String()))
	}, nil)
}

// dir looks at what is in dir. What cannot be looked at is reported and passed over: the rest is not to suffer.
func (s *survey) dir(dir *Node) {
	names, err := s.v.list(dir)
	if err != nil {
		s.skip(dir, "", err)
		return
	}
	for _, e := range names {
		if s.stop() {
			s.blind = true
			return
		}
		if e.Name == "." || e.Name == ".." || e.Mode != unix.S_IFDIR && e.Mode != unix.S_IFREG {
			continue
		}
		n, _, err := s.v.child(dir, e.Name)
		if err == unix.ENOENT {
			continue // gone meanwhile
		}
		if err != nil {
			s.skip(dir, e.Name, err)
			continue
		}
		if n.IsDir() {
			s.dir(n)
		} else if n.file != nil {
			if err := s.file(n); err != nil {
				s.skip(dir, e.Name, err)
			}
		}
		s.v.unref(n, 1)
	}
}

func (s *survey) skip(dir *Node, name string, err error) {
	s.blind = true
	s.v.report(slog.LevelError, "could not be looked at", "path", path.Join(s.v.Path(dir), name), "reason", err)
}

func (s *survey) file(n *Node) error {
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	s.files++
	if err := s.v.load(n); err != nil {
		return err
	}
	if s.repair && !f.rec.ID.IsZero() {
		s.seen[f.rec.ID] = true
	}
	switch {
	case f.damaged != nil || !f.resident:
	case !f.rec.Packed():
		if f.writers > 0 || f.dirty {
			return nil // somebody is at it already
		}
		if s.repair {
			s.v.settleStub(n)
		}
		s.unpacked++
		f.dirty = true
		s.v.packer.add(n)
	case s.repair && s.newBoot:
		s.dropped++
		f.resident = false
		return s.v.content.Remove(f.rec.ID)
	default:
		var st unix.Stat_t
		if s.v.content.Stat(f.rec.ID, &st) == nil && f.hot == nil {
			s.v.hot.add(n, st.Size)
		}
	}
	return nil
}

// report says in a line what was repaired, "" for nothing.
func (s *survey) report() string {
	if !s.repair {
		return ""
	}
	return fmt.Sprintf("the store was not closed in order: %d files looked at, %d not packed yet, %d caches dropped, %d raw files without a name moved to %s",
		s.files, s.unpacked, s.dropped, s.lost, tree.LostFound)
}
