package fusefs

import (
	"context"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// node is the node of an id that the kernel gave; nil if an earlier process gave the id to the kernel, and
// what it stood for cannot be found any more.
func (s *Server) node(id uint64) *names.Node { return s.v.Names().Get(content.NodeID(id)) }

// Lookup finds a name. That there is none is cached too, but for names that a view may get, and below
// .ckptfs. Who makes something new finds no view.
func (s *Server) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	ctx := context.Background()
	if dir.IsVirtual() { // may take a while
		var stop context.CancelFunc
		ctx, stop = s.until(cancel)
		defer stop()
	}
	n, a, err := s.v.Lookup(ctx, caller(in), dir, name)
	if err != nil {
		st := s.status(err)
		if st == fuse.ENOENT && !strings.HasSuffix(name, ".safetensors") && !dir.IsVirtual() {
			out.NodeId = 0
			out.SetEntryTimeout(forever)
			return fuse.OK
		}
		return st
	}
	if n.IsView() && s.makes(in.Pid, name) {
		n.Unpin() // no answer names it to the kernel
		return fuse.ENOENT
	}
	s.fillEntry(out, n, &a)
	return fuse.OK
}

// Forget gives back references.
func (s *Server) Forget(id, nlookup uint64) { s.v.Names().Forget(content.NodeID(id), nlookup) }

// GetAttr is stat.
func (s *Server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	a, err := n.Attr()
	if err != nil {
		return s.status(err)
	}
	fillAttrOut(out, &a)
	return fuse.OK
}

// SetAttr is chmod, chown, utimes and truncate.
func (s *Server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	a, err := s.v.Setattr(n, setAttrOf(in))
	if err != nil {
		return s.status(err)
	}
	fillAttrOut(out, &a)
	return fuse.OK
}

// entry answers an operation that made a name.
func (s *Server) entry(out *fuse.EntryOut, n *names.Node, a tree.Attr, err error) fuse.Status {
	if err != nil {
		return s.status(err)
	}
	s.fillEntry(out, n, &a)
	return fuse.OK
}

// making is a request that makes a name, done by do. What an earlier process began is undone, and done from
// the start: it may have made the name and not its owner or mode, and its caller has not seen it yet.
func (s *Server) making(in *fuse.InHeader, dir *names.Node, name string, out *fuse.EntryOut,
	do func() (*names.Node, tree.Attr, error)) fuse.Status {
	return s.once(in, change{
		// Not a view's number: a view gives way.
		before: handover.Entry{Dir: in.NodeId, Name: name, Ino: s.v.Names().InoAt(dir, name)},
		happened: func(before handover.Entry) bool {
			s.unmake(dir, before)
			return false
		},
		do: func() fuse.Status {
			n, a, err := do()
			return s.entry(out, n, a, err)
		},
		answer: func() fuse.Status {
			n, a, err := s.v.Lookup(context.Background(), caller(in), dir, name)
			return s.entry(out, n, a, err)
		},
	})
}

// unmake removes a name that was not there before.
func (s *Server) unmake(dir *names.Node, before handover.Entry) {
	if before.Ino != 0 || s.v.Names().InoAt(dir, before.Name) == 0 {
		return
	}
	for _, flag := range []int{0, unix.AT_REMOVEDIR} {
		t, err := s.v.Names().Remove(dir, before.Name, flag)
		t.Spare()
		if err != unix.EISDIR {
			break
		}
	}
}

// inoAt is the number of the inode, or of the synthesised file, that a name leads to; 0 if it leads to none.
func (s *Server) inoAt(by *fuse.InHeader, dir *names.Node, name string) uint64 {
	if dir.Synth() == nil {
		if ino := s.v.Names().InoAt(dir, name); ino != 0 {
			return ino
		}
	}
	n, _, err := s.v.Lookup(context.Background(), caller(by), dir, name)
	if err != nil {
		return 0
	}
	defer n.Unpin()
	return n.Ino()
}

// Mknod makes a file that is not opened.
func (s *Server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	return s.making(&in.InHeader, dir, name, out, func() (*names.Node, tree.Attr, error) {
		return s.v.Mknod(dir, name, in.Mode, in.Rdev, caller(&in.InHeader))
	})
}

