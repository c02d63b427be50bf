package formats

import (
	"cmp"
	"fmt"
	"slices"
)

// Range is bytes of a file.
type Range struct{ Off, Len int64 }

// Cover makes the regions of a file of size bytes in which each of the ranges is a Data region and all else
// is Blob. index[i] is the region of data[i], -1 when that is empty. Equal ranges share one region; ranges
// that overlap otherwise, or lie outside, are an error.
func Cover(size int64, data []Range) (regions []Region, index []int, err error) {
	order := make([]int, 0, len(data))
	index = make([]int, len(data))
	for i, d := range data {
		if index[i] = -1; d.Len == 0 {
			continue
		}
		if d.Off < 0 || d.Len < 0 || d.Off > size || d.Len > size-d.Off {
			return nil, nil, fmt.Errorf("bytes [%d, +%d) in a file of %d", d.Off, d.Len, size)
		}
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(data[i].Off, data[j].Off), cmp.Compare(data[i].Len, data[j].Len))
	})
	var end int64
	blob := func(to int64) {
		if to > end {
			regions = append(regions, Region{Off: end, Len: to - end, Kind: Blob})
		}
	}
	for k, i := range order {
		d := data[i]
		if k > 0 && data[order[k-1]] == d {
			index[i] = index[order[k-1]]
			continue
		}
		if d.Off < end {
			return nil, nil, fmt.Errorf("bytes [%d, +%d) overlap those before %d", d.Off, d.Len, end)
		}
		blob(d.Off)
		index[i] = len(regions)
		regions = append(regions, Region{Off: d.Off, Len: d.Len, Kind: Data})
		end = d.Off + d.Len
	}
	blob(size)
	return regions, index, nil
}

// Cover lays out a file of size bytes as the function Cover does. A tensor's Region is until then that of its
// data, or negative.
func (l *Layout) Cover(size int64, data []Range) error {
	regions, index, err := Cover(size, data)
	if err != nil {
		return err
	}
	l.Regions = regions
	for i := range l.Tensors {
		if t := &l.Tensors[i]; t.Region >= 0 {
			t.Region = index[t.Region]
		}
	}
	return nil
}

// joinBlobs is the length below which a blob that follows another is made one with it.
const joinBlobs = 64 << 10

// end is where the regions end.
func (l *Layout) end() int64 {
	if n := len(l.Regions); n > 0 {
		return l.Regions[n-1].Off + l.Regions[n-1].Len
	}
	return 0
}

// Place appends inner, the layout of the bytes from l's end on, with prefix before its tensors' names.
func (l *Layout) Place(inner *Layout, prefix string) {
	base := l.end()
	index := make([]int, len(inner.Regions))
	for i, r := range inner.Regions {
		r.Off += base
		index[i] = l.add(r)
	}
	for _, t := range inner.Tensors {
		if t.Name = prefix + t.Name; t.Region >= 0 {
			t.Region = index[t.Region]
		}
		l.Tensors = append(l.Tensors, t)
	}
	l.Partial = l.Partial || inner.Partial
	for why, n := range inner.Left {
		if l.Left == nil {
			l.Left = map[string]int{}
		}
		l.Left[why] += n
	}
}

// Fill makes the bytes from l's end up to end Blob.
func (l *Layout) Fill(end int64) {
	if base := l.end(); end > base {
		l.add(Region{Off: base, Len: end - base, Kind: Blob})
	}
}

// add appends a region, and returns its index.
func (l *Layout) add(r Region) int {
	if n := len(l.Regions); n > 0 && r.Kind == Blob {
		if last := &l.Regions[n-1]; last.Kind == Blob && (last.Len < joinBlobs || r.Len < joinBlobs) {
			last.Len += r.Len
			return n - 1
		}
	}
	l.Regions = append(l.Regions, r)
	return len(l.Regions) - 1
}
