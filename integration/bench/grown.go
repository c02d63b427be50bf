package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
)

// grown saves boosted models ten rounds apart and tells what packing one save takes, however much of it is in
// the store already, beside what reading it and hashing it takes: everything that was saved has to be looked
// at.
func (b *bench) grown() error {
	rows, err := b.scenarios("grown.py", func(kind string, add func([]string)) error {
		for _, rounds := range []int{1000, 2500, 5000} {
			row, err := b.grownTo(kind, rounds)
			if err != nil {
				return err
			}
			add(row)
		}
		return nil
	})
	if err != nil {
		return err
	}
	table("saves of a model that grows by ten rounds: milliseconds of a processor each",
		[]string{"", "rounds", "MB a save", "the daemon", "reading and hashing", "ratio"}, rows)
	return nil
}

func (b *bench) grownTo(kind string, rounds int) ([]string, error) {
	dir, err := os.MkdirTemp(b.dir, "grown-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := b.pythonRun("grown.py", kind, fmt.Sprint(rounds), dir)
	if err != nil {
		return nil, err
	}
	var files []string
	if err := json.Unmarshal([]byte(out), &files); err != nil {
		return nil, err
	}
	fresh, err := b.fresh(dir)
	if err != nil {
		return nil, err
	}
	own := fresh.daemon
	defer own.Clean()
	var before, floor time.Duration
	var bytes int
	for i, path := range files {
		if i == 1 {
			before = fresh.cpu() // the first save is all new
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		step := filepath.Join(own.Dir, "runs", "grown", strings.TrimSuffix(filepath.Base(path),
			filepath.Ext(path)))
		if err := os.MkdirAll(step, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(step, "model"+filepath.Ext(path)), p, 0o644); err != nil {
			return nil, err
		}
		if err := fresh.sync(); err != nil {
			return nil, err
		}
		if i > 0 {
			took, err := hashing(path)
			if err != nil {
				return nil, err
			}
			floor += took
			bytes += len(p)
		}
	}
	saves := len(files) - 1
	packing := fresh.cpu() - before
	each := func(d time.Duration) string { return digits(d.Seconds() * 1000 / float64(saves)) }
	return []string{kind, fmt.Sprint(rounds), digits(float64(bytes) / 1e6 / float64(saves)),
		each(packing), each(floor),
		fmt.Sprintf("%.1fx", packing.Seconds()/floor.Seconds())}, nil
}

// hashing is the processor time that reading a file, which the kernel has in memory, and hashing it take, the
// least of several tries.
func hashing(path string) (least time.Duration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, cas.ChunkSize)
	for range 5 {
		start := ownTime()
		for off := int64(0); ; {
			n, err := f.ReadAt(buf, off)
			cas.Sum(buf[:n])
			if off += int64(n); err != nil {
				break
			}
		}
		if took := ownTime() - start; least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// ownTime is the processor time that this process has used.
func ownTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
