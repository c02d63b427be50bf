package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holders lists the processes that use something at or below dir, as far as this user may see them: "python3 (812)".
// It reads links in proc only and never asks the mount.
func holders(proc, dir string) []string {
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
		if how := holds(p, dir); how != "" {
			comm, _ := os.ReadFile(filepath.Join(p, "comm"))
			out = append(out, fmt.Sprintf("%s (%s: %s)", printable(string(bytes.TrimSpace(comm))), e.Name(), how))
		}
	}
	return out
}

// holds says how a process uses dir, or "".
func holds(proc, dir string) string {
	for _, link := range []string{"cwd", "root", "exe"} {
		if to, err := os.Readlink(filepath.Join(proc, link)); err == nil && within(to, dir) {
			return link
		}
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && within(to, dir) {
			return "open " + printable(strings.TrimPrefix(to, dir+"/"))
		}
	}
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range strings.Lines(string(maps)) {
		if _, to, ok := strings.Cut(strings.TrimSpace(line), " /"); ok && within("/"+to, dir) {
			return "mapped " + printable(strings.TrimPrefix("/"+to, dir+"/"))
		}
	}
	return ""
}
