package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// evostore is EvoStore's experiment of incremental writes, in small: a model of 100 layers, of which a share
// was trained since its parent, saved by several writers at once. The bandwidth is what all models take,
// changed or not, by the time until the last close; and until all of it is durable.
func (b *bench) evostore() error {
	const layers = 100
	model := b.size / 10
	ways := []struct {
		name, way string
		mounted   bool
	}{
		{"HDF5, plain folder", "hdf5", false},
		{"safetensors, plain folder", "safetensors", false},
		{"HDF5, mount", "hdf5", true},
		{"safetensors, mount", "safetensors", true},
		{"derive, mount", "derive", true},
	}
	for _, changed := range []int{25, 50, 75, 100} {
		if len(b.named) > 0 && !slices.Contains(b.named, fmt.Sprint(changed)) {
			continue
		}
		var rows [][]string
		for _, writers := range []int{1, 2, 4, 8} {
			closed, durable, stored := make([]sample, len(ways)), make([]sample, len(ways)),
				make([]sample, len(ways))
			for round := range b.rounds {
				for i := range ways {
					k := (i + round) % len(ways) // no way is always the first
					t, d, n, err := b.incremental(ways[k].way, ways[k].mounted, writers,
						layers, model, changed)
					if err != nil {
						return fmt.Errorf("%s: %w", ways[k].name, err)
					}
					gb := float64(int64(writers)*model) / 1e9
					closed[k].add(gb / t)
					durable[k].add(gb / d)
					stored[k].add(float64(n) / float64(int64(writers)*model))
				}
			}
			for i, w := range ways {
				first := []string{"", ""}
				if i == 0 {
					first[0] = fmt.Sprint(writers)
				}
				first[1] = w.name
				rows = append(rows, append(first, closed[i].text(), (&pair{closed[0], closed[i]}).ratio(),
					durable[i].text(), (&pair{durable[0], durable[i]}).ratio(),
					fmt.Sprintf("%.0f %%", 100*stored[i].median())))
			}
		}
		table(fmt.Sprintf("%d %% of %d layers changed, models of %s: GB/s of all models, until closed and until durable; ratios to HDF5 in the plain folder; what the disk took, of the models", changed, layers, bytesText(model)),
			[]string{"writers", "", "closed", "ratio", "durable", "ratio", "stored"}, rows)
	}
	return nil
}

// incremental is one run: seconds until the last close and until durable, and the bytes that the disk took
// for the children. The store is a new one.
func (b *bench) incremental(way string, mounted bool, writers, layers int, model int64, changed int) (closed,
	durable float64, stored int64, err error) {
	dir, err := os.MkdirTemp(b.dir, "evostore-")
	if err != nil {
		return 0, 0, 0, err
	}
	defer os.RemoveAll(dir)
	folder, taken, sync := filepath.Join(dir, "plain"), "", b.settle
	taken = folder
	if mounted {
		fresh, err := b.fresh(dir)
		if err != nil {
			return 0, 0, 0, err
		}
		defer fresh.daemon.Clean()
		folder, taken, sync = fresh.daemon.Dir, filepath.Join(fresh.daemon.Store, "segments"), fresh.sync
	} else if err := os.Mkdir(folder, 0o755); err != nil {
		return 0, 0, 0, err
	}
	c, err := b.converse("evostore.py", way, folder, fmt.Sprint(writers), fmt.Sprint(layers),
		fmt.Sprint(model), fmt.Sprint(changed*layers/100))
	if err != nil {
		return 0, 0, 0, err
	}
	if err := errors.Join(sync(), b.settle()); err != nil {
		return 0, 0, 0, errors.Join(err, c.close())
	}
	before, err := diskUsage(taken)
	if err != nil {
		return 0, 0, 0, errors.Join(err, c.close())
	}
	var took struct{ Seconds float64 }
	if err := c.ask(&took, ""); err != nil {
		return 0, 0, 0, errors.Join(err, c.close())
	}
	start := time.Now()
	if err := sync(); err != nil {
		return 0, 0, 0, errors.Join(err, c.close())
	}
	durable = took.Seconds + time.Since(start).Seconds()
	after, err := diskUsage(taken)
	return took.Seconds, durable, after - before, errors.Join(err, c.close())
}

// fresh mounts a new store in dir. Whoever asked ends its daemon.
func (b *bench) fresh(dir string) (*bench, error) {
	fresh, own := *b, *b.daemon
	own.Store, own.Dir = filepath.Join(dir, "store"), filepath.Join(dir, "mnt")
	fresh.daemon = &own
	return &fresh, errors.Join(os.Mkdir(own.Dir, 0o755), fresh.mount())
}