// Mkdir makes a directory.
func (s *Server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	return s.making(&in.InHeader, dir, name, out, func() (*names.Node, tree.Attr, error) {
		return s.v.Mkdir(dir, name, in.Mode, caller(&in.InHeader))
	})
}

// Symlink makes a symbolic link.
func (s *Server) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	return s.making(in, dir, name, out, func() (*names.Node, tree.Attr, error) {
		return s.v.Symlink(dir, name, target, caller(in))
	})
}

// Link makes a hard link.
func (s *Server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n, dir := s.node(in.Oldnodeid), s.node(in.NodeId)
	if n == nil || dir == nil {
		return errStale
	}
	there := func() uint64 { return s.v.Names().InoAt(dir, name) }
	return s.once(&in.InHeader, change{
		before:   handover.Entry{Dir: in.NodeId, Name: name, Ino: n.Ino(), Ino2: there()},
		happened: func(was handover.Entry) bool { return was.Ino2 == 0 && there() == was.Ino },
		do: func() fuse.Status {
			a, err := s.v.Link(n, dir, name)
			return s.entry(out, n, a, err)
		},
		answer: func() fuse.Status {
			n, a, err := s.v.Lookup(context.Background(), caller(&in.InHeader), dir, name)
			return s.entry(out, n, a, err)
		},
	})
}

// ok answers a request whose answer says nothing more.
func ok() fuse.Status { return fuse.OK }

// Unlink removes a name.
func (s *Server) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.removing(in, name, s.v.Unlink)
}

// Rmdir removes an empty directory.
func (s *Server) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.removing(in, name, s.v.Rmdir)
}

func (s *Server) removing(in *fuse.InHeader, name string, do func(*names.Node, string) error) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return errStale
	}
	return s.once(in, change{
		before: handover.Entry{Dir: in.NodeId, Name: name, Ino: s.inoAt(in, dir, name)},
		happened: func(before handover.Entry) bool {
			if before.Ino == 0 || s.inoAt(in, dir, name) == before.Ino {
				return false
			}
			s.v.Removed(dir, name)
			return true
		},
		do:     func() fuse.Status { return s.status(do(dir, name)) },
		answer: ok,
	})
}

// Rename moves a name.
func (s *Server) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	from, to := s.node(in.NodeId), s.node(in.Newdir)
	if from == nil || to == nil {
		return errStale
	}
	moves := func() uint64 { return s.inoAt(&in.InHeader, from, oldName) }
	return s.once(&in.InHeader, change{
		before: handover.Entry{
			Dir: in.NodeId, Name: oldName, Ino: moves(),
			Dir2: in.Newdir, Name2: newName, Ino2: s.inoAt(&in.InHeader, to, newName), Arg: uint64(in.Flags),
		},
		happened: func(before handover.Entry) bool {
			// Of two names of one inode nothing is moved, however often.
			if before.Ino == 0 || before.Ino == before.Ino2 || moves() == before.Ino {
				return false
			}
			if in.Flags&(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) == 0 {
				s.v.Removed(from, oldName)
			}
			return true
		},
		do:     func() fuse.Status { return s.status(s.v.Rename(from, oldName, to, newName, in.Flags)) },
		answer: ok,
	})
}

// Readlink reads a symbolic link.
func (s *Server) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n := s.node(in.NodeId)
	if n == nil {
		return nil, errStale
	}
	target, err := n.ReadlinkFor(caller(in))
	return []byte(target), s.status(err)
}

// GetXAttr reads an attribute.
func (s *Server) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string,
	dest []byte) (uint32, fuse.Status) {
	ctx := context.Background()
	if name == volume.XattrArtifact { // may take a while
		var stop context.CancelFunc
		ctx, stop = s.until(cancel)
		defer stop()
	}
	n := s.node(in.NodeId)
	if n == nil {
		return 0, errStale
	}
	k, err := s.v.GetXattr(ctx, n, name, dest)
	return uint32(max(k, 0)), s.status(err)
}

