package zipdir

import (
	"archive/zip"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"ckptfs/formats"
)

// Record is one entry of the zip, checked against its local header.
type Record struct {
	Name     string
	Method   uint16
	Header   int64 // offset of the local header
	Off, Len int64 // stored bytes
}

// Stored reports whether the bytes in the file are the entry's own.
func (r *Record) Stored() bool { return r.Method == zip.Store }

// source is the file as archive/zip sees it: bounded by its size, and remembering what archive/zip does not
// tell. That is the file's own first error, and the offset and first bytes of the last read: File.DataOffset
// reads the local header and keeps its offset to itself.
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

// Read returns the zip's records in the order of the directory. Errors that are not r's own wrap
// formats.ErrNotFormat.
func Read(r io.ReaderAt, size int64) ([]Record, error) {
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
	records := make([]Record, len(zr.File))
	for i, f := range zr.File {
		if records[i], err = readRecord(src, f, dir.off); err != nil {
			return nil, err
		}
	}
	return records, checkOverlap(records)
}

// readRecord checks a record's local header. limit is the end of what records may cover.
func readRecord(src *source, f *zip.File, limit int64) (Record, error) {
	body, err := f.DataOffset()
	switch {
	case src.err != nil:
		return Record{}, src.err
	case err != nil:
		return Record{}, reject("record %.64q: no local header where the directory says", f.Name)
	}
	rec := Record{Name: f.Name, Method: f.Method, Header: src.off, Off: body, Len: int64(f.CompressedSize64)}
	h := src.window[:src.filled]
	flags, method := binary.LittleEndian.Uint16(h[6:]), binary.LittleEndian.Uint16(h[8:])
	packed, unpacked := binary.LittleEndian.Uint32(h[18:]), binary.LittleEndian.Uint32(h[22:])
	nameLen := int(binary.LittleEndian.Uint16(h[26:]))
	name := h[localLen:]
	if nameLen > len(name) {
		name = make([]byte, nameLen)
		if body > limit {
			return Record{}, reject("record %.64q: reaches into the directory", f.Name)
		}
		if err := formats.ReadFull(src.r, name, rec.Header+localLen); err != nil {
			return Record{}, err
		}
	}
	// 0xffffffff says that the size stands in the zip64 extra field, where torch leaves one of the two 0.
	stated := func(v uint32, want uint64) bool { return uint64(v) == want || v == 1<<32-1 }
	const encrypted, descriptor = 1, 8
	switch {
	case string(name[:nameLen]) != f.Name:
		return Record{}, reject("record %.64q: local header has another name", f.Name)
	case method != f.Method:
		return Record{}, reject("record %.64q: local header has another method", f.Name)
	case (flags|f.Flags)&encrypted != 0:
		return Record{}, reject("record %.64q: encrypted", f.Name)
	case flags&descriptor == 0 && !(stated(packed, f.CompressedSize64) &&
		stated(unpacked, f.UncompressedSize64)):
		return Record{}, reject("record %.64q: local header has another size", f.Name)
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		return Record{}, reject("record %.64q: stored, but its sizes differ", f.Name)
	case body > limit || f.CompressedSize64 > uint64(limit-body):
		return Record{}, reject("record %.64q: reaches into the directory", f.Name)
	}
	return rec, nil
}

// checkOverlap checks that the records lie one after another and that the first starts the file.
func checkOverlap(records []Record) error {
	order := make([]*Record, len(records))
	for i := range records {
		order[i] = &records[i]
	}
	slices.SortFunc(order, func(a, b *Record) int { return cmp.Compare(a.Header, b.Header) })
	var end int64
	for i, r := range order {
		if i == 0 && r.Header != 0 {
			return reject("first record at %d", r.Header)
		}
		if r.Header < end {
			return reject("record %.64q: overlaps %.64q", r.Name, order[i-1].Name)
		}
		end = r.Off + r.Len
	}
	return nil
}
