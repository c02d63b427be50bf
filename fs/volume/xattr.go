package volume

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/graph/source"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// maxXattr is the most that an attribute's value has, in bytes: XATTR_SIZE_MAX of Linux.
const maxXattr = 64 << 10

// hiddenXattr: the store's own attributes are not listed and cannot be set; none but XattrArtifact can be read. source.Xattr is
// a user's.
func hiddenXattr(name string) bool {
	return name == "user.ckptfs" || strings.HasPrefix(name, "user.ckptfs.") && name != source.Xattr || strings.HasPrefix(name, "trusted.ckptfs")
}

// unsupportedXattr: answered without a look, since `ls -l` asks for them once a file.
func unsupportedXattr(name string) bool {
	return strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "system.posix_acl_")
}

// GetXattr reads an attribute into dest and returns its length; dest of length 0 asks for the length only. ctx bounds what has to be
// computed.
func (v *Volume) GetXattr(ctx context.Context, n *Node, name string, dest []byte) (int, error) {
	switch {
	case name == XattrArtifact:
		return v.artifactXattr(ctx, n, dest)
	case unsupportedXattr(name):
		return 0, unix.EOPNOTSUPP
	case hiddenXattr(name), n.synth != nil:
		return 0, unix.ENODATA
	}
	var k int
	err := n.onInode(func(path string, follow bool) (err error) {
		if follow {
			k, err = unix.Getxattr(path, name, dest)
		} else {
			k, err = unix.Lgetxattr(path, name, dest)
		}
		return err
	})
	return k, err
}

// ListXattr lists names, each ended by a zero byte; those of trusted.* for privileged callers only.
func (v *Volume) ListXattr(n *Node, dest []byte, privileged bool) (int, error) {
	if n.synth != nil {
		return 0, nil
	}
	buf := make([]byte, 64<<10)
	var k int
	err := n.onInode(func(path string, follow bool) (err error) {
		if follow {
			k, err = unix.Listxattr(path, buf)
		} else {
			k, err = unix.Llistxattr(path, buf)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	var out []byte
	for name := range bytes.SplitSeq(buf[:k], []byte{0}) {
		s := string(name)
		if s != "" && !hiddenXattr(s) && !unsupportedXattr(s) && (privileged || !strings.HasPrefix(s, "trusted.")) {
			out = append(append(out, name...), 0)
		}
	}
	if len(dest) == 0 {
		return len(out), nil
	}
	if len(out) > len(dest) {
		return len(out), unix.ERANGE
	}
	return copy(dest, out), nil
}

// SetXattr sets an attribute. flags are setxattr(2)'s.
func (v *Volume) SetXattr(n *Node, name string, value []byte, flags int) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	p := n.Path()
	err := v.checkSaid(n, p, name, value)
	v.models.Judge(p+" "+name, err)
	if err != nil {
		return unix.EINVAL
	}
	return v.changeXattr(n, func(path string, follow bool) error {
		if follow {
			return unix.Setxattr(path, name, value, flags)
		}
		return unix.Lsetxattr(path, name, value, flags)
	})
}

// checkSaid returns an error when the value of an attribute by which something at p says what it is, or a step its metrics or its parent, can never
// mean anything. A parent that is not there yet may come.
func (v *Volume) checkSaid(n *Node, p string, name string, value []byte) error {
	if name == source.Xattr {
		return source.CheckAttr(value, v.tensorsNow(n, p))
	}
	if !strings.HasPrefix(p, steps.Dir+"/") || strings.Count(p, "/") != 2 {
		return nil
	}
	if metric, ok := strings.CutPrefix(name, runs.XattrPrefix); ok {
		if err := runs.CheckName(metric); err != nil {
			return err
		}
		_, err := runs.ParseValue(value)
		return err
	}
	if name == steps.ParentXattr {
		if !n.IsDir() {
			p = path.Dir(p)
		}
		said := steps.ParentSaid(value)
		if said == "" {
			return nil
		}
		if err := ledger.CheckPath(said); err != nil {
			return err
		}
		_, err := ledger.Resolve(said, p, v.mountpoint)
		return err
	}
	return nil
}

// tensorsNow is the tensors of a model, as far as they are known to be all that its graph may name: it is packed, and there is no index in its folder, which may
// make it one of a set. Else nil.
func (v *Volume) tensorsNow(n *Node, p string) source.Tensors {
	if n.file == nil {
		return nil
	}
	if v.indexBeside(p) {
		return nil
	}
	h := v.manifestOf(n)
	if h.IsZero() {
		return nil
	}
	m, err := v.asm.Manifest(h)
	if err != nil || len(m.Tensors) == 0 {
		return nil
	}
	return source.ByName(m.Tensors)
}

// RemoveXattr removes an attribute.
func (v *Volume) RemoveXattr(n *Node, name string) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	return v.changeXattr(n, func(path string, follow bool) error {
		if follow {
			return unix.Removexattr(path, name)
		}
		return unix.Lremovexattr(path, name)
	})
}

func (v *Volume) mayChangeXattr(n *Node, name string) error {
	switch {
	case v.readOnly, n.IsVirtual():
		return unix.EROFS
	case unsupportedXattr(name):
		return unix.EOPNOTSUPP
	case hiddenXattr(name), n.synth != nil:
		return unix.EPERM
	}
	return nil
}

// changeXattr is onInode of a change.
func (v *Volume) changeXattr(n *Node, f func(path string, follow bool) error) error {
	defer v.steps.Changed(n.ino)
	if n.file == nil {
		return n.onInode(f)
	}
	n.file.Lock()
	defer n.file.Unlock()
	err := n.onInode(f)
	if err == nil {
		n.file.TouchedLocked()
	}
	return err
}

// onInode calls f with a path to the node's inode, and whether the path is a link that f has to follow.
func (n *Node) onInode(f func(path string, follow bool) error) error {
	return n.atPlace(func(p place) error { return f(p.path(), p.magic) })
}

// indexBeside reports whether there is an index of several files in the folder of one.
func (v *Volume) indexBeside(p string) bool {
	d, err := tree.OpenDirBelow(v.names.rootFd, path.Dir(p))
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxSiblings)
	return slices.ContainsFunc(names, safetensors.IsIndex)
}

// maxSiblings is how many names are looked at in a folder for an index.
const maxSiblings = 4096
