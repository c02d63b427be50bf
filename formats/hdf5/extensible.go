package hdf5

import "math/bits"

// chunkElem is what an element or a record says of a chunk: its address, and of a filtered one its size and a
// u32 filter mask.
type chunkElem struct {
	size int64 // of a chunk that is not filtered; 0: they are
	// place: a u64 for each dimension, in chunks; nil: it follows the one before
	add func(at uint64, n int64, place []byte) error
}

// take adds the chunk of p.
func (e chunkElem) take(p, place []byte) error {
	n := e.size
	if n == 0 {
		n = int64(littleEndian(p[8 : len(p)-4]))
	}
	return e.add(le.Uint64(p), n, place)
}

// fits reports whether elements may have so many bytes.
func (e chunkElem) fits(bytes int64) bool {
	if e.size > 0 {
		return bytes == 8
	}
	return bytes >= 8+1+4 && bytes <= 8+8+4
}

// extensible is an array of chunks that grows in one dimension.
//
//	"EAHD"  version 0, client (1: filtered), bytes of an element, bits of the most elements, elements I in
//	        the index block, least elements E in a data block, least data blocks P in a super block, bits of
//	        a page; six u64, u64 address of the index block
//	"EAIB"  version 0, client, u64 address of the head; I elements; 2 (P - 1) addresses of data blocks,
//	        which are those of the super blocks below 2 log2 P; then the addresses of the other super blocks
//	"EASB"  version 0, client, u64 address of the head, offset; where data blocks have pages, a bit for each
//	        page that says whether it was written; addresses of data blocks
//	"EADB"  version 0, client, u64 address of the head, offset; the elements; or, of more than a page, a
//	        checksum, and the pages, each followed by its own
//
// Super block u has 2^(u/2) data blocks of 2^((u+1)/2) E elements each. An offset has as many bytes as the
// most elements need.
type extensible struct {
	f        *file
	at       uint64
	e        chunkElem
	elem     int64
	offBytes int64
	least    int64 // E
	page     int64 // elements
	client   byte
}

func (f *file) extensibleArray(at uint64, e chunkElem) error {
	p, err := f.read(at, 68)
	if err != nil {
		return err
	}
	x := &extensible{f: f, at: at, e: e, elem: int64(p[6]), offBytes: (int64(p[7]) + 7) / 8,
		least: int64(p[9]), client: p[5]}
	most, inIndex, pointers, pageBits := int(p[7]), int64(p[8]), int(p[10]), p[11]
	if string(p[:4]) != "EAHD" || p[4] != 0 || p[5] > 1 || (p[5] == 1) != (e.size == 0) || !e.fits(x.elem) ||
		most > 64 || pageBits > 30 ||
		bits.OnesCount(uint(x.least)) != 1 || bits.OnesCount(uint(pointers)) != 1 {
		return reject("no extensible array at %d", at)
	}
	x.page = 1 << pageBits
	index := le.Uint64(p[60:])
	if index == undefined {
		return nil
	}
	supers := 1 + most - bits.TrailingZeros(uint(x.least))
	direct := 2 * bits.TrailingZeros(uint(pointers)) // super blocks whose data blocks the index block names
	if supers < direct {
		return reject("an extensible array of %d super blocks", supers)
	}
	const head = 14
	n := inIndex*x.elem + int64(2*(pointers-1)+supers-direct)*8
	if p, err = x.block(index, "EAIB", head, n); err != nil {
		return err
	}
	if p, err = x.elements(p, inIndex); err != nil {
		return err
	}
	for u := range supers {
		if u >= direct {
			err = x.super(le.Uint64(p), u)
			p = p[8:]
		}
		for range 1 << (u / 2) {
			if u >= direct || err != nil {
				break
			}
			err = x.data(le.Uint64(p), x.inBlock(u), nil, 0)
			p = p[8:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inBlock is how many elements the data blocks of super block u have.
func (x *extensible) inBlock(u int) int64 { return x.least << ((u + 1) / 2) }

// block reads the n bytes behind the head of a block.
func (x *extensible) block(at uint64, sign string, head, n int64) ([]byte, error) {
	if err := x.f.visit(); err != nil {
		return nil, err
	}
	p, err := x.f.read(at, head+n)
	if err != nil {
		return nil, err
	}
	if string(p[:4]) != sign || p[4] != 0 || p[5] != x.client || le.Uint64(p[6:]) != x.at {
		return nil, reject("no %s at %d", sign, at)
	}
	return p[head:], nil
}

// elements takes n of them from p.
func (x *extensible) elements(p []byte, n int64) (rest []byte, err error) {
	for ; n > 0; n-- {
		if err := x.e.take(p[:x.elem], nil); err != nil {
			return nil, err
		}
		p = p[x.elem:]
	}
	return p, nil
}

// super reads super block u.
func (x *extensible) super(at uint64, u int) error {
	if at == undefined {
		return nil
	}
	if u > 40 { // of 2^60 elements
		return reject("a super block of an extensible array at %d", at)
	}
	blocks, elems := int64(1)<<(u/2), x.inBlock(u)
	var pages, written int64
	if elems > x.page {
		pages = elems / x.page
		written = blocks * ((pages + 7) / 8)
	}
	p, err := x.block(at, "EASB", 14+x.offBytes, written+blocks*8)
	if err != nil {
		return err
	}
	for i := range blocks {
		if err := x.data(le.Uint64(p[written+8*i:]), elems, p[:written], i*pages); err != nil {
			return err
		}
	}
	return nil
}

// data reads a data block of n elements. Which of its pages were written say the bits of written from first
// on.
func (x *extensible) data(at uint64, n int64, written []byte, first int64) error {
	if at == undefined {
		return nil
	}
	head := 14 + x.offBytes
	if n <= x.page {
		p, err := x.block(at, "EADB", head, n*x.elem)
		if err == nil {
			_, err = x.elements(p, n)
		}
		return err
	}
	const sum = 4
	if _, err := x.block(at, "EADB", head, sum); err != nil {
		return err
	}
	from := at + uint64(head+sum)
	for i := range n / x.page {
		if k := first + i; k/8 < int64(len(written)) && written[k/8]&(0x80>>(k%8)) != 0 {
			p, err := x.f.read(from, x.page*x.elem)
			if err == nil {
				_, err = x.elements(p, x.page)
			}
			if err != nil {
				return err
			}
		}
		from += uint64(x.page*x.elem + sum)
	}
	return nil
}
