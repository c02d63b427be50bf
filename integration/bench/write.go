package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas"
)

const blockSize = 1 << 20

// writeFile writes data in blocks of 1 MiB and returns how long that took, close and all.
func writeFile(path string, data []byte) (time.Duration, error) {
	start := time.Now()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	for off := 0; off < len(data); off += blockSize {
		if _, err := f.Write(data[off:min(off+blockSize, len(data))]); err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
	err = f.Close()
	return time.Since(start), err
}

// syncFile makes a file durable and returns how long that took.
func syncFile(path string) (time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = errors.Join(f.Sync(), f.Close())
	return time.Since(start), err
}

// rate is GB/s, of 10⁹ bytes.
func rate(n int, d time.Duration) float64 { return float64(n) / 1e9 / d.Seconds() }

// written is one kind of write.
type written struct {
	until   pair   // close
	durable pair   // from the first write until fsync, or `ckptfs sync`, says so
	behind  sample // packing alone, from close on
}

// writePair writes the payload to both sides, first the plain one on even rounds.
func (b *bench) writePair(p *payload, round int, w *written) error {
	n := len(p.bytes)
	name := fmt.Sprintf("bench-%d%s", round, p.ext)
	plain := func() error {
		path := filepath.Join(b.plain, name)
		d, err := writeFile(path, p.bytes)
		if err != nil {
			return err
		}
		w.until.plain.add(rate(n, d))
		flush, err := syncFile(path)
		if err != nil {
			return err
		}
		w.durable.plain.add(rate(n, d+flush))
		return errors.Join(os.Remove(path), b.settle())
	}
	ours := func() error {
		path := filepath.Join(b.daemon.Dir, name)
		start := time.Now()
		d, err := writeFile(path, p.bytes)
		if err != nil {
			return err
		}
		if err := b.sync(); err != nil {
			return err
		}
		all := time.Since(start) - b.syncCost
		w.until.ours.add(rate(n, d))
		w.durable.ours.add(rate(n, all))
		w.behind.add(rate(n, max(all-d, time.Microsecond)))
		// What the kernel keeps of segments would grow into memory that a virtual machine's host has to find
		// first, at 0.5 GB/s; the plain side takes the same pages in each round.
		return errors.Join(os.Remove(path), b.settle(), b.coolStore())
	}
	steps := []func() error{plain, ours}
	if round%2 == 1 {
		steps[0], steps[1] = ours, plain
	}
	if err := b.settle(); err != nil {
		return err
	}
	return errors.Join(steps[0](), steps[1]())
}

var stored = []struct {
	name string
	part float64 // of the bytes that are new
}{{"new", 1}, {"90 % stored", 0.1}, {"100 % stored", 0}}

func (b *bench) writes() error { return b.writeKinds(0) }

// dedup is the part of writes where most is stored already.
func (b *bench) dedup() error { return b.writeKinds(1) }

func (b *bench) writeKinds(from int) error {
	all, err := b.payloads()
	if err != nil {
		return err
	}
	before, _ := b.memory()
	b.resetPeak()
	var rows [][]string
	var duplicates sample
	for _, p := range all {
		kinds := make([]written, len(stored))
		for round := range b.rounds {
			for i, kind := range stored {
				// The kinds follow each other in a round: what the first wrote is what the next finds stored.
				if i < from && round > 0 {
					continue
				}
				p.change(kind.part)
				if err := b.writePair(p, round, &kinds[i]); err != nil {
					return err
				}
			}
		}
		for i, kind := range stored[from:] {
			w := &kinds[from+i]
			rows = append(rows, []string{p.format + ", " + kind.name,
				w.until.plain.text(), w.until.ours.text(), w.until.ratio(),
				w.durable.plain.text(), w.durable.ours.text(), w.durable.ratio()})
		}
		duplicates = append(duplicates, kinds[len(kinds)-1].behind...)
	}
	table("write, GB/s", []string{"", "plain until close", "ckptfs until close", "ratio",
		"plain until fsync", "ckptfs until packed", "ratio"}, rows)

	hash := hashRate(all[0].bytes, b.rounds)
	table("hashing, GB/s", []string{"", "", "ratio"}, [][]string{
		{"BLAKE3 of chunks in memory, all cores", hash.text(), ""},
		{"packing what is stored already, from close on", duplicates.text(), fmt.Sprintf("%.2fx", duplicates.median()/hash.median())},
	})
	b.tellMemory(before)
	return nil
}

// hashRate is what the store's hash reaches over a payload's chunks on all cores, with nothing else to do.
func hashRate(data []byte, rounds int) sample {
	var s sample
	for range rounds {
		var next atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for range runtime.NumCPU() {
			wg.Go(func() {
				for {
					off := int(next.Add(cas.ChunkSize)) - cas.ChunkSize
					if off >= len(data) {
						return
					}
					cas.Sum(data[off:min(off+cas.ChunkSize, len(data))])
				}
			})
		}
		wg.Wait()
		s.add(rate(len(data), time.Since(start)))
	}
	return s
}

func (b *bench) tellMemory(before int64) {
	now, peak := b.memory()
	fmt.Printf("\nmemory of the daemon: %s before, %s at most, %s after\n", bytesText(before), bytesText(peak), bytesText(now))
}
