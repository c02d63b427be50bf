package handover

import "encoding/binary"

// Node is which inode a node id leads to, and by which name.
type Node struct {
	ID        uint64
	Ino       uint64
	Parent    uint64 // id
	Type      uint32 // the bits of S_IFMT
	Synthetic bool
	Name      string // 0 to 255 bytes of anything

	Source uint64 // of a synthetic one: the id of the node that it is made of, or 0
	Gen    uint64 // the generation of its bytes; of a synthetic one, that of the source's
	Size   uint64 // of a synthetic one
}

const (
	kindPut  = 1
	kindDrop = 2

	dropSize = 16 // bytes of a record that drops
	putSize  = 32 // bytes of a record that puts, before the name
	madeSize = 24 // bytes more before the name, with flagMade

	flagSynthetic = 1
	flagMade      = 2
)

// record is a record of the log, and what follows it.
type record []byte

// made reports whether a record says what the node is made of.
func (x *Node) made() bool { return x.Source|x.Gen|x.Size != 0 }

// sizeOfPut is the size of the record that puts x.
func sizeOfPut(x *Node) int {
	size := putSize
	if x.made() {
		size += madeSize
	}
	return (size + len(x.Name) + 7) &^ 7
}

func (r record) size() int  { return int(binary.NativeEndian.Uint16(r)) }
func (r record) put() bool  { return r[2] == kindPut }
func (r record) id() uint64 { return binary.NativeEndian.Uint64(r[8:]) }

// nameAt is where the name begins in a record that puts.
func (r record) nameAt() int {
	if r[6]&flagMade != 0 {
		return putSize + madeSize
	}
	return putSize
}

// valid reports whether r begins with a record that a daemon may have written.
func (r record) valid() bool {
	if len(r) < dropSize || r.size() > len(r) {
		return false
	}
	switch r[2] {
	case kindPut:
		return r.size() == (r.nameAt()+int(r[3])+7)&^7
	case kindDrop:
		return r.size() == dropSize && r[3] == 0
	}
	return false
}

// encode writes a record that puts x. Its name and type were checked.
func (r record) encode(x *Node) {
	binary.NativeEndian.PutUint16(r, uint16(sizeOfPut(x)))
	r[2], r[3] = kindPut, uint8(len(x.Name))
	binary.NativeEndian.PutUint16(r[4:], uint16(x.Type))
	r[6], r[7] = 0, 0
	if x.Synthetic {
		r[6] = flagSynthetic
	}
	binary.NativeEndian.PutUint64(r[8:], x.ID)
	binary.NativeEndian.PutUint64(r[16:], x.Ino)
	binary.NativeEndian.PutUint64(r[24:], x.Parent)
	if x.made() {
		r[6] |= flagMade
		binary.NativeEndian.PutUint64(r[32:], x.Source)
		binary.NativeEndian.PutUint64(r[40:], x.Gen)
		binary.NativeEndian.PutUint64(r[48:], x.Size)
	}
	copy(r[r.nameAt():], x.Name)
}

// encodeDrop writes a record that drops a node.
func (r record) encodeDrop(id uint64) {
	binary.NativeEndian.PutUint64(r, 0)
	binary.NativeEndian.PutUint16(r, dropSize)
	r[2] = kindDrop
	binary.NativeEndian.PutUint64(r[8:], id)
}

// node decodes a record that puts, and is valid.
func (r record) node() Node {
	at := r.nameAt()
	x := Node{
		ID:        r.id(),
		Ino:       binary.NativeEndian.Uint64(r[16:]),
		Parent:    binary.NativeEndian.Uint64(r[24:]),
		Type:      uint32(binary.NativeEndian.Uint16(r[4:])),
		Synthetic: r[6]&flagSynthetic != 0,
		Name:      string(r[at : at+int(r[3])]),
	}
	if r[6]&flagMade != 0 {
		x.Source = binary.NativeEndian.Uint64(r[32:])
		x.Gen = binary.NativeEndian.Uint64(r[40:])
		x.Size = binary.NativeEndian.Uint64(r[48:])
	}
	return x
}
