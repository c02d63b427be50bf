package procs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Holder is the process that holds a daemon's mount and would start the next daemon: its parent, if that is
// the same program, or was called by the same words. 0: it has none that can be seen.
func Holder(proc string, daemon int) int {
	dir := filepath.Join(proc, strconv.Itoa(daemon))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	// pid (comm) state ppid: comm may have anything in it
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(f[1]))
	if err != nil || parent <= 1 {
		return 0
	}
	above := filepath.Join(proc, strconv.Itoa(parent))
	a, aerr := os.Stat(filepath.Join(dir, "exe"))
	b, berr := os.Stat(filepath.Join(above, "exe"))
	if aerr == nil && berr == nil && os.SameFile(a, b) {
		return parent
	}
	if w := words(dir); w != nil && bytes.Equal(w, words(above)) {
		return parent
	}
	return 0
}

// words are what a process was called with, without its name.
func words(dir string) []byte {
	b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	_, w, ok := bytes.Cut(b, []byte{0})
	if err != nil || !ok || len(w) == 0 {
		return nil
	}
	return w
}
