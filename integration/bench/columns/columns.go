// Package columns prints tables.
package columns

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Print prints rows under heads in columns: the first to the left, the others to the right.
func Print(title string, heads []string, rows [][]string) {
	rows = slices.Concat([][]string{heads}, rows)
	width := make([]int, len(heads))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Printf("\n%s\n", title)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("   " + pad + cell)
			}
		}
		fmt.Println(strings.TrimRight(line.String(), " "))
	}
}
