package hdf5

import (
	"bytes"
	"unicode/utf8"
)

const (
	treeHead    = 24 // signature, type, level, entries, two siblings
	maxLevel    = 32
	symbolBytes = 40
)

// node reads the head and the entries of a B-tree node, version 1: keys of keyLen bytes and addresses in
// turn, with one key more.
func (f *file) node(at uint64, typ byte, keyLen int64) (entries []byte, level int, err error) {
	if err := f.visit(); err != nil {
		return nil, 0, err
	}
	p, err := f.read(at, treeHead)
	if err != nil {
		return nil, 0, err
	}
	level = int(p[5])
	if string(p[:4]) != "TREE" || p[4] != typ || level > maxLevel {
		return nil, 0, reject("no B-tree node at %d", at)
	}
	n := int64(le.Uint16(p[6:]))
	if n == 0 {
		return nil, level, nil
	}
	entries, err = f.read(at+treeHead, n*(keyLen+8)+keyLen)
	return entries, level, err
}

// symbols calls each with the names of a symbol table's group.
func (f *file) symbols(at, heap uint64, above int, each func(name string, at uint64) error) error {
	names, size, err := f.heap(heap)
	if err != nil {
		return err
	}
	return f.symbolNode(at, above, func(off, object uint64) error {
		name, err := f.name(names, size, off)
		if err != nil {
			return err
		}
		return each(name, object)
	})
}

func (f *file) symbolNode(at uint64, above int, each func(name, object uint64) error) error {
	const keyLen = 8
	p, level, err := f.node(at, 0, keyLen)
	if err != nil {
		return err
	}
	if above > 0 && level != above-1 {
		return reject("a B-tree of levels that don't follow")
	}
	for ; len(p) > keyLen; p = p[keyLen+8:] {
		child := le.Uint64(p[keyLen:])
		if level > 0 {
			err = f.symbolNode(child, level, each)
		} else {
			err = f.symbolTable(child, each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// symbolTable reads a leaf.
func (f *file) symbolTable(at uint64, each func(name, object uint64) error) error {
	if err := f.visit(); err != nil {
		return err
	}
	p, err := f.read(at, 8)
	if err != nil {
		return err
	}
	if string(p[:4]) != "SNOD" || p[4] != 1 {
		return reject("no symbol table at %d", at)
	}
	if p, err = f.read(at+8, int64(le.Uint16(p[6:]))*symbolBytes); err != nil {
		return err
	}
	for ; len(p) > 0; p = p[symbolBytes:] {
		const softLink = 2
		if le.Uint32(p[16:]) == softLink {
			continue
		}
		if err := each(le.Uint64(p), le.Uint64(p[8:])); err != nil {
			return err
		}
	}
	return nil
}

// heap returns where the names of a group are.
func (f *file) heap(at uint64) (data uint64, size int64, err error) {
	p, err := f.read(at, 32)
	if err != nil {
		return 0, 0, err
	}
	n := le.Uint64(p[8:])
	if string(p[:4]) != "HEAP" || p[4] != 0 || n > uint64(f.size) {
		return 0, 0, reject("no local heap at %d", at)
	}
	return le.Uint64(p[24:]), int64(n), nil
}

// name reads the name at off of a heap.
func (f *file) name(data uint64, size int64, off uint64) (string, error) {
	const longest = 1 << 10
	if off >= uint64(size) || data > uint64(f.size) {
		return "", reject("a name at %d of a heap of %d bytes", off, size)
	}
	p, err := f.read(data+off, min(longest, size-int64(off), f.size-int64(data+off)))
	if err != nil {
		return "", err
	}
	n := bytes.IndexByte(p, 0)
	if n <= 0 || !utf8.Valid(p[:n]) {
		return "", reject("a name without an end, or of no text")
	}
	return string(p[:n]), nil
}

// chunks calls each with every chunk of a dataset of this rank: its address, its bytes, and its first
// element, a u64 for each dimension.
func (f *file) chunks(at uint64, rank, above int, each func(off uint64, n int64, place []byte) error) error {
	keyLen := int64(8 + 8*(rank+1))
	p, level, err := f.node(at, 1, keyLen)
	if err != nil {
		return err
	}
	if above > 0 && level != above-1 {
		return reject("a B-tree of levels that don't follow")
	}
	for ; int64(len(p)) > keyLen; p = p[keyLen+8:] {
		child := le.Uint64(p[keyLen:])
		if level > 0 {
			err = f.chunks(child, rank, level, each)
		} else if err = f.visit(); err == nil {
			err = each(child, int64(le.Uint32(p)), p[8:keyLen])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
