package torchzip

import (
	"archive/zip"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"ckptfs/formats"
)

// record is one entry of the zip, checked against its local header.
type record struct {
	name     string
	method   uint16
	header   int64 // offset of the local header
	off, len int64 // stored bytes
}

// source is the file as archive/zip sees it: bounded by its size, and remembering what archive/zip does not tell. That
// is the file's own first error, and the offset and first bytes of the last read: File.DataOffset reads the local
// header and keeps its offset to itself.
type source struct {
	r      io.ReaderAt
	size   int64
	err    error
	off    int64
	window [256]byte
	filled int
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	s.off = off
	want := p
	if len(p) <= len(s.window) { // a header: read on, its name follows
		want = s.window[:]
	}
	short := int64(len(want)) > s.size-off
	if short {
		want = want[:s.size-off]
	}
	if err := formats.ReadFull(s.r, want, off); err != nil {
		s.err = cmp.Or(s.err, err)
		return 0, err
	}
	n := len(want)
	if len(p) <= len(s.window) {
		s.filled = n
		n = copy(p, want)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readRecords returns the zip's records, in the order of the directory, by rules 1 to 5.
func readRecords(r io.ReaderAt, size int64) ([]record, error) {
	dir, err := findDirectory(r, size)
	if err != nil {
		return nil, err
	}
	src := &source{r: r, size: size}
	zr, err := zip.NewReader(src, size)
	if src.err != nil {
		return nil, src.err
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, reject("directory: %v", err)
	}
	if len(zr.File) != dir.records {
		return nil, reject("directory: %d records, stated %d", len(zr.File), dir.records)
	}
	left := dir.len
	for _, f := range zr.File {
		left -= centralLen + int64(len(f.Name)+len(f.Extra)+len(f.Comment))
	}
	if left != 0 {
		return nil, reject("directory: %d bytes that are no record", left)
	}
	records := make([]record, len(zr.File))
	for i, f := range zr.File {
		if records[i], err = readRecord(src, f, dir.off); err != nil {
			return nil, err
		}
	}
	return records, checkOverlap(records)
}

// readRecord checks a record's local header. limit is the end of what records may cover.
func readRecord(src *source, f *zip.File, limit int64) (record, error) {
	body, err := f.DataOffset()
	switch {
	case src.err != nil:
		return record{}, src.err
	case err != nil:
		return record{}, reject("record %.64q: no local header where the directory says", f.Name)
	}
	rec := record{name: f.Name, method: f.Method, header: src.off, off: body, len: int64(f.CompressedSize64)}
	h := src.window[:src.filled]
	flags, method := binary.LittleEndian.Uint16(h[6:]), binary.LittleEndian.Uint16(h[8:])
	packed, unpacked := binary.LittleEndian.Uint32(h[18:]), binary.LittleEndian.Uint32(h[22:])
	nameLen := int(binary.LittleEndian.Uint16(h[26:]))
	name := h[localLen:]
	if nameLen > len(name) {
		name = make([]byte, nameLen)
		if body > limit {
			return record{}, reject("record %.64q: reaches into the directory", f.Name)
		}
		if err := formats.ReadFull(src.r, name, rec.header+localLen); err != nil {
			return record{}, err
		}
	}
	// 0xffffffff says that the size stands in the zip64 extra field, where torch leaves one of the two 0.
	stated := func(v uint32, want uint64) bool { return uint64(v) == want || v == 1<<32-1 }
	const encrypted, descriptor = 1, 8
	switch {
	case string(name[:nameLen]) != f.Name:
		return record{}, reject("record %.64q: local header has another name", f.Name)
	case method != f.Method:
		return record{}, reject("record %.64q: local header has another method", f.Name)
	case (flags|f.Flags)&encrypted != 0:
		return record{}, reject("record %.64q: encrypted", f.Name)
	case flags&descriptor == 0 && !(stated(packed, f.CompressedSize64) && stated(unpacked, f.UncompressedSize64)):
		return record{}, reject("record %.64q: local header has another size", f.Name)
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		return record{}, reject("record %.64q: stored, but its sizes differ", f.Name)
	case body > limit || f.CompressedSize64 > uint64(limit-body):
		return record{}, reject("record %.64q: reaches into the directory", f.Name)
	}
	return rec, nil
}

// checkOverlap checks that the records lie one after another and that the first starts the file.
func checkOverlap(records []record) error {
	order := make([]*record, len(records))
	for i := range records {
		order[i] = &records[i]
	}
	slices.SortFunc(order, func(a, b *record) int { return cmp.Compare(a.header, b.header) })
	var end int64
	for i, r := range order {
		if i == 0 && r.header != 0 {
			return reject("first record at %d", r.header)
		}
		if r.header < end {
			return reject("record %.64q: overlaps %.64q", r.name, order[i-1].name)
		}
		end = r.off + r.len
	}
	return nil
}
