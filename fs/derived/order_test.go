package derived

import (
	"testing"

	"ckptfs/formats"
)

func TestOrder(t *testing.T) {
	shape := func(rows, cols int64) *formats.Tensor {
		return &formats.Tensor{DType: formats.BF16, Shape: []int64{rows, cols}}
	}
	rows := func(n, cols int64, from func(r int64) int64) (runs []stretch) {
		for r := range n {
			runs = append(runs, stretch{r * cols, from(r) * cols, cols})
		}
		return runs
	}
	for want, x := range map[string]struct {
		runs    []stretch
		t, base *formats.Tensor
	}{
		"rows 8–15":     {[]stretch{{0, 8 * 64, 512}}, shape(8, 64), shape(32, 64)},
		"rope-permuted": {rows(32, 64, func(r int64) int64 { return roped(r, 8, false) }), shape(32, 64), shape(32, 64)},
		"rows in another order": {rows(32, 64, func(r int64) int64 { return 31 - r }), shape(32, 64),
			shape(32, 64)},
		"columns 16–31": {[]stretch{{0, 16, 16}, {16, 80, 16}, {32, 144, 16}}, shape(8, 16), shape(8, 64)},
		"elements in another order": {[]stretch{{0, 16, 16}, {16, 84, 16}}, shape(8, 16),
			shape(8, 64)},
	} {
		if got := orderOf(x.runs, x.t, x.base); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	back := rows(16, 64, func(r int64) int64 { return roped(r, 16, true) })
	if got := orderOf(back, shape(16, 64), shape(16, 64)); got != "rope-permuted" {
		t.Errorf("%q of the way back", got)
	}
}
