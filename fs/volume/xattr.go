package volume

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/safetensors"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/graph/source"
)

const (
	maxXattr     = 64 << 10 // bytes of an attribute's value: XATTR_SIZE_MAX of Linux
	maxXattrList = 64 << 10 // bytes of all names: XATTR_LIST_MAX of Linux
)

// hiddenXattr reports whether an attribute is the store's own. Such attributes are not listed and cannot be
// set, and only XattrArtifact and XattrRemote can be read. source.Xattr is a user's.
func hiddenXattr(name string) bool {
	return name == "user.ckptfs" || strings.HasPrefix(name, "user.ckptfs.") && name != source.Xattr ||
		strings.HasPrefix(name, "trusted.ckptfs")
}

// unsupportedXattr reports whether an attribute is answered without a look at the host, which takes its own
// of system.* and security.* from root, whoever asked: all but those of users and of administrators. `ls -l`
// asks for some of every file.
func unsupportedXattr(name string) bool {
	return !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "trusted.")
}

// GetXattr reads an attribute into dest and returns its length. With dest of length 0 it returns the length
// only. ctx bounds the computation of an artifact id.
func (v *Volume) GetXattr(ctx context.Context, n *names.Node, name string, dest []byte) (int, error) {
	switch {
	case name == XattrArtifact:
		return v.artifactXattr(ctx, n, dest)
	case name == XattrRemote && n.Synth() == nil:
		return v.sharing.xattr(n, dest)
	case unsupportedXattr(name):
		return 0, unix.EOPNOTSUPP
	case hiddenXattr(name), n.Synth() != nil:
		return 0, unix.ENODATA
	}
	return n.GetXattr(name, dest)
}

// ListXattr lists names, each ended by a zero byte; those of trusted.* if the caller is an administrator,
// which is asked for once one is found.
func (v *Volume) ListXattr(n *names.Node, dest []byte, admin func() bool) (int, error) {
	if n.Synth() != nil {
		return 0, nil
	}
	buf := make([]byte, maxXattrList)
	k, err := n.ListXattr(buf)
	if err != nil {
		return 0, err
	}
	var out []byte
	for name := range bytes.SplitSeq(buf[:k], []byte{0}) {
		s := string(name)
		if s == "" || hiddenXattr(s) || unsupportedXattr(s) {
			continue
		}
		if !strings.HasPrefix(s, "trusted.") || admin() {
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

// SetXattr sets an attribute. flags are setxattr(2)'s. EINVAL when the attribute is metadata of a model or a
// step, and its value is invalid; Status lists why.
func (v *Volume) SetXattr(n *names.Node, name string, value []byte, flags int) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	if err := v.sharing.changing(n); err != nil {
		return err
	}
	p := n.Path()
	err := v.checkMetadata(n, p, name, value)
	v.models.Judge(p+" "+name, err)
	if err != nil {
		return unix.EINVAL
	}
	if err = n.SetXattr(name, value, flags); err == nil {
		v.sharing.touch(n)
	}
	return err
}

// checkMetadata checks the value of an attribute that describes the model or the step at p.
func (v *Volume) checkMetadata(n *names.Node, p, name string, value []byte) error {
	if name == source.Xattr {
		return source.CheckAttr(value, v.tensorsNow(n, p))
	}
	return steps.CheckAttr(p, n.IsDir(), name, value, v.mount().point)
}

// tensorsNow is the tensors of a model, if they are all that its graph may name; else nil. They are all if
// the file is packed and its folder has no index, which may make it one file of a set.
func (v *Volume) tensorsNow(n *names.Node, p string) source.Tensors {
	if n.File() == nil || v.indexBeside(p) {
		return nil
	}
	h, err := inspected{v, n}.Manifest()
	if err != nil || h.IsZero() {
		return nil
	}
	m, err := v.asm.Manifest(h)
	if err != nil || len(m.Tensors) == 0 {
		return nil
	}
	return source.ByName(m.Tensors)
}

// RemoveXattr removes an attribute.
func (v *Volume) RemoveXattr(n *names.Node, name string) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	if err := v.sharing.changing(n); err != nil {
		return err
	}
	err := n.RemoveXattr(name)
	if err == nil {
		v.sharing.touch(n)
	}
	return err
}

func (v *Volume) mayChangeXattr(n *names.Node, name string) error {
	switch {
	case v.readOnly, n.IsVirtual():
		return unix.EROFS
	case unsupportedXattr(name):
		return unix.EOPNOTSUPP
	case hiddenXattr(name), n.Synth() != nil:
		return unix.EPERM
	}
	return nil
}

// indexBeside reports whether there is an index of several files in the folder of one.
func (v *Volume) indexBeside(p string) bool {
	d, err := tree.OpenDirBelow(v.names.RootFd(), path.Dir(p))
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxSiblings)
	return slices.ContainsFunc(names, safetensors.IsIndex)
}

// maxSiblings is how many names of a folder indexBeside looks at.
const maxSiblings = 4096
