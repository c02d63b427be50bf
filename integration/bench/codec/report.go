package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
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
	sizes := [][]string{append([]string{"stored, % of raw", "MB", "order-0 limit", "ckptfs"}, peers...)}
	speeds := [][]string{{"GB/s, encode / decode", "ckptfs, one core", "ckptfs, all", "zstd -1", "ZipNN", "z4ai", "BitX"}}
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
		row = []string{s.Name, fmt.Sprintf("%.2f / %.2f", r.encode, r.dec), fmt.Sprintf("%.2f / %.2f", r.encodeAll, r.da)}
		for _, p := range speeds[0][3:] {
			if f := of(s.Name, p); f != nil && f.Encode != nil && f.Decode != nil {
				row = append(row, fmt.Sprintf("%.2f / %.2f", *f.Encode, *f.Decode))
			} else {
				row = append(row, "–")
			}
		}
		speeds = append(speeds, row)
	}
	table(sizes)
	table(speeds)
}

func percent(share float64) string { return fmt.Sprintf("%.2f", 100*share) }

// table prints rows in columns, the first row being the head: the first column to the left, the others to the right.
func table(rows [][]string) {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Println()
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("   " + pad + cell)
			}
		}
		fmt.Println(strings.TrimRight(line.String(), " "))
	}
}
