package recipes

// layout says where the elements of a target are in its sources.
type layout interface {
	// runs calls add with where n elements from first on are, in order: which source it is, or zeros or
	// unknown, and the first of some of its elements.
	runs(first, n int64, add func(source int, first, n int64))
}

// What is in none of the sources.
const (
	zeros   = -1
	unknown = -2
)

// straight is a layout in which all elements are where they were.
type straight struct{}

func (straight) runs(first, n int64, add func(source int, first, n int64)) { add(0, first, n) }

// rope is one with rows of so many columns in heads of so many rows, in each of which row 2i+b is the source's
// row b*heads/2 + i, or the other way around.
type rope struct {
	cols, head int64
	back       bool
}

func (l rope) row(r int64) int64 {
	h, i := r/l.head*l.head, r%l.head
	if l.back {
		return h + i%(l.head/2)*2 + i/(l.head/2)
	}
	return h + i%2*(l.head/2) + i/2
}

func (l rope) runs(first, n int64, add func(source int, first, n int64)) {
	for n > 0 {
		r, c := first/l.cols, first%l.cols
		m := min(n, l.cols-c)
		add(0, l.row(r)*l.cols+c, m)
		first, n = first+m, n-m
	}
}
