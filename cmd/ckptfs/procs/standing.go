package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"ckptfs/cmd/ckptfs/text"
)

// Standing lists who reaches what is in a folder by more than its path, as far as this user may see them: the
// processes that stand in it, have a folder of it open, or have a part of it mounted elsewhere in a mount
// namespace of theirs; and the bind mounts in this one. They go on to see that folder when something is
// mounted over it. A file that is open is none of these.
func Standing(proc, dir string) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	s := standing{proc: proc, dir: dir, seen: map[string]bool{}}
	s.place()
	var out []string
	for _, point := range s.mounted(filepath.Join(proc, "self")) {
		out = append(out, "the bind mount "+Unmounting(point))
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || e.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		p := filepath.Join(proc, e.Name())
		if how := s.how(p); how != "" {
			out = append(out, fmt.Sprintf("%s (%s: %s)", commandOf(p), e.Name(), how))
		}
	}
	return out
}

type standing struct {
	proc, dir    string
	major, minor int    // of the filesystem that the folder lies on
	root         string // of the folder in it; "" if that is not known
	seen         map[string]bool
}

// place finds the folder's place in its filesystem.
func (s *standing) place() {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(s.dir))
	if err != nil {
		return
	}
	var top *mountinfo.Info
	for _, m := range mounts {
		if top == nil || len(m.Mountpoint) >= len(top.Mountpoint) {
			top = m
		}
	}
	if top != nil {
		s.major, s.minor = top.Major, top.Minor
		s.root = filepath.Join(top.Root, strings.TrimPrefix(s.dir, strings.TrimSuffix(top.Mountpoint, "/")))
	}
}

func (s *standing) how(proc string) string {
	for _, link := range []string{"cwd", "root"} {
		if to, err := os.Readlink(filepath.Join(proc, link)); err == nil && Within(to, s.dir) {
			return link + " " + text.Printable(to)
		}
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		at := filepath.Join(proc, "fd", fd.Name())
		to, err := os.Readlink(at)
		if err != nil || !Within(to, s.dir) {
			continue
		}
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			return "open folder " + text.Printable(to)
		}
	}
	if points := s.mounted(proc); len(points) > 0 {
		return "mounted on " + text.Printable(points[0])
	}
	return ""
}

// mounted is where parts of the folder are mounted in the process's namespace, once for each.
func (s *standing) mounted(proc string) (points []string) {
	ns, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
	if err != nil || s.seen[ns] || s.root == "" || ofKernel(proc) {
		return nil
	}
	s.seen[ns] = true
	f, err := os.Open(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		if m.Major == s.major && m.Minor == s.minor && Within(m.Root, s.root) {
			points = append(points, m.Mountpoint)
		}
	}
	return points
}

// Within reports whether an absolute path is dir or below it, by their names alone.
func Within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
