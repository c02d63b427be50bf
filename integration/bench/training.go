package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// training runs a training loop on all processors beside packing. What a step takes is told of the same loop,
// now while the daemon is stopped and now while it packs a new file: by itself; when the loop pauses in
// between, as to evaluate; and by as many processors as there are.
func (b *bench) training() error {
	const window, pairs = 2500 * time.Millisecond, 4
	var step struct {
		Mean  float64
		Steps int
	}
	data := make([]byte, b.size)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	var rows [][]string
	for _, way := range []struct {
		name  string
		flags []string
		loop  []string
	}{
		{"a loop", nil, nil},
		{"a loop that pauses for 0.3 s after each second", nil, []string{"1", "0.3"}},
		{fmt.Sprintf("a loop, --pack-cpus %d", runtime.NumCPU()), []string{"--pack-cpus", fmt.Sprint(runtime.NumCPU())}, nil},
	} {
		if err := b.remount(way.flags...); err != nil {
			return err
		}
		var alone, beside, ratio, packed sample
		for round := range b.rounds {
			c, err := b.converse("training.py", way.loop...)
			if err != nil {
				return err
			}
			time.Sleep(2 * time.Second) // the loop's own beginning
			copy(data, fmt.Sprint(way.name, round))
			for i := 0; i < len(data); i += 4096 { // new to the store in every chunk
				data[i]++
			}
			if err := os.WriteFile(filepath.Join(b.daemon.Dir, fmt.Sprintf("train%d.bin", round)), data,
				0o644); err != nil {
				return err
			}
			steps := func(signal syscall.Signal) (ms float64, err error) {
				for _, pid := range b.daemon.PIDs() {
					err = errors.Join(err, syscall.Kill(pid, signal))
				}
				err = errors.Join(err, c.ask(&step, "forget"))
				time.Sleep(window)
				err = errors.Join(err, c.ask(&step, "step"))
				return 1e3 * step.Mean, err
			}
			before := b.segments()
			for range pairs {
				without, err1 := steps(syscall.SIGSTOP)
				with, err2 := steps(syscall.SIGCONT)
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				alone.add(without)
				beside.add(with)
				ratio.add(with / without)
			}
			packed.add(float64(b.segments()-before) / 1e6 / (pairs * window).Seconds())
			if err := errors.Join(c.close(), b.sync(), b.settle()); err != nil {
				return err
			}
		}
		rows = append(rows, []string{way.name, alone.text(), beside.text(), ratio.text(), packed.text()})
	}
	table("a training loop on all cores, beside packing", []string{"", "ms a step without", "beside", "ratio", "packed meanwhile, MB/s"}, rows)
	return b.remount()
}

// segments is what the store's segments take on the disk.
func (b *bench) segments() int64 {
	n, _ := diskUsage(filepath.Join(b.daemon.Store, "segments"))
	return n
}
