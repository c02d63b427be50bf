package segment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"

	"ckptfs/cas/disk"
)

// holes are what the disk does not read of a file: whole blocks, by offset.
type holes struct {
	all []Range
	err error // the first
}

// unread describes them; nil: there are none.
func (h *holes) unread() error {
	if len(h.all) == 0 {
		return nil
	}
	n := int64(0)
	for _, r := range h.all {
		n += r.End - r.Off
	}
	return fmt.Errorf("%d bytes, the first at %d: %w", n, h.all[0].Off, h.err)
}

// in reports whether a part of r is in a hole.
func (h *holes) in(r Range) bool {
	i := h.after(r.Off)
	return i < len(h.all) && h.all[i].Off < r.End
}

// after is the first hole that ends behind off.
func (h *holes) after(off int64) int {
	return sort.Search(len(h.all), func(i int) bool { return h.all[i].End > off })
}

// fill is readFull, with zeros where there are holes.
func (h *holes) fill(f io.ReaderAt, p []byte, off int64) error {
	if !h.in(Range{off, off + int64(len(p))}) {
		err := readFull(f, p, off)
		if !disk.Unreadable(err) {
			return err
		}
	}
	for len(p) > 0 {
		n := min(disk.BlockSize-off%disk.BlockSize, int64(len(p)))
		if !h.in(Range{off, off + n}) {
			err := readFull(f, p[:n], off)
			if disk.Unreadable(err) {
				at := off / disk.BlockSize * disk.BlockSize
				h.add(Range{at, at + disk.BlockSize}, err)
			} else if err != nil {
				return err
			}
		}
		if h.in(Range{off, off + n}) {
			clear(p[:n])
		}
		off, p = off+n, p[n:]
	}
	return nil
}

// add adds what is in no hole yet.
func (h *holes) add(r Range, err error) {
	h.err = cmp.Or(h.err, err)
	i := h.after(r.Off)
	if i > 0 && h.all[i-1].End == r.Off {
		h.all[i-1].End = r.End
		i--
	} else {
		h.all = slices.Insert(h.all, i, r)
	}
	if i+1 < len(h.all) && h.all[i+1].Off == r.End {
		h.all[i].End = h.all[i+1].End
		h.all = slices.Delete(h.all, i+1, i+2)
	}
}

// LacksHoles reports whether a sealed segment takes more of the disk than recs, its records, need, since what
// made holes between them was cut short.
func (r *Reader) LacksHoles(recs []Record, t *Footer) bool {
	size, err := r.Size()
	if err != nil {
		return false
	}
	need := (size + disk.BlockSize - 1) / disk.BlockSize
	gs := Gaps(recs, t.Start())
	for _, g := range gs {
		need -= max(0, g.End/disk.BlockSize-(g.Off+disk.BlockSize-1)/disk.BlockSize)
	}
	if len(gs) > 2 { // what the disk needs to know where they are
		need += int64(1 + len(gs)/64)
	}
	got, err := r.Allocated()
	return err == nil && got > need*disk.BlockSize
}
