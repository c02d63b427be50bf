package steps

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
)

// LineageFile and ParentXattr say of a step which it came from; the attribute wins.
const (
	LineageFile = "lineage.json"
	ParentXattr = "user.parent"
)

// ParentSaid is the value of ParentXattr without what programs put behind it.
func ParentSaid(value []byte) string { return strings.TrimRight(string(value), "\x00\n") }

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
		st.Files = []File{{Rel: LineageFile}}
	}
	fd, err := tree.OpenBelow(s.root, path.Join(Dir, run, name), flags)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	s.readDeclared(fd, run, st)
	for _, said := range append([]string{st.Declared.Parent}, st.Declared.MergedFrom...) {
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
	if slices.ContainsFunc(st.Files, func(f File) bool { return f.Rel == LineageFile }) {
		b, err := s.Files.ReadSmall(path.Join(Dir, runName, st.Name, LineageFile), ledger.MaxDeclared)
		if err == nil {
			st.Declared, err = ledger.ParseDeclared(b)
		}
		if gone(err) != nil {
			st.DeclaredProblem = fmt.Sprintf("%s: %v", LineageFile, err)
		}
	}
	value := make([]byte, 4096)
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), ParentXattr, value)
	switch {
	case err == nil:
		st.Declared.Parent, st.Declared.Transfer, st.Declared.Tensors = ParentSaid(value[:n]), false, nil
	case err != unix.ENODATA && err != unix.EOPNOTSUPP:
		st.DeclaredProblem = fmt.Sprintf("attribute %s: %v", ParentXattr, err)
	}
}
