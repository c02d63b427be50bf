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
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// maxXattr is the most that an attribute's value has, in bytes: XATTR_SIZE_MAX of Linux.
const maxXattr = 64 << 10

// hiddenXattr: the store's own attributes are not listed and cannot be set; none but XattrArtifact can be
// read. source.Xattr is a user's.
func hiddenXattr(name string) bool {
	return name == "user.ckptfs" || strings.HasPrefix(name, "user.ckptfs.") && name != source.Xattr || strings.HasPrefix(name, "trusted.ckptfs")
}

// unsupportedXattr: answered without a look, since `ls -l` asks for them once a file.
func unsupportedXattr(name string) bool {
	return strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "system.posix_acl_")
}

// GetXattr reads an attribute into dest and returns its length; dest of length 0 asks for the length only.
// ctx bounds what has to be computed.
func (v *Volume) GetXattr(ctx context.Context, n *names.Node, name string, dest []byte) (int, error) {
	switch {
	case name == XattrArtifact:
		return v.artifactXattr(ctx, n, dest)
	case unsupportedXattr(name):
		return 0, unix.EOPNOTSUPP
	case hiddenXattr(name), n.Synth() != nil:
		return 0, unix.ENODATA
	}
	return n.GetXattr(name, dest)
}

// ListXattr lists names, each ended by a zero byte; those of trusted.* for privileged callers only.
func (v *Volume) ListXattr(n *names.Node, dest []byte, privileged bool) (int, error) {
	if n.Synth() != nil {
		return 0, nil
	}
	buf := make([]byte, 64<<10)
	k, err := n.ListXattr(buf)
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
func (v *Volume) SetXattr(n *names.Node, name string, value []byte, flags int) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	p := n.Path()
	err := v.checkSaid(n, p, name, value)
	v.models.Judge(p+" "+name, err)
	if err != nil {
		return unix.EINVAL
	}
	return n.SetXattr(name, value, flags)
}

// checkSaid returns an error when the value of an attribute by which something at p says what it is, or a
// step its metrics or its parent, can never mean anything. A parent that is not there yet may come.
func (v *Volume) checkSaid(n *names.Node, p string, name string, value []byte) error {
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
		_, err := ledger.Resolve(said, p, v.mount().point)
		return err
	}
	return nil
}

// tensorsNow is the tensors of a model, as far as they are known to be all that its graph may name: it is
// packed, and there is no index in its folder, which may make it one of a set. Else nil.
func (v *Volume) tensorsNow(n *names.Node, p string) source.Tensors {
	if n.File() == nil {
		return nil
	}
	if v.indexBeside(p) {
		return nil
	}
	h := manifestOf(n)
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
func (v *Volume) RemoveXattr(n *names.Node, name string) error {
	if err := v.mayChangeXattr(n, name); err != nil {
		return err
	}
	return n.RemoveXattr(name)
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

// maxSiblings is how many names are looked at in a folder for an index.
const maxSiblings = 4096
