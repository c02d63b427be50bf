package hdf5

import (
	"bytes"
	"io"

	"ckptfs/formats"
)

// Attribute is the text of an attribute of the root group, of at most most bytes: a string of fixed length in
// the attribute's message, as Keras writes one, or of variable length, in a global heap. False when there is
// none. Attributes in a heap of their own ("dense") are not looked for. The error wraps formats.ErrNotFormat.
//
//	message  u8 version, u8 flags, u16 bytes of the name, of the type, of the space; version 3: u8 character
//	         set; then these, in version 1 each filled to 8 bytes; then the value: the string, or u32
//	         length, u64 address of a collection, u32 number in it
//	heap     "GCOL", u8 version 1, 3 bytes, u64 bytes of the collection, then objects, each filled to 8
//	         bytes: u16 number (0: free space, and the end), u16 references, u32 0, u64 bytes, the bytes
func Attribute(r io.ReaderAt, size int64, name string, most int64) (text []byte, found bool, err error) {
	f := &file{r: r, size: size, visits: maxVisits, budget: min(4*size+1<<20, maxRead), attributes: true}
	root, err := f.superblock()
	if err != nil {
		return nil, false, err
	}
	o, err := f.header(root)
	if err != nil {
		return nil, false, err
	}
	for _, p := range o.attributes {
		if called, typ, shape, value, ok := readAttribute(p); ok && called == name {
			return f.text(typ, shape, value, most)
		}
	}
	return nil, false, nil
}

// readAttribute reads an attribute's message. ok is false for one that is stored otherwise.
func readAttribute(p []byte) (name string, typ, space, value []byte, ok bool) {
	if len(p) < 8 || p[0] < 1 || p[0] > 3 || p[0] > 1 && p[1] != 0 {
		return "", nil, nil, nil, false
	}
	var parts [3][]byte
	at := 8
	if p[0] == 3 {
		at++
	}
	for i := range parts {
		n := int(le.Uint16(p[2+2*i:]))
		if at+n > len(p) {
			return "", nil, nil, nil, false
		}
		parts[i] = p[at : at+n]
		if p[0] == 1 {
			n = (n + 7) &^ 7
		}
		at += n
	}
	if at > len(p) {
		return "", nil, nil, nil, false
	}
	before, _, _ := bytes.Cut(parts[0], []byte{0})
	return string(before), parts[1], parts[2], p[at:], true
}

// text is a value that is one string.
func (f *file) text(typ, space, value []byte, most int64) ([]byte, bool, error) {
	const fixed, variable = 3, 9
	shape, ok := readSpace(space)
	for _, n := range shape {
		ok = ok && n == 1
	}
	if !ok || len(typ) < 8 {
		return nil, false, nil
	}
	switch size := int64(le.Uint32(typ[4:])); {
	case typ[0]&15 == fixed && size <= int64(len(value)) && size <= most:
		text, _, _ := bytes.Cut(value[:size], []byte{0})
		return text, true, nil
	case typ[0]&15 == variable && typ[1]&15 == 1 && len(value) >= 16:
		return f.inHeap(le.Uint64(value[4:]), le.Uint32(value[12:]), int64(le.Uint32(value)), most)
	}
	return nil, false, nil
}

// inHeap reads the first n bytes of object number of the collection at address at.
func (f *file) inHeap(at uint64, number uint32, n, most int64) ([]byte, bool, error) {
	head, err := f.read(at, 16)
	if err != nil {
		return nil, false, err
	}
	if string(head[:4]) != "GCOL" || head[4] != 1 || at > uint64(f.size) ||
		le.Uint64(head[8:]) > uint64(f.size)-at {
		return nil, false, reject("no heap at %d", at)
	}
	end := at + le.Uint64(head[8:])
	for at += 16; at+16 <= end; {
		if err := f.visit(); err != nil {
			return nil, false, err
		}
		if head, err = f.read(at, 16); err != nil {
			return nil, false, err
		}
		at += 16
		have := le.Uint64(head[8:])
		if have > end-at {
			return nil, false, reject("%d bytes in a heap, %d left", have, end-at)
		}
		switch k := uint32(le.Uint16(head)); {
		case k == 0:
			return nil, false, nil
		case k == number:
			if uint64(n) > have || n > most {
				return nil, false, nil
			}
			text := make([]byte, n)
			return text, true, formats.ReadFull(f.r, text, int64(at))
		}
		at += (have + 7) &^ 7
	}
	return nil, false, nil
}
