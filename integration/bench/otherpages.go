package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// otherPages is a file whose pages fill the machine's memory, as those of other files do where programs have
// run for a while. Without it a load gets memory that nobody uses. The host of a virtual machine may have
// taken that back, and then finds each page again at the first touch (Linux's free page reporting).
type otherPages struct {
	f  *os.File
	at int64
}

const (
	// otherSize is that of the file, all of it a hole: no page is read twice, which would make it one that
	// the kernel wants to keep.
	otherSize = 4 << 40
	// otherStep is read between two looks at what is free.
	otherStep = 256 << 20
)

func newOtherPages(dir string) (*otherPages, error) {
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(otherSize); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &otherPages{f: f}, nil
}

// fill reads on until what it reads no longer takes free memory, but other pages'.
func (o *otherPages) fill() error {
	free, err := freeMemory()
	buffer := make([]byte, 1<<20)
	for err == nil {
		for range otherStep / len(buffer) {
			if _, err := o.f.ReadAt(buffer, o.at); err != nil {
				return err
			}
			o.at += int64(len(buffer))
		}
		before := free
		if free, err = freeMemory(); before-free < otherStep/2 {
			break
		}
	}
	return err
}

func (o *otherPages) close() { _ = o.f.Close() }

// freeMemory is how many bytes of the machine's memory hold nothing.
func freeMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "MemFree:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	if lines.Err() != nil {
		return 0, lines.Err()
	}
	return 0, fmt.Errorf("/proc/meminfo: no MemFree: %w", io.ErrUnexpectedEOF)
}
