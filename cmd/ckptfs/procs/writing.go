package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ckptfs/cmd/ckptfs/text"
)

// Writing lists the processes that may write to a file in a folder without opening it again, as far as this
// user may see them: that have one open for writing, or a shared writable mapping of one.
func Writing(proc, dir string) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		p := filepath.Join(proc, e.Name())
		if how := writes(p, dir); how != "" {
			out = append(out, fmt.Sprintf("%s (%s: %s)", commandOf(p), e.Name(), how))
		}
	}
	return out
}

func writes(proc, dir string) string {
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		at := filepath.Join(proc, "fd", fd.Name())
		to, err := os.Readlink(at)
		if err != nil || !Within(to, dir) || !forWriting(filepath.Join(proc, "fdinfo", fd.Name())) {
			continue
		}
		if st, err := os.Stat(at); err == nil && st.Mode().IsRegular() {
			return "writes " + text.Printable(to)
		}
	}
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range strings.Lines(string(maps)) {
		_, perms, _ := strings.Cut(line, " ")
		_, to, found := strings.Cut(perms, " /")
		if to = "/" + strings.TrimSuffix(to, "\n"); found && len(perms) > 3 && perms[1] == 'w' &&
			perms[3] == 's' && Within(to, dir) {
			return "maps " + text.Printable(to)
		}
	}
	return ""
}

// forWriting reads the flags of an open file; one that does not tell is taken to be written.
func forWriting(fdinfo string) bool {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err != nil || flags&3 != 0 // O_ACCMODE
		}
	}
	return true
}
