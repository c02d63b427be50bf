package main

import (
	"fmt"

	"ckptfs/integration/bench/columns"
)

// report prints two tables: sizes of every set by every program, and speeds.
func report(sets []set, ours map[string]result, others []figure) {
	peers := []string{"zstd -1", "zstd -3", "ZipNN", "z4ai", "BigSmall", "xet", "BitX"}
	of := func(set, peer string) *figure {
		for i := range others {
			if others[i].Set == set && others[i].Peer == peer {
				return &others[i]
			}
		}
		return nil
	}
	timed := []string{"zstd -1", "ZipNN", "z4ai", "BitX"}
	var sizes, speeds [][]string
	for _, s := range sets {
		r := ours[s.Name]
		row := []string{s.Name, fmt.Sprintf("%.1f", float64(r.raw)/1e6), percent(r.limit), percent(r.size)}
		for _, p := range peers {
			if f := of(s.Name, p); f != nil {
				row = append(row, percent(f.Size))
			} else {
				row = append(row, "–")
			}
		}
		sizes = append(sizes, row)
		row = []string{s.Name, fmt.Sprintf("%.2f / %.2f", r.encode, r.dec),
			fmt.Sprintf("%.2f / %.2f", r.encodeAll, r.da)}
		for _, p := range timed {
			if f := of(s.Name, p); f != nil && f.Encode != nil && f.Decode != nil {
				row = append(row, fmt.Sprintf("%.2f / %.2f", *f.Encode, *f.Decode))
			} else {
				row = append(row, "–")
			}
		}
		speeds = append(speeds, row)
	}
	columns.Print("stored, % of raw", append([]string{"", "MB", "order-0 limit", "ckptfs"}, peers...), sizes)
	columns.Print("GB/s, encode / decode", append([]string{"", "ckptfs, one core", "ckptfs, all"}, timed...), speeds)
}

func percent(share float64) string { return fmt.Sprintf("%.2f", 100*share) }
