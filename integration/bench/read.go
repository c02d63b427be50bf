package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A reader reads a file in one way and returns the bytes it read.
var readers = []struct {
	name string
	unit string
	run  func(path string) (float64, error)
}{
	{"read", "GB/s", readSequential},
	{"mmap", "GB/s", readMapped},
	{"random 4 KiB", "MB/s", readRandom},
}

func readSequential(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, blockSize)
	n := 0
	start := time.Now()
	for {
		m, err := f.Read(buf)
		n += m
		if err == io.EOF {
			return rate(n, time.Since(start)), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func readMapped(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, blockSize)
	start := time.Now()
	m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	for off := 0; off < len(m); off += blockSize {
		copy(buf, m[off:])
	}
	d := time.Since(start)
	return rate(len(m), d), unix.Munmap(m)
}

const randomReads = 2000

func readRandom(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return 0, err
	}
	buf := make([]byte, 4096)
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for range randomReads {
		if _, err := f.ReadAt(buf, r.Int64N(st.Size()/4096)*4096); err != nil && err != io.EOF {
			return 0, err
		}
	}
	return rate(randomReads*4096, time.Since(start)) * 1e3, nil
}

// A condition is a state of the file, and what of it is in memory.
var conditions = []struct {
	name  string
	flags []string // of the mount
	// prepare is called before each reading; path is the file on the mount.
	prepare func(b *bench, path string) error
	cold    bool // the plain file is read cold, too
}{
	{"resident, warm", nil, func(b *bench, path string) error { return warm(path) }, false},
	{"resident, cold", nil, func(b *bench, path string) error { return b.coolStore() }, true},
	{"packed, cold", []string{"--hot-size", "0"}, func(b *bench, path string) error { return b.coolPacked() },
		true},
	{"packed, segments warm", []string{"--hot-size", "0"}, func(b *bench, path string) error {
		if err := b.remount("--hot-size", "0"); err != nil {
			return err
		}
		return b.warmSegments()
	}, false},
	{"packed, warm", []string{"--hot-size", "0"}, func(b *bench, path string) error { return warm(path) },
		false},
	{"hydrated, warm", nil, func(b *bench, path string) error {
		if _, err := b.daemon.CLI("hydrate", path); err != nil {
			return err
		}
		return warm(path)
	}, false},
}

func warm(path string) error {
	_, err := readSequential(path)
	return err
}

// coolPacked has nothing of packed files in memory, neither the kernel nor the daemon.
func (b *bench) coolPacked() error {
	if err := b.remount("--hot-size", "0"); err != nil { // the daemon's own cache goes too
		return err
	}
	return b.coolStore()
}

func (b *bench) warmSegments() error {
	files, err := filepath.Glob(filepath.Join(b.daemon.Store, "segments", "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := warm(f); err != nil {
			return err
		}
	}
	return nil
}

// pairs reads a plain file and ours in alternating pairs, each after it was prepared.
func (b *bench) pairs(run func(string) (float64, error), plain string, preparePlain func(string) error,
	ours string, prepare func(*bench, string) error) (figure pair, err error) {
	onPlain := func() error {
		if err := preparePlain(plain); err != nil {
			return err
		}
		v, err := run(plain)
		figure.plain.add(v)
		return err
	}
	onOurs := func() error {
		if err := prepare(b, ours); err != nil {
			return err
		}
		v, err := run(ours)
		figure.ours.add(v)
		return err
	}
	for round := range b.rounds {
		steps := []func() error{onPlain, onOurs}
		if round%2 == 1 {
			steps[0], steps[1] = onOurs, onPlain
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return figure, err
			}
		}
	}
	return figure, nil
}

// reads measures a file of the given size that packing found new, in each condition. It takes a store of its
// own segments only: nothing else is in the way of the disk.
func (b *bench) reads() error {
	all, err := b.payloads()
	if err != nil {
		return err
	}
	p := all[0]
	plain, ours := filepath.Join(b.plain, "read"+p.ext), filepath.Join(b.daemon.Dir, "read"+p.ext)
	p.change(1)
	for _, path := range []string{plain, ours} {
		if _, err := writeFile(path, p.bytes); err != nil {
			return err
		}
	}
	if err := b.sync(); err != nil {
		return err
	}
	p.bytes, p.data, all = nil, nil, nil
	if err := b.settle(); err != nil {
		return err
	}

	var rows [][]string
	for _, c := range conditions {
		if err := b.remount(c.flags...); err != nil {
			return err
		}
		if len(c.flags) > 0 {
			if _, err := b.daemon.CLI("evict", ours); err != nil {
				return err
			}
		}
		for _, r := range readers {
			prepare := warm
			if c.cold {
				prepare = cool
			}
			figure, err := b.pairs(r.run, plain, prepare, ours, c.prepare)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, r.name, err)
			}
			rows = append(rows, []string{c.name + ": " + r.name + ", " + r.unit, figure.plain.text(),
				figure.ours.text(), figure.ratio()})
		}
	}
	table("read", []string{"", "plain", "ckptfs", "ratio"}, rows)
	now, peak := b.memory()
	fmt.Printf("\nmemory of the daemon: %s now, %s at most since it was mounted last\n", bytesText(now), bytesText(peak))
	if err := b.remount(); err != nil {
		return err
	}
	return os.Remove(plain)
}
