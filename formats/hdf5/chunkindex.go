package hdf5

import (
	"ckptfs/formats"
)

// The indexes of chunks that layout version 4 has, by their number in the layout message.
const (
	singleChunk = 1 // the layout has the chunk's address
	implicit    = 2 // all chunks, one after the other
	fixedArray  = 3 // "FAHD", which leads to "FADB": an address each, and of filtered ones a size
	growsInOne  = 4 // a dimension: an extensible array
	growsInMany = 5 // dimensions: a B-tree of version 2
)

// chunked4 adds the chunks of a dataset of layout version 4, or 5 (HDF5 2.0), where chunks may be longer:
//
//	version, class 2, flags, D = dimensions and one more, E, then D numbers of E bytes:
//	the chunks' dimensions, the element's size
//	index   1 byte; what it needs; address
//
// Flag 1 is that of a single chunk that is filtered: its size and filter mask are what the index needs.
func (f *file) chunked4(o *object, t formats.Tensor, width int64) error {
	p := o.layout
	rank := len(t.Shape)
	if len(p) < 5 {
		return reject("dataset %.64q: a layout of %d bytes", t.Name, len(p))
	}
	flags, enc := p[2], int(p[4])
	at := 5 + (rank+1)*enc
	if int(p[3]) != rank+1 || enc < 1 || enc > 8 || len(p) < at+9 {
		return reject("dataset %.64q: a layout of %d bytes", t.Name, len(p))
	}
	dims, counts, most := make([]int64, rank), make([]int64, rank), make([]int64, rank)
	count, all, size := int64(1), int64(1), width
	// the dimension that is the slowest in the order of an index that says no places: that which grows
	along := 0
	for i, bound := range bounds(o.space, t.Shape) {
		c := int64(littleEndian(p[5+i*enc:][:enc]))
		if c <= 0 || c > maxChunk/size {
			return reject("dataset %.64q: chunks that are too large", t.Name)
		}
		size *= c
		dims[i], counts[i] = c, (t.Shape[i]-1)/c+1 // a shape of nothing is no chunks
		if counts[i] > maxVisits/count {
			return reject("dataset %.64q: more than %d chunks", t.Name, maxVisits)
		}
		count *= counts[i]
		if most[i] = counts[i]; bound < 0 {
			along = i
		} else {
			most[i] = (bound-1)/c + 1
		}
		if all = min(all, maxVisits+1) * min(most[i], maxVisits+1); all > maxVisits {
			all = maxVisits + 1
		}
	}
	index := p[at]
	p = p[at+1:]
	var found []chunk
	next := int64(0)
	add := func(at uint64, n int64, place []byte) error {
		i := next
		if next++; at == undefined { // not written
			return nil
		}
		if n < 0 || at > uint64(f.size) || n > f.size-int64(at) {
			return reject("dataset %.64q: a chunk past the file", t.Name)
		}
		c := chunk{Range: formats.Range{Off: int64(at), Len: n}}
		switch {
		case o.filters:
		case place != nil:
			c.origin = make([]int64, rank)
			for d := range dims {
				k := le.Uint64(place[8*d:])
				if k >= uint64(counts[d]) {
					return reject("dataset %.64q: a chunk past its end", t.Name)
				}
				c.origin[d] = int64(k) * dims[d]
			}
		default:
			c.origin = make([]int64, rank)
			for d := rank - 1; d >= 0; d-- {
				if d == along {
					continue
				}
				c.origin[d] = i % most[d]
				i /= most[d]
			}
			if rank > 0 {
				c.origin[along] = i
			}
			for d := range dims {
				if c.origin[d] >= counts[d] {
					return nil // of what the dataset was before it shrank
				}
				c.origin[d] *= dims[d]
			}
		}
		found = append(found, c)
		return f.visit()
	}
	var err error
	switch index {
	case singleChunk:
		n := size
		if flags&2 != 0 {
			if len(p) < 20 {
				return reject("dataset %.64q: a layout that ends", t.Name)
			}
			n, p = int64(le.Uint64(p)), p[12:]
		} else if o.filters { // no field says how long it is
			f.leave(filtered)
			return nil
		}
		if len(p) < 8 {
			return reject("dataset %.64q: a layout that ends", t.Name)
		}
		err = add(le.Uint64(p), n, nil)
	case implicit:
		base := le.Uint64(p)
		for i := int64(0); i < all && all <= maxVisits && err == nil && base != undefined; i++ {
			err = add(base+uint64(i*size), size, nil)
		}
	case fixedArray, growsInOne, growsInMany:
		// what the head of the index says, too
		skip := map[byte]int{fixedArray: 1, growsInOne: 5, growsInMany: 6}[index]
		if len(p) < skip+8 {
			return reject("dataset %.64q: a layout that ends", t.Name)
		}
		e := chunkElem{size, add}
		if o.filters {
			e.size = 0
		}
		head := le.Uint64(p[skip:])
		switch {
		case head == undefined:
		case index == fixedArray && all > maxVisits:
			f.leave(unknownChunks)
			return nil
		case index == fixedArray:
			err = f.fixedArray(head, all, e)
		case index == growsInOne:
			err = f.extensibleArray(head, e)
		default:
			err = f.chunkTree(head, rank, e)
		}
	}
	if err != nil {
		return err
	}
	return f.tile(o, t, dims, width, found)
}

// maxChunk bounds a chunk, in bytes; HDF5's own bound.
const maxChunk = 1 << 32

// littleEndian reads a number of up to 8 bytes.
func littleEndian(p []byte) (v uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	return v
}

// fixedArray takes count chunks.
//
//	"FAHD"  version 0, client (1: filtered), bytes of an element, page bits, u64 elements, u64 address of
//	        the block, checksum
//	"FADB"  version 0, client, u64 address of the head
//	        up to 2^(page bits) elements: the elements, checksum
//	        more: a bit for each page that says whether it was written, checksum; then the pages, each
//	        followed by its checksum
func (f *file) fixedArray(at uint64, count int64, e chunkElem) error {
	p, err := f.read(at, 24)
	if err != nil {
		return err
	}
	elem, pageBits := int64(p[6]), p[7]
	block, filtered := le.Uint64(p[16:]), e.size == 0
	if string(p[:4]) != "FAHD" || p[4] != 0 || p[5] > 1 || (p[5] == 1) != filtered || !e.fits(elem) ||
		int64(le.Uint64(p[8:])) != count || pageBits > 30 {
		return reject("no fixed array at %d", at)
	}
	if block == undefined {
		return nil
	}
	elements := func(at uint64, n int64) error {
		p, err := f.read(at, n*elem)
		for ; err == nil && len(p) > 0; p = p[elem:] {
			err = e.take(p[:elem], nil)
		}
		return err
	}
	const head, sum = 14, 4
	if p, err = f.read(block, head); err != nil {
		return err
	}
	if string(p[:4]) != "FADB" || p[4] != 0 || (p[5] == 1) != filtered || le.Uint64(p[6:]) != at {
		return reject("no block of a fixed array at %d", block)
	}
	page := int64(1) << pageBits
	if count <= page {
		return elements(block+head, count)
	}
	pages := (count + page - 1) / page
	written, err := f.read(block+head, (pages+7)/8)
	if err != nil {
		return err
	}
	from := block + head + uint64(len(written)) + sum
	for i := int64(0); i < pages; i++ {
		n := min(page, count-i*page)
		if written[i/8]&(0x80>>(i%8)) != 0 {
			if err := elements(from, n); err != nil {
				return err
			}
		}
		from += uint64(n*elem + sum)
	}
	return nil
}
