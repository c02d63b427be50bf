package hdf5

import "unicode/utf8"

// The messages that matter.
const (
	msgDataspace    = 0x01
	msgLinkInfo     = 0x02
	msgDatatype     = 0x03
	msgLink         = 0x06
	msgExternal     = 0x07
	msgLayout       = 0x08
	msgFilters      = 0x0b
	msgAttribute    = 0x0c
	msgContinuation = 0x10
	msgSymbols      = 0x11

	flagShared = 2
)

// object is what an object header says.
type object struct {
	space, typ, layout []byte // messages; nil where there is none
	filters, external  bool
	links              []link
	attributes         [][]byte // messages, where they are asked for
	tree, heap         uint64   // of a symbol table
	bytes              int      // read so far
}

type link struct {
	name string
	at   uint64
}

// header reads the object header at address at, with its continuations.
func (f *file) header(at uint64) (*object, error) {
	o := &object{tree: undefined}
	p, err := f.read(at, 4)
	if err != nil {
		return nil, err
	}
	if string(p) == "OHDR" {
		return o, f.header2(o, at)
	}
	if p, err = f.read(at, 16); err != nil {
		return nil, err
	}
	if p[0] != 1 || p[1] != 0 {
		return nil, reject("object header version %d at %d", p[0], at)
	}
	return o, f.block1(o, at+16, int64(le.Uint32(p[8:])))
}

// block1 reads the messages of version 1 in the n bytes at address at.
func (f *file) block1(o *object, at uint64, n int64) error {
	p, err := f.block(o, at, n)
	if err != nil {
		return err
	}
	for len(p) >= 8 {
		typ, size, flags := le.Uint16(p), int(le.Uint16(p[2:])), p[4]
		if p = p[8:]; size > len(p) {
			return reject("a message of %d bytes past its header", size)
		}
		if err := f.message(o, int(typ), flags, p[:size], f.block1); err != nil {
			return err
		}
		p = p[size:]
	}
	return nil
}

// block reads a part of a header, and counts it.
func (f *file) block(o *object, at uint64, n int64) ([]byte, error) {
	if err := f.visit(); err != nil {
		return nil, err
	}
	p, err := f.read(at, n)
	if o.bytes += len(p); err == nil && o.bytes > maxHeader {
		err = reject("an object header of more than %d bytes", maxHeader)
	}
	return p, err
}

// header2 reads a header of version 2.
func (f *file) header2(o *object, at uint64) error {
	const longest = 4 + 2 + 16 + 4 + 8
	p, err := f.read(at, min(longest, f.size-int64(at)))
	if err != nil {
		return err
	}
	if len(p) < 16 || p[4] != 2 {
		return reject("object header at %d", at)
	}
	flags, skip := p[5], 6
	if flags&0x20 != 0 {
		skip += 16
	}
	if flags&0x10 != 0 {
		skip += 4
	}
	width := 1 << (flags & 3)
	if skip+width > len(p) {
		return reject("object header at %d", at)
	}
	var b [8]byte
	copy(b[:], p[skip:skip+width])
	n := le.Uint64(b[:])
	if n > maxHeader {
		return reject("an object header of %d bytes", n)
	}
	ordered := flags&4 != 0
	if p, err = f.block(o, at+uint64(skip+width), int64(n)); err != nil {
		return err
	}
	return f.messages2(o, p, ordered)
}

func (f *file) messages2(o *object, p []byte, ordered bool) error {
	head := 4
	if ordered {
		head = 6
	}
	next := func(o *object, at uint64, n int64) error {
		p, err := f.block(o, at, n)
		if err != nil {
			return err
		}
		if len(p) < 8 || string(p[:4]) != "OCHK" {
			return reject("no continuation at %d", at)
		}
		return f.messages2(o, p[4:len(p)-4], ordered)
	}
	for len(p) >= head {
		typ, size, flags := p[0], int(le.Uint16(p[1:])), p[3]
		if p = p[head:]; size > len(p) {
			return reject("a message of %d bytes past its header", size)
		}
		if err := f.message(o, int(typ), flags, p[:size], next); err != nil {
			return err
		}
		p = p[size:]
	}
	return nil
}

// message takes what a message says. next reads a continuation.
func (f *file) message(
	o *object, typ int, flags byte, p []byte, next func(*object, uint64, int64) error,
) error {
	set := func(to *[]byte) error {
		if *to != nil {
			return reject("a message twice")
		}
		if *to = p; flags&flagShared != 0 { // what there is, is elsewhere
			*to = []byte{}
		}
		return nil
	}
	switch typ {
	case msgDataspace:
		return set(&o.space)
	case msgDatatype:
		return set(&o.typ)
	case msgLayout:
		return set(&o.layout)
	case msgFilters:
		o.filters = true
	case msgExternal:
		o.external = true
	case msgContinuation:
		if len(p) < 16 {
			return reject("a continuation of %d bytes", len(p))
		}
		n := le.Uint64(p[8:])
		if n > maxHeader {
			return reject("a continuation of %d bytes", n)
		}
		return next(o, le.Uint64(p), int64(n))
	case msgSymbols:
		if len(p) < 16 || o.tree != undefined {
			return reject("a symbol table of %d bytes, or two", len(p))
		}
		o.tree, o.heap = le.Uint64(p), le.Uint64(p[8:])
	case msgLinkInfo:
		at := 2
		if len(p) >= 2 && p[1]&1 != 0 {
			at += 8
		}
		if len(p) < at+16 {
			return reject("a link info of %d bytes", len(p))
		}
		if heap := le.Uint64(p[at:]); heap != undefined {
			return f.denseLinks(o, heap, le.Uint64(p[at+8:]))
		}
	case msgLink:
		return o.addLink(p)
	case msgAttribute:
		if f.attributes && flags&flagShared == 0 {
			o.attributes = append(o.attributes, p)
		}
	}
	return nil
}

// addLink reads a link message: version, flags, then what these say there is.
func (o *object) addLink(p []byte) error {
	if len(p) < 3 || p[0] != 1 {
		return reject("a link of %d bytes", len(p))
	}
	flags, at := p[1], 2
	hard := true
	if flags&8 != 0 {
		hard = p[at] == 0
		at++
	}
	if flags&4 != 0 {
		at += 8
	}
	if flags&0x10 != 0 {
		at++
	}
	width := 1 << (flags & 3)
	if at+width > len(p) {
		return reject("a link of %d bytes", len(p))
	}
	var b [8]byte
	copy(b[:], p[at:at+width])
	at += width
	n := le.Uint64(b[:])
	if n > uint64(len(p)-at) {
		return reject("a link's name of %d bytes", n)
	}
	name := p[at : at+int(n)]
	if at += int(n); !hard {
		return nil
	}
	if at+8 > len(p) || !utf8.Valid(name) {
		return reject("a link %.64q", name)
	}
	o.links = append(o.links, link{string(name), le.Uint64(p[at:])})
	return nil
}
