package hdf5

import (
	"math/bits"

	"ckptfs/formats"
)

// The indexes of chunks that layout version 4 has, by their number in the layout message. The others (4 extensible array, 5
// B-tree version 2: datasets that can grow) are not read.
const (
	singleChunk = 1 // the layout has the chunk's address
	implicit    = 2 // all chunks, one after the other
	fixedArray  = 3 // "FAHD", which leads to "FADB": an address each, and of filtered ones a size
)

// chunked4 adds the chunks of a dataset of layout version 4, or 5 (HDF5 2.0), where chunks may be longer:
//
//	version, class 2, flags, D = dimensions and one more, E, then D numbers of E bytes: the chunks' dimensions, the element's size
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
	whole, count, size := !o.filters, int64(1), width
	for i, n := range t.Shape {
		c := int64(littleEndian(p[5+i*enc:][:enc]))
		if c <= 0 || c > maxChunk/size {
			return reject("dataset %.64q: chunks that are too large", t.Name)
		}
		whole = whole && c == n
		size *= c
		hi, lo := bits.Mul64(uint64(count), uint64((n-1)/c+1)) // n > 0
		if hi != 0 || lo > maxVisits {
			return reject("dataset %.64q: more than %d chunks", t.Name, maxVisits)
		}
		count = int64(lo)
	}
	index := p[at]
	p = p[at+1:]
	var found []formats.Range
	add := func(at uint64, n int64) error {
		if at == undefined { // not written
			whole = false
			return nil
		}
		if n < 0 || at > uint64(f.size) || n > f.size-int64(at) {
			return reject("dataset %.64q: a chunk past the file", t.Name)
		}
		found = append(found, formats.Range{Off: int64(at), Len: n})
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
		} else if o.filters { // nobody says how long it is
			f.layout.Partial = true
			return nil
		}
		if len(p) < 8 {
			return reject("dataset %.64q: a layout that ends", t.Name)
		}
		err = add(le.Uint64(p), n)
	case implicit:
		base := le.Uint64(p)
		for i := int64(0); i < count && err == nil && base != undefined; i++ {
			err = add(base+uint64(i*size), size)
		}
		whole = whole && base != undefined
	case fixedArray:
		if len(p) < 9 {
			return reject("dataset %.64q: a layout that ends", t.Name)
		}
		if head := le.Uint64(p[1:]); head == undefined {
			whole = false
		} else {
			err = f.fixedArray(head, count, size, o.filters, add)
		}
	default:
		whole = false
	}
	if err != nil {
		return err
	}
	return f.wholeOrPieces(t, found, whole, width)
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

// fixedArray calls add with the place of each of count chunks; those that are not filtered have size bytes.
//
//	"FAHD"  version 0, client (1: filtered), bytes of an element, page bits, u64 elements, u64 address of the block, checksum
//	"FADB"  version 0, client, u64 address of the head
//	        up to 2^(page bits) elements: the elements, checksum
//	        more: a bit for each page that says whether it was written, checksum; then the pages, each followed by its checksum
//
// An element is an address, and of a filtered chunk its size and u32 filter mask.
func (f *file) fixedArray(at uint64, count, size int64, filtered bool, add func(at uint64, n int64) error) error {
	p, err := f.read(at, 24)
	if err != nil {
		return err
	}
	elem, pageBits := int64(p[6]), p[7]
	block := le.Uint64(p[16:])
	least := int64(8)
	if filtered {
		least = 8 + 1 + 4
	}
	if string(p[:4]) != "FAHD" || p[4] != 0 || p[5] > 1 || (p[5] == 1) != filtered || elem < least || elem > 8+8+4 || !filtered && elem != 8 ||
		int64(le.Uint64(p[8:])) != count || pageBits > 30 {
		return reject("no fixed array at %d", at)
	}
	if block == undefined {
		return nil
	}
	elements := func(at uint64, n int64) error {
		p, err := f.read(at, n*elem)
		for ; err == nil && len(p) > 0; p = p[elem:] {
			n := size
			if filtered {
				n = int64(littleEndian(p[8 : elem-4]))
			}
			err = add(le.Uint64(p), n)
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
