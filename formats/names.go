package formats

import (
	"slices"
	"strconv"
)

// Distinguish gives tensors that have one name different ones: the first with the least depth keeps it, the
// next is name#2, unless a tensor has that name, and so on.
func Distinguish(tensors []Tensor, depth []int) {
	order := make([]int, len(tensors)) // least depth first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return depth[i] - depth[j] })
	wanted := make(map[string]int, len(tensors)) // name to the number given last
	taken := make(map[string]bool)               // names with numbers
	for _, i := range order {
		wanted[tensors[i].Name] = 0
	}
	for _, i := range order {
		name := tensors[i].Name
		wanted[name]++
		for n := wanted[name]; n > 1; n++ {
			numbered := name + "#" + strconv.Itoa(n)
			if _, used := wanted[numbered]; used || taken[numbered] {
				continue
			}
			wanted[name], taken[numbered], tensors[i].Name = n, true, numbered
			break
		}
	}
}
