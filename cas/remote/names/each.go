package names

import (
	"container/heap"

	"ckptfs/cas/remote/record"
)

// Parts gives a list of entries, ascending by path, part after part; nil at its end.
type Parts func() ([]record.Entry, error)

// Each calls f with all that the lists hold of each path, ascending. It keeps a part of each list, and what
// is held of one path.
func Each(lists []Parts, f func(path string, held []*record.Entry) error) error {
	var h cursors
	for _, next := range lists {
		c := &cursor{next: next}
		if ok, err := c.advance(); err != nil {
			return err
		} else if ok {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	var held []*record.Entry
	for len(h) > 0 {
		path := h[0].part[0].Path
		held = held[:0]
		for len(h) > 0 && h[0].part[0].Path == path {
			c := h[0]
			held = append(held, &c.part[0])
			c.part = c.part[1:]
			ok, err := c.advance()
			switch {
			case err != nil:
				return err
			case ok:
				heap.Fix(&h, 0)
			default:
				heap.Pop(&h)
			}
		}
		if err := f(path, held); err != nil {
			return err
		}
	}
	return nil
}

// cursor is how far a list was read.
type cursor struct {
	part []record.Entry // what is left of the part
	next Parts
}

// advance reads the next part where nothing is left of this one; false: that was the last.
func (c *cursor) advance() (ok bool, err error) {
	for len(c.part) == 0 {
		if c.part, err = c.next(); c.part == nil || err != nil {
			return false, err
		}
	}
	return true, nil
}

// cursors are a heap by the path that comes next.
type cursors []*cursor

func (h cursors) Len() int { return len(h) }
func (h cursors) Less(i, j int) bool {
	return record.ComparePaths(h[i].part[0].Path, h[j].part[0].Path) < 0
}
func (h cursors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *cursors) Push(x any)   { *h = append(*h, x.(*cursor)) }
func (h *cursors) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
