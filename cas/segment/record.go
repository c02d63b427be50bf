package segment

import (
	"fmt"
	"hash/crc32"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

// Record is what a record's header says.
type Record struct {
	Off    int64 // of the header, in the segment
	Kind   cas.Kind
	Codec  byte
	Raw    uint32
	Stored uint32
	Hash   cas.Hash
	XXH3   cas.XXH3 // of the content; a footer has none
	CRC    uint32   // of the payload
}

// End is the offset behind the record and its padding.
func (r *Record) End() int64 { return r.Off + Size(int(r.Stored)) }

// Entry is the record's line in the index.
func (r *Record) Entry(number uint32) cas.Entry {
	return cas.Entry{Hash: r.Hash, Location: cas.Location{
		Segment: number, Off: r.Off, Stored: r.Stored, Raw: r.Raw, Kind: r.Kind,
		Codec: r.Codec, Delta: codec.NeedsBase(r.Codec),
	}}
}

// put writes the header to p[:RecordHeaderSize].
func (r *Record) put(p []byte, id ID) {
	p = p[:RecordHeaderSize]
	copy(p, recordMagic[:])
	p[4], p[5], p[6], p[7] = byte(r.Kind), r.Codec, 0, 0
	le.PutUint32(p[8:], r.Raw)
	le.PutUint32(p[12:], r.Stored)
	copy(p[16:], r.Hash[:])
	copy(p[48:], r.XXH3[:])
	le.PutUint64(p[64:], uint64(r.Off))
	le.PutUint32(p[72:], r.CRC)
	le.PutUint32(p[76:], headerCRC(p, id))
}

// headerCRC covers the header's first 76 bytes and id.
func headerCRC(p []byte, id ID) uint32 {
	var tail [20]byte
	copy(tail[:], id.Store[:])
	le.PutUint32(tail[16:], id.Number)
	return crc32.Update(crc(p[:76]), castagnoli, tail[:])
}

// ParseRecord reads the header at p of the record at off in the segment id. The error is cas.ErrCorrupt when
// there is none.
func ParseRecord(p []byte, id ID, off int64) (r Record, err error) {
	err = r.parse(p, id, off)
	return r, err
}

// CheckPayload holds the payload as stored against the header. The error is cas.ErrCorrupt.
func (r *Record) CheckPayload(p []byte) error {
	if crc(p) != r.CRC {
		return fmt.Errorf("payload checksum: %w", cas.ErrCorrupt)
	}
	return nil
}

// parse reads the header at p, which lies at off. What it accepts lies below 2^63 and within the bounds of
// the format. The caller checks that it lies within the file.
func (r *Record) parse(p []byte, id ID, off int64) error {
	if len(p) < RecordHeaderSize || [4]byte(p[:4]) != recordMagic {
		return fmt.Errorf("no record: %w", cas.ErrCorrupt)
	}
	*r = Record{
		Off:    int64(le.Uint64(p[64:])),
		Kind:   cas.Kind(p[4]),
		Codec:  p[5],
		Raw:    le.Uint32(p[8:]),
		Stored: le.Uint32(p[12:]),
		Hash:   cas.Hash(p[16:48]),
		XXH3:   cas.XXH3(p[48:64]),
		CRC:    le.Uint32(p[72:]),
	}
	if r.Off != off || le.Uint32(p[76:]) != headerCRC(p, id) ||
		r.Raw > cas.MaxChunk || r.Stored > cas.MaxChunk {
		return fmt.Errorf("record header: %w", cas.ErrCorrupt)
	}
	return nil
}
