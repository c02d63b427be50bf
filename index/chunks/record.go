package chunks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ckptfs/cas"
)

const (
	prefixLen = 2
	tailLen   = 14
	recordLen = tailLen + 4 + 4 + 3 + 3 + 1

	// keyLen is how much of a hash the index holds.
	keyLen = prefixLen + tailLen

	// in the byte of the kind
	deltaBit  = 0x80
	kindBits  = 3
	codecBits = 4
)

// checkLocation returns an error for what a record has no room for.
func checkLocation(l cas.Location) error {
	if l.Segment == 0 || l.Kind >= 1<<kindBits || l.Codec >= 1<<codecBits || l.Off < 0 ||
		l.Off%8 != 0 || l.Off/8 > 1<<32-1 ||
		l.Stored > cas.MaxChunk || l.Raw > cas.MaxChunk || l.Kind == 0 {
		return fmt.Errorf("index: location %+v cannot be held", l)
	}
	return nil
}

func appendRecord(p []byte, e *cas.Entry) []byte {
	p = append(p, e.Hash[prefixLen:keyLen]...)
	p = binary.BigEndian.AppendUint32(p, e.Segment)
	p = binary.BigEndian.AppendUint32(p, uint32(e.Off/8))
	p = append(p, byte(e.Stored>>16), byte(e.Stored>>8), byte(e.Stored))
	p = append(p, byte(e.Raw>>16), byte(e.Raw>>8), byte(e.Raw))
	kind := byte(e.Kind) | e.Codec<<kindBits
	if e.Delta {
		kind |= deltaBit
	}
	return append(p, kind)
}

// location reads the record at the start of r.
func location(r []byte) cas.Location {
	_ = r[recordLen-1]
	return cas.Location{
		Segment: binary.BigEndian.Uint32(r[14:]),
		Off:     int64(binary.BigEndian.Uint32(r[18:])) * 8,
		Stored:  uint32(r[22])<<16 | uint32(r[23])<<8 | uint32(r[24]),
		Raw:     uint32(r[25])<<16 | uint32(r[26])<<8 | uint32(r[27]),
		Kind:    cas.Kind(r[28] & (1<<kindBits - 1)),
		Codec:   r[28] >> kindBits & (1<<codecBits - 1),
		Delta:   r[28]&deltaBit != 0,
	}
}

// find is the record of tail in blob, or nil.
func find(blob, tail []byte) []byte {
	lo, hi := 0, len(blob)/recordLen
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		r := blob[mid*recordLen:]
		switch bytes.Compare(r[:tailLen], tail) {
		case 0:
			return r[:recordLen]
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil
}

const sumLen = 4 // of the checksum of a value

// seal appends the checksum to a value.
func seal(key, blob []byte) []byte {
	return binary.BigEndian.AppendUint32(blob, checksum(key, blob))
}

// unseal checks a value and returns what seal was given.
func unseal(key, value []byte) ([]byte, error) {
	n := len(value) - sumLen
	if n < 0 || binary.BigEndian.Uint32(value[n:]) != checksum(key, value[:n]) {
		return nil, fmt.Errorf("index: value of %d bytes at %x: checksum: %w", len(value), key,
			cas.ErrCorrupt)
	}
	return value[:n:n], nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key, blob []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, blob)
}

// openBlob checks the value of a prefix and returns its records; none for a prefix without a value.
func openBlob(key, value []byte) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	blob, err := unseal(key, value)
	if err == nil && (len(key) != prefixLen || len(blob) == 0 || len(blob)%recordLen != 0) {
		err = fmt.Errorf("index: value of %d bytes at prefix %x: %w", len(value), key, cas.ErrCorrupt)
	}
	return blob, err
}

// merge returns blob with the entries in it, which are ascending, of one prefix and of different hashes. An
// entry replaces the record of its hash.
func merge(blob []byte, entries []cas.Entry) []byte {
	return splice(blob, entries, func(out, _ []byte, e *cas.Entry) []byte { return appendRecord(out, e) })
}

// without returns blob without the records that entries name, hash and place. The entries are as for merge.
func without(blob []byte, entries []cas.Entry) []byte {
	return splice(blob, entries, func(out, old []byte, e *cas.Entry) []byte {
		if old == nil {
			return out
		}
		if l := location(old); l.Segment == e.Segment && l.Off == e.Off {
			return out
		}
		return append(out, old...)
	})
}

// splice copies blob, and appends for each entry what put makes of the record of its hash, nil when there is
// none. There is room for seal.
func splice(blob []byte, entries []cas.Entry, put func(out, old []byte, e *cas.Entry) []byte) []byte {
	out := make([]byte, 0, len(blob)+len(entries)*recordLen+sumLen)
	for i := range entries {
		e := &entries[i]
		tail := e.Hash[prefixLen:keyLen]
		n := 0
		for n < len(blob) && bytes.Compare(blob[n:n+tailLen], tail) < 0 {
			n += recordLen
		}
		out = append(out, blob[:n]...)
		blob = blob[n:]
		var old []byte
		if len(blob) > 0 && bytes.Equal(blob[:tailLen], tail) {
			old, blob = blob[:recordLen], blob[recordLen:]
		}
		out = put(out, old, e)
	}
	return append(out, blob...)
}
