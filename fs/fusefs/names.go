package fusefs

import (
	"context"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

// node is the node of an id that the kernel gave; it holds a reference, so the node is there.
func (s *Server) node(id uint64) *names.Node { return s.v.Node(content.NodeID(id)) }

// Lookup finds a name. That there is none is cached too, but for names that a view may get, and below
// .ckptfs. Who makes something new finds no view.
func (s *Server) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	dir := s.node(in.NodeId)
	if dir == nil {
		return fuse.Status(unix.ESTALE)
	}
	ctx := context.Background()
	if dir.IsVirtual() { // may take a while
		var stop context.CancelFunc
		ctx, stop = until(cancel)
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
	if n.IsView() && makes(in.Pid, name) {
		s.v.Forget(n.ID(), 1)
		return fuse.ENOENT
	}
	s.fillEntry(out, n, &a)
	return fuse.OK
}

// Forget gives back references.
func (s *Server) Forget(id, nlookup uint64) { s.v.Forget(content.NodeID(id), nlookup) }

// GetAttr is stat.
func (s *Server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := s.node(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
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
		return fuse.Status(unix.ESTALE)
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

// Mknod makes a file that is not opened.
func (s *Server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	n, a, err := s.v.Mknod(s.node(in.NodeId), name, in.Mode, in.Rdev, caller(&in.InHeader))
	return s.entry(out, n, a, err)
}

// Mkdir makes a directory.
func (s *Server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	n, a, err := s.v.Mkdir(s.node(in.NodeId), name, in.Mode, caller(&in.InHeader))
	return s.entry(out, n, a, err)
}

// Symlink makes a symbolic link.
func (s *Server) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	n, a, err := s.v.Symlink(s.node(in.NodeId), name, target, caller(in))
	return s.entry(out, n, a, err)
}

// Link makes a hard link.
func (s *Server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n := s.node(in.Oldnodeid)
	a, err := s.v.Link(n, s.node(in.NodeId), name)
	return s.entry(out, n, a, err)
}

// Unlink removes a name.
func (s *Server) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.status(s.v.Unlink(s.node(in.NodeId), name))
}

// Rmdir removes an empty directory.
func (s *Server) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.status(s.v.Rmdir(s.node(in.NodeId), name))
}

// Rename moves a name.
func (s *Server) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	return s.status(s.v.Rename(s.node(in.NodeId), oldName, s.node(in.Newdir), newName, in.Flags))
}

// Readlink reads a symbolic link.
func (s *Server) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	target, err := s.node(in.NodeId).ReadlinkFor(caller(in))
	return []byte(target), s.status(err)
}

// GetXAttr reads an attribute.
func (s *Server) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string,
	dest []byte) (uint32, fuse.Status) {
	ctx := context.Background()
	if name == volume.XattrArtifact { // may take a while
		var stop context.CancelFunc
		ctx, stop = until(cancel)
		defer stop()
	}
	k, err := s.v.GetXattr(ctx, s.node(in.NodeId), name, dest)
	return uint32(max(k, 0)), s.status(err)
}

// ListXAttr lists attributes.
func (s *Server) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	k, err := s.v.ListXattr(s.node(in.NodeId), dest, caller(in).Admin)
	return uint32(max(k, 0)), s.status(err)
}

// SetXAttr sets an attribute.
func (s *Server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return s.status(s.v.SetXattr(s.node(in.NodeId), name, value, int(in.Flags)))
}

// RemoveXAttr removes an attribute.
func (s *Server) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.status(s.v.RemoveXattr(s.node(in.NodeId), name))
}

// OpenDir opens a directory.
func (s *Server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	d, err := s.node(in.NodeId).OpenDir()
	if err != nil {
		return s.status(err)
	}
	out.Fh = s.handles.add(d)
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
	for i, e := range entries {
		if !out.AddDirEntry(fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: e.Mode,
			Off: in.Offset + uint64(i) + 1}) {
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
		ctx, stop = until(cancel)
		defer stop()
	}
	for i, e := range entries {
		entry := out.AddDirLookupEntry(fuse.DirEntry{Name: e.Name, Ino: e.Ino, Mode: e.Mode,
			Off: in.Offset + uint64(i) + 1})
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
	if d, ok := s.handles.remove(in.Fh).(*names.DirHandle); ok {
		d.Release()
	}
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