// ListXAttr lists attributes.
func (s *Server) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	n := s.node(in.NodeId)
	if n == nil {
		return 0, errStale
	}
	k, err := s.v.ListXattr(n, dest, caller(in).Admin)
	return uint32(max(k, 0)), s.status(err)
}

// SetXAttr sets an attribute.
func (s *Server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	do := func() fuse.Status { return s.status(s.v.SetXattr(n, name, value, int(in.Flags))) }
	if in.Flags == 0 {
		return do()
	}
	return s.once(&in.InHeader, change{
		before: handover.Entry{Dir: in.NodeId, Name: name, Arg: s.hasXattr(n, name)},
		happened: func(before handover.Entry) bool {
			if before.Arg != 0 || in.Flags&unix.XATTR_CREATE == 0 {
				return false // it fails again, or may be done again
			}
			return s.hasXattr(n, name) != 0
		},
		do: do, answer: ok,
	})
}

// hasXattr is 1 if a node has an attribute, else 0.
func (s *Server) hasXattr(n *names.Node, name string) uint64 {
	if _, err := n.GetXattr(name, nil); err != nil {
		return 0
	}
	return 1
}

// RemoveXAttr removes an attribute.
func (s *Server) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	return s.once(in, change{
		before:   handover.Entry{Dir: in.NodeId, Name: name, Arg: s.hasXattr(n, name)},
		happened: func(before handover.Entry) bool { return before.Arg != 0 && s.hasXattr(n, name) == 0 },
		do:       func() fuse.Status { return s.status(s.v.RemoveXattr(n, name)) },
		answer:   ok,
	})
}

// OpenDir opens a directory.
func (s *Server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if fh, h := s.handles.again(&in.InHeader); h != nil {
		out.Fh = fh
		return fuse.OK
	}
	n := s.node(in.NodeId)
	if n == nil {
		return errStale
	}
	d, err := n.OpenDir()
	if err != nil {
		return s.status(err)
	}
	out.Fh = s.handles.add(d, &in.InHeader, handover.Handle{Kind: handover.KindDir, Node: in.NodeId})
	return fuse.OK
}

// ReadDir lists names.
func (s *Server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	d := s.handles.dir(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	entries, err := s.v.Entries(caller(&in.InHeader), d, in.Offset)
	if err != nil {
		return s.status(err)
	}
	for _, e := range entries {
		if !out.AddDirEntry(fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: e.Mode, Off: e.Pos}) {
			break
		}
	}
	return fuse.OK
}

// ReadDirPlus lists names with what Lookup would answer. A name that went meanwhile is listed without.
func (s *Server) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	d := s.handles.dir(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	entries, err := s.v.Entries(caller(&in.InHeader), d, in.Offset)
	if err != nil {
		return s.status(err)
	}
	ctx := context.Background()
	if d.Node.IsVirtual() {
		var stop context.CancelFunc
		ctx, stop = s.until(cancel)
		defer stop()
	}
	for _, e := range entries {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: e.Mode, Off: e.Pos})
		if entry == nil {
			break
		}
		if e.Name == "." || e.Name == ".." {
			continue
		}
		n, a, err := s.v.Lookup(ctx, caller(&in.InHeader), d.Node, e.Name)
		if err != nil {
			continue
		}
		out.FixMode(a.Mode)
		s.fillEntry(entry, n, &a)
	}
	return fuse.OK
}

// ReleaseDir closes a directory.
func (s *Server) ReleaseDir(in *fuse.ReleaseIn) {
	s.handles.release(in.Fh)
}

// FsyncDir makes names durable.
func (s *Server) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	d := s.handles.dir(in.Fh)
	if d == nil {
		return fuse.EBADF
	}
	return s.status(d.Fsync())
}

// StatFs describes the disk.
func (s *Server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	st, err := s.v.StatFS()
	if err != nil {
		return s.status(err)
	}
	out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree = st.Blocks, st.Bfree, st.Bavail,
		st.Files, st.Ffree
	out.Bsize, out.Frsize, out.NameLen = uint32(st.Bsize), uint32(st.Frsize), uint32(st.Namelen)
	return fuse.OK
}
