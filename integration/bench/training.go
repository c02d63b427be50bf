package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// training runs a training loop on all processors beside packing: what a step takes while nothing is packed, while a new
// file is, and while one is by as many processors as there are.
func (b *bench) training() error {
	const window = 10 * time.Second
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
		pack  bool
	}{
		{"nothing is packed", nil, false},
		{"packing", nil, true},
		{fmt.Sprintf("packing with --pack-cpus %d", runtime.NumCPU()), []string{"--pack-cpus", fmt.Sprint(runtime.NumCPU())}, true},
	} {
		if err := b.remount(way.flags...); err != nil {
			return err
		}
		var taken, packed sample
		for round := range b.rounds {
			c, err := b.converse("training.py")
			if err != nil {
				return err
			}
			path := filepath.Join(b.daemon.Dir, fmt.Sprintf("train%d.bin", round))
			time.Sleep(2 * time.Second) // the loop's own beginning
			if way.pack {
				copy(data, []byte(fmt.Sprint(way.name, round)))
				for i := 0; i < len(data); i += 4096 { // new to the store in every chunk
					data[i]++
				}
				if err := os.WriteFile(path, data, 0o644); err != nil {
					return err
				}
			}
			if err := c.ask(&step, "forget"); err != nil {
				return err
			}
			before := b.segments()
			time.Sleep(window)
			if err := c.ask(&step, "step"); err != nil {
				return err
			}
			taken.add(1e3 * step.Mean)
			if way.pack {
				packed.add(float64(b.segments()-before) / 1e6 / window.Seconds())
			}
			if err := errors.Join(c.close(), b.sync(), b.settle()); err != nil {
				return err
			}
		}
		rows = append(rows, []string{way.name, taken.text(), packed.text()})
	}
	table("a training loop on all cores, beside packing", []string{"", "ms a step, mean", "packed meanwhile, MB/s"}, rows)
	return b.remount()
}

// segments is what the store's segments take on the disk.
func (b *bench) segments() int64 {
	n, _ := diskUsage(filepath.Join(b.daemon.Store, "segments"))
	return n
}
