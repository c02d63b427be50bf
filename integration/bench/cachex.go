package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// cachex times torchcachex's pattern while its cache grows: a flush of 1000 samples of 256 bytes, an index
// written again.
func (b *bench) cachex() error {
	const flush, windows = 1000, 10
	samples := 100_000
	if b.size >= 4<<30 {
		samples = 1_000_000
	}
	dirs := map[bool]string{false: filepath.Join(b.plain, "cachex"),
		true: filepath.Join(b.daemon.Dir, "cachex")}
	talk := map[bool]*conversation{}
	for ours, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		c, err := b.converse(filepath.Join("clients", "cachex.py"), dir, fmt.Sprint(flush))
		if err != nil {
			return err
		}
		defer c.close()
		talk[ours] = c
	}
	type reply struct {
		Flush          []float64
		Seconds        float64
		Samples        int
		Index, Segment int64
	}
	type stats struct {
		Stored int64 `json:"stored_bytes"`
	}
	var rows [][]string
	for window, at := 0, 0; window < windows; window++ {
		n := samples / flush / windows
		var p, q pair
		var before, after stats
		var wrote reply
		if err := errors.Join(b.sync(), b.json(&before, "stats", "--json", b.daemon.Dir)); err != nil {
			return err
		}
		for range n {
			for _, ours := range []bool{at%2 == 0, at%2 != 0} {
				var r reply
				if err := talk[ours].ask(&r, "fill 1"); err != nil {
					return err
				}
				s := &p.plain
				if ours {
					s, wrote = &p.ours, r
				}
				s.add(r.Flush[0] * 1e3)
			}
			at++
		}
		if err := errors.Join(b.sync(), b.json(&after, "stats", "--json", b.daemon.Dir)); err != nil {
			return err
		}
		for _, ours := range []bool{true, false, false, true} {
			var r reply
			if err := talk[ours].ask(&r, "read"); err != nil {
				return err
			}
			if ours {
				q.ours.add(r.Seconds * 1e3)
			} else {
				q.plain.add(r.Seconds * 1e3)
			}
		}
		rows = append(rows, []string{fmt.Sprintf("%d samples, index %s", wrote.Samples, bytesText(wrote.Index)),
			p.plain.text(), p.ours.text(), p.ratio(), q.plain.text(), q.ours.text(),
			bytesText((after.Stored - before.Stored) / int64(n)), bytesText(wrote.Segment)})
	}
	table(fmt.Sprintf("torchcachex's pattern: milliseconds a flush of %d samples, and to read 10 batches of 100; what a flush adds to the store", flush),
		[]string{"", "flush, plain", "ckptfs", "ratio", "read, plain", "ckptfs", "stored a flush",
			"a segment"}, rows)
	return nil
}
