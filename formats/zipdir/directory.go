package zipdir

import (
	"encoding/binary"
	"io"

	"ckptfs/formats"
)

// Zip structures, APPNOTE.TXT 4.3. All numbers are little-endian.
const (
	localSig   = "PK\x03\x04"
	endSig     = "PK\x05\x06"
	end64Sig   = "PK\x06\x06"
	locatorSig = "PK\x06\x07"

	localLen   = 30
	centralLen = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20
)

// extent is where the central directory lies, by the end records.
type extent struct {
	off, len int64
	records  int
}

// findDirectory checks rules 1 to 3 as far as the end records show them.
func findDirectory(r io.ReaderAt, size int64) (extent, error) {
	if size < localLen+endLen {
		return extent{}, reject("%d bytes", size)
	}
	var sig [4]byte
	if err := formats.ReadFull(r, sig[:], 0); err != nil {
		return extent{}, err
	}
	if string(sig[:]) != localSig {
		return extent{}, reject("no local header at the start")
	}
	tail := make([]byte, min(size, endLen+locatorLen+end64Len))
	if err := formats.ReadFull(r, tail, size-int64(len(tail))); err != nil {
		return extent{}, err
	}
	end := tail[len(tail)-endLen:]
	if string(end[:4]) != endSig {
		return extent{}, reject("no end record in the last %d bytes", endLen)
	}
	u16 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint16(end[at:])) }
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(end[at:])) }
	if u16(20) != 0 {
		return extent{}, reject("end record: a comment")
	}
	d := directoryFields{u16(4), u16(6), u16(8), u16(10), u32(12), u32(16)}
	stop := size - endLen // where the directory must end
	if at := len(tail) - endLen - locatorLen; at >= 0 && string(tail[at:at+4]) == locatorSig {
		d64, err := readEnd64(tail[:at+locatorLen], size-endLen)
		if err != nil {
			return extent{}, err
		}
		if !d.agrees(d64) {
			return extent{}, reject("end record: differs from the zip64 end record")
		}
		d, stop = d64, size-endLen-locatorLen-end64Len
	}
	switch {
	case d.disk != 0 || d.startDisk != 0 || d.onDisk != d.records:
		return extent{}, reject("end record: more than one disk")
	case d.records > maxRecords:
		return extent{}, reject("%d records, more than %d", d.records, maxRecords)
	case d.size > maxDirectory:
		return extent{}, reject("directory of %d bytes, more than %d", d.size, maxDirectory)
	case d.records*centralLen > d.size:
		return extent{}, reject("%d records in a directory of %d bytes", d.records, d.size)
	case d.off > uint64(stop) || d.size != uint64(stop)-d.off:
		return extent{}, reject("directory: bytes [%d, +%d) don't end at %d", d.off, d.size, stop)
	}
	return extent{off: int64(d.off), len: int64(d.size), records: int(d.records)}, nil
}

// directoryFields are what both end records state.
type directoryFields struct{ disk, startDisk, onDisk, records, size, off uint64 }

// agrees reports whether each field of the 32-bit end record is that of the zip64 one, or says that it stands
// there.
func (d directoryFields) agrees(d64 directoryFields) bool {
	same := func(v, v64, max uint64) bool { return v == v64 || v == max }
	return same(d.disk, d64.disk, 1<<16-1) && same(d.startDisk, d64.startDisk, 1<<16-1) &&
		same(d.onDisk, d64.onDisk, 1<<16-1) && same(d.records, d64.records, 1<<16-1) &&
		same(d.size, d64.size, 1<<32-1) && same(d.off, d64.off, 1<<32-1)
}

// readEnd64 reads the zip64 end record and locator, which p ends with and which end at offset stop of the
// file.
func readEnd64(p []byte, stop int64) (directoryFields, error) {
	if len(p) < end64Len+locatorLen {
		return directoryFields{}, reject("zip64 locator: no zip64 end record")
	}
	end, loc := p[len(p)-locatorLen-end64Len:], p[len(p)-locatorLen:]
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	if u32(loc[4:]) != 0 || u32(loc[16:]) != 1 || u64(loc[8:]) != uint64(stop-locatorLen-end64Len) {
		return directoryFields{}, reject("zip64 locator: doesn't point at the record before it")
	}
	if string(end[:4]) != end64Sig || u64(end[4:]) != end64Len-12 {
		return directoryFields{}, reject("zip64 locator: no zip64 end record")
	}
	return directoryFields{
		uint64(u32(end[16:])), uint64(u32(end[20:])), u64(end[24:]), u64(end[32:]), u64(end[40:]),
		u64(end[48:]),
	}, nil
}

// StartOf returns where the zip begins that ends at offset end of r, which other bytes may precede: by its
// zip64 end record, whose place in the zip its locator states. It returns formats.ErrNotFormat, wrapped, when
// there is none.
func StartOf(r io.ReaderAt, end int64) (int64, error) {
	const tailLen = end64Len + locatorLen + endLen
	if end < tailLen {
		return 0, reject("%d bytes", end)
	}
	p := make([]byte, tailLen)
	if err := formats.ReadFull(r, p, end-tailLen); err != nil {
		return 0, err
	}
	if string(p[:4]) != end64Sig || string(p[end64Len:end64Len+4]) != locatorSig ||
		string(p[end64Len+locatorLen:][:4]) != endSig {
		return 0, reject("no zip64 end before %d", end)
	}
	off := binary.LittleEndian.Uint64(p[end64Len+8:])
	if off > uint64(end-tailLen) {
		return 0, reject("a zip of %d bytes before %d", off, end)
	}
	return end - tailLen - int64(off), nil
}
