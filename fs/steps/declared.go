package steps

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// LineageFile and ParentXattr hold the parent of a step. The attribute wins.
const (
	LineageFile = "lineage.json"
	ParentXattr = "user.parent"
)

// CheckAttr returns an error when an attribute of the step at p is a metric or the step's parent, and its
// value can never mean anything. A parent that does not exist yet is no error. dir reports whether the step
// is a folder; mountpoint is where absolute paths are below.
func CheckAttr(p string, dir bool, name string, value []byte, mountpoint string) error {
	run, step, rel := In(p)
	if step == "" || rel != "" {
		return nil
	}
	if metric, ok := strings.CutPrefix(name, runs.XattrPrefix); ok {
		if err := runs.CheckName(metric); err != nil {
			return err
		}
		_, err := runs.ParseValue(value)
		return err
	}
	if name != ParentXattr {
		return nil
	}
	parent := declaredParent(value)
	if parent == "" {
		return nil
	}
	if err := ledger.CheckPath(parent); err != nil {
		return err
	}
	st := &Step{Name: step, IsFile: !dir}
	_, err := ledger.Resolve(parent, st.From(run), mountpoint)
	return err
}

// declaredParent is the value of ParentXattr without the newlines and zero bytes that programs append.
func declaredParent(value []byte) string { return strings.TrimRight(string(value), "\x00\n") }

// Parents lists the paths that the step of the file at p, which may be the step itself, says it came from: as
// it is now, whatever is remembered. mountpoint is where absolute paths are below.
func (s *Steps) Parents(p, mountpoint string) (all []string) {
	run, name, rel := In(p)
	if name == "" {
		return nil
	}
	st := &Step{Name: name, IsFile: rel == ""}
	flags := uint64(unix.O_PATH)
	if !st.IsFile {
		flags = unix.O_RDONLY | unix.O_DIRECTORY
		st.Files.add(File{Rel: LineageFile})
	}
	fd, err := tree.OpenBelow(s.root, path.Join(Dir, run, name), flags)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	s.readDeclared(fd, run, st)
	d := st.Declared()
	for _, said := range append([]string{d.Parent}, d.MergedFrom...) {
		if said == "" {
			continue
		}
		if to, err := ledger.Resolve(said, st.From(run), mountpoint); err == nil {
			all = append(all, to)
		}
	}
	return all
}

// readDeclared reads what a step, which is open, says of its parents.
func (s *Steps) readDeclared(fd int, runName string, st *Step) {
	var d ledger.Declared
	defer func() { st.declare(d) }()
	if st.Files.Has(LineageFile) {
		b, err := s.Files.ReadSmall(path.Join(Dir, runName, st.Name, LineageFile), ledger.MaxDeclared)
		if err == nil {
			d, err = ledger.ParseDeclared(b)
		}
		if errors.Is(err, ErrRemote) { // then models are told their parents
			st.remote = true
		} else if gone(err) != nil {
			st.DeclaredProblem = fmt.Sprintf("%s: %v", LineageFile, err)
		}
	}
	value := make([]byte, 4096)
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), ParentXattr, value)
	switch {
	case err == nil:
		d.Parent, d.Transfer, d.Tensors = declaredParent(value[:n]), false, nil
	case err != unix.ENODATA && err != unix.EOPNOTSUPP:
		st.DeclaredProblem = fmt.Sprintf("attribute %s: %v", ParentXattr, err)
	}
}
