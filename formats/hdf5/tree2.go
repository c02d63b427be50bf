package hdf5

import "math/bits"

// tree2 is a B-tree of version 2.
//
//	"BTHD"  version 0, type, u32 bytes of a node, u16 bytes of a record, u16 depth, two percentages, u64
//	        address of the root, u16 its records, u64 records in all
//	"BTLF"  version 0, type; the records
//	"BTIN"  version 0, type; n records; n + 1 children: u64 address, its records, and, unless it is a leaf,
//	        all records below it
//
// The numbers of records have as many bytes as the most that there can be, which follows from the bytes of a
// node.
type tree2 struct {
	f         *file
	kind      byte
	record    int64
	countSize int64   // bytes of the number of a node's records
	totalSize []int64 // by the child's depth: bytes of the number of records below it; of a leaf 0
	each      func(record []byte) error
}

// The types of records that are read.
const (
	chunks2         = 10 // address, offsets of the chunk in chunks, a u64 for each dimension
	filteredChunks2 = 11 // address, size, u32 filter mask, offsets
)

// records calls each with the records of the tree at an address, which have one of so many bytes that fits
// takes.
func (f *file) records(at uint64, kind byte, fits func(n int64) bool, each func(record []byte) error) error {
	p, err := f.read(at, 34)
	if err != nil {
		return err
	}
	node, depth, root, n := int64(le.Uint32(p[6:])), int(le.Uint16(p[12:])), le.Uint64(p[16:]),
		int64(le.Uint16(p[24:]))
	t := &tree2{f: f, kind: kind, record: int64(le.Uint16(p[10:])), totalSize: make([]int64, 1, maxLevel+1),
		each: each}
	const prefix = 10
	if string(p[:4]) != "BTHD" || p[4] != 0 || p[5] != kind || !fits(t.record) || depth > maxLevel ||
		node < prefix+t.record || node > maxHeader {
		return reject("no B-tree of type %d at %d", kind, at)
	}
	if root == undefined {
		return nil
	}
	most := uint64(node-prefix) / uint64(t.record)
	t.countSize = bytesOf(most)
	for d := 1; d <= depth; d++ { // of the nodes of depth d; most is then of all below them
		pointer := 8 + t.countSize + t.totalSize[d-1]
		in := max(0, (node-prefix-pointer)/(t.record+pointer))
		if most >= 1<<40/uint64(in+1) {
			return reject("a B-tree of depth %d at %d", depth, at)
		}
		most = uint64(in+1)*most + uint64(in)
		t.totalSize = append(t.totalSize, bytesOf(most))
	}
	return t.node(root, depth, n)
}

// bytesOf is how many bytes a number up to most takes.
func bytesOf(most uint64) int64 { return int64(max(bits.Len64(most), 1)-1)/8 + 1 }

func (t *tree2) node(at uint64, depth int, n int64) error {
	if err := t.f.visit(); err != nil {
		return err
	}
	sign, pointer, size := "BTLF", int64(0), 6+n*t.record
	if depth > 0 {
		sign, pointer = "BTIN", 8+t.countSize+t.totalSize[depth-1]
		size += (n + 1) * pointer
	}
	p, err := t.f.read(at, size)
	if err != nil {
		return err
	}
	if string(p[:4]) != sign || p[4] != 0 || p[5] != t.kind {
		return reject("no node of a B-tree at %d", at)
	}
	p = p[6:]
	for ; n > 0; n-- {
		if err := t.each(p[:t.record]); err != nil {
			return err
		}
		p = p[t.record:]
	}
	for ; len(p) > 0; p = p[pointer:] {
		if err := t.node(le.Uint64(p), depth-1, int64(littleEndian(p[8:8+t.countSize]))); err != nil {
			return err
		}
	}
	return nil
}

// chunkTree takes the chunks of a dataset of this rank.
func (f *file) chunkTree(at uint64, rank int, e chunkElem) error {
	kind, offsets := byte(chunks2), int64(8*rank)
	if e.size == 0 {
		kind = filteredChunks2
	}
	fits := func(n int64) bool { return e.fits(n - offsets) }
	return f.records(at, kind, fits, func(record []byte) error {
		k := int64(len(record)) - offsets
		return e.take(record[:k], record[k:])
	})
}
