package codectest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Edge is a copy of p that ends where memory does, until the test ends: the page behind it cannot be read.
// The page that it begins in is the first that can be.
func Edge(t *testing.T, p []byte) []byte {
	t.Helper()
	page := os.Getpagesize()
	n := (len(p) + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	if n > 0 {
		if err := unix.Mprotect(all[page:][:n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
	}
	edge := all[page+n-len(p) : page+n : page+n]
	copy(edge, p)
	return edge
}
