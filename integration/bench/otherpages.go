package main

import (
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// otherSize is that of the file of other pages, all of it a hole: no page is read twice, which would make
	// it one that the kernel wants to keep.
	otherSize = 4 << 40
	// otherStep is read between two looks at what is free.
	otherStep = 256 << 20
)

// otherPages makes a file whose pages fill the machine's memory, as those of other files do where programs
// have run for a while. Without it a load gets memory that nobody uses. The host of a virtual machine may
// have taken that back, and then finds each page again at the first touch (Linux's free page reporting).
func otherPages(dir string) (*os.File, error) {
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(otherSize); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// fillMemory reads on in such a file until what it reads no longer takes free memory, but other pages'.
func fillMemory(other *os.File) error {
	free, err := freeMemory()
	buffer := make([]byte, 1<<20)
	for err == nil {
		for range otherStep / len(buffer) {
			if _, err := io.ReadFull(other, buffer); err != nil {
				return err
			}
		}
		before := free
		if free, err = freeMemory(); before-free < otherStep/2 {
			break
		}
	}
	return err
}

// freeMemory is how many bytes of the machine's memory hold nothing.
func freeMemory() (int64, error) {
	var info unix.Sysinfo_t
	err := unix.Sysinfo(&info)
	return int64(info.Freeram) * int64(info.Unit), err
}
