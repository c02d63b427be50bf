package hdf5

import "math/bits"

// heap2 is a fractal heap, in which a group with many links has its link messages.
//
//	"FRHP"  version 0, u16 bytes of an id, u16 of filters, flags, u32 most bytes of an object; 96 bytes of
//	        counts; u16 width W of a row, u64 bytes S of a block in the first row, u64 most bytes of a
//	        direct block, u16 bits of the heap's size, u16, u64 address of the root, u16 its rows
//	"FHIB"  version 0, u64 address of the head, offset in the heap; for each row W addresses of blocks
//
// The heap is one range of bytes, in blocks. With no rows the root is a direct block, which is all of it;
// else blocks lie one after the other, W of S bytes, W of S, W of 2 S, W of 4 S and so on; those longer than
// a direct block may be are again divided so. An id is a byte that is 0, an offset in the heap and a length.
type heap2 struct {
	f                *file
	root             uint64
	rows, width      int
	start, direct    int64
	offSize, lenSize int64
}

const (
	linkNames  = 5 // type of the B-tree: u32 hash of the name, the id
	linkRecord = 4 + 7
)

// denseLinks adds the links of a group that are in a fractal heap, by the B-tree of their names.
func (f *file) denseLinks(o *object, heap, names uint64) error {
	p, err := f.read(heap, 142)
	if err != nil {
		return err
	}
	h := &heap2{
		f: f, root: le.Uint64(p[132:]), rows: int(le.Uint16(p[140:])), width: int(le.Uint16(p[110:])),
		start: int64(le.Uint64(p[112:])), direct: int64(le.Uint64(p[120:])),
		offSize: int64(le.Uint16(p[128:])+7) / 8,
	}
	if string(p[:4]) != "FRHP" || p[4] != 0 || le.Uint16(p[5:]) != linkRecord-4 || le.Uint16(p[7:]) != 0 ||
		h.width == 0 || h.start <= 0 ||
		h.direct < h.start || h.direct > maxHeader || bits.OnesCount64(uint64(h.start)) != 1 ||
		bits.OnesCount64(uint64(h.direct)) != 1 {
		return reject("no fractal heap at %d", heap)
	}
	h.lenSize = min(int64(bits.Len64(uint64(h.direct))-1+7)/8, bytesOf(uint64(le.Uint32(p[10:]))))
	if 1+h.offSize+h.lenSize > linkRecord-4 {
		return reject("a fractal heap at %d of %d and %d bytes", heap, h.offSize, h.lenSize)
	}
	fits := func(n int64) bool { return n == linkRecord }
	return f.records(names, linkNames, fits, func(record []byte) error {
		if err := f.visit(); err != nil {
			return err
		}
		p, err := h.object(record[4:])
		if err != nil {
			return err
		}
		return o.addLink(p)
	})
}

// object reads the object of an id.
func (h *heap2) object(id []byte) ([]byte, error) {
	if id[0] != 0 {
		return nil, reject("an object of a fractal heap of kind %#x", id[0])
	}
	off, n := littleEndian(id[1:1+h.offSize]), int64(littleEndian(id[1+h.offSize:][:h.lenSize]))
	at, left, err := h.root, uint64(h.direct), error(nil)
	if h.rows > 0 {
		at, off, left, err = h.find(h.root, h.rows, off, 0)
	}
	if err != nil {
		return nil, err
	}
	if at == undefined || off > left || uint64(n) > left-off || at+off < at {
		return nil, reject("an object of a fractal heap outside of its block")
	}
	return h.f.read(at+off, n)
}

// find returns the direct block below an indirect one that has the byte at off, where that is in it, and the
// block's length.
func (h *heap2) find(at uint64, rows int, off uint64, depth int) (block, in, size uint64, err error) {
	if depth > maxLevel {
		return 0, 0, 0, reject("a fractal heap of more than %d levels", maxLevel)
	}
	first := uint64(h.start) * uint64(h.width)
	row := bits.Len64(off / first)
	if row >= rows || row >= 40 {
		return 0, 0, 0, reject("an object past a fractal heap")
	}
	size = uint64(h.start)
	if row > 0 {
		size <<= row - 1
		off -= first << (row - 1)
	}
	head := uint64(4 + 1 + 8 + h.offSize)
	entry := uint64(row)*uint64(h.width) + off/size
	p, err := h.f.read(at, 4)
	if err == nil && string(p) != "FHIB" {
		err = reject("no indirect block at %d", at)
	}
	if err == nil {
		p, err = h.f.read(at+head+8*entry, 8)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	block, off = le.Uint64(p), off%size
	if size <= uint64(h.direct) {
		return block, off, size, nil
	}
	return h.find(block, bits.Len64(size/first), off, depth+1)
}
