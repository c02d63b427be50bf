package arrow

import (
	"encoding/binary"
	"errors"
)

// errFlat: the bytes are no flatbuffer, or lack what is asked for.
var errFlat = errors.New("malformed flatbuffer")

// table is a table of a flatbuffer:
//
//	at:      i32 back to the vtable; then the fields
//	vtable:  u16 its bytes, u16 the table's bytes, u16 for each field: where it is from at, 0 where it is
//	         absent
type table struct {
	p          []byte
	at, fields int // of the table, of the vtable
	count      int
}

func root(p []byte) (table, error) {
	if len(p) < 4 {
		return table{}, errFlat
	}
	return tableAt(p, uint64(binary.LittleEndian.Uint32(p)))
}

func tableAt(p []byte, at uint64) (table, error) {
	if at > uint64(len(p)) || uint64(len(p))-at < 4 {
		return table{}, errFlat
	}
	fields := int64(at) - int64(int32(binary.LittleEndian.Uint32(p[at:])))
	if fields < 0 || fields > int64(len(p))-4 {
		return table{}, errFlat
	}
	n := int64(binary.LittleEndian.Uint16(p[fields:]))
	if n < 4 || n > int64(len(p))-fields {
		return table{}, errFlat
	}
	return table{p, int(at), int(fields), int(n/2 - 2)}, nil
}

// field returns the bytes from field i on, nil when it is absent.
func (t table) field(i, width int) ([]byte, int, error) {
	if i >= t.count {
		return nil, 0, nil
	}
	off := int(binary.LittleEndian.Uint16(t.p[t.fields+4+2*i:]))
	if off == 0 {
		return nil, 0, nil
	}
	at := t.at + off
	if at+width > len(t.p) {
		return nil, 0, errFlat
	}
	return t.p[at:], at, nil
}

// number is a field of width bytes, 0 when it is absent.
func (t table) number(i, width int) (uint64, error) {
	p, _, err := t.field(i, width)
	if p == nil || err != nil {
		return 0, err
	}
	var b [8]byte
	copy(b[:], p[:width])
	return binary.LittleEndian.Uint64(b[:]), nil
}

// table is a field that is a table.
func (t table) table(i int) (table, error) {
	p, at, err := t.field(i, 4)
	if p == nil || err != nil {
		return table{}, errFlat
	}
	return tableAt(t.p, uint64(at)+uint64(binary.LittleEndian.Uint32(p)))
}

// vector is a field that is a vector of structs of width bytes, nothing when it is absent.
func (t table) vector(i, width int) ([]byte, error) {
	p, at, err := t.field(i, 4)
	if p == nil || err != nil {
		return nil, err
	}
	start := uint64(at) + uint64(binary.LittleEndian.Uint32(p))
	if start > uint64(len(t.p)) || uint64(len(t.p))-start < 4 {
		return nil, errFlat
	}
	n := uint64(binary.LittleEndian.Uint32(t.p[start:])) * uint64(width)
	if start += 4; n > uint64(len(t.p))-start {
		return nil, errFlat
	}
	return t.p[start : start+n], nil
}
