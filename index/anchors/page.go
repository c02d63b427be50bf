package anchors

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

const (
	pageSize = disk.BlockSize
	inPage   = pageSize - 8 // bytes of records
	atOnce   = 16           // pages that are written, or read in order
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	be         = binary.BigEndian
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
}

// section is n records of one size, in pages from first on.
type section struct {
	first, n int64
	size     int
}

func (s section) perPage() int64 { return int64(inPage / s.size) }

// pages is how many there are.
func (s section) pages() int64 { return (s.n + s.perPage() - 1) / s.perPage() }

// inPage is how many records page k has.
func (s section) records(k int64) int { return int(min(s.perPage(), s.n-k*s.perPage())) }

// read reads the records of page k into buf, of pageSize bytes.
func (s section) read(f disk.File, k int64, buf []byte) ([]byte, error) {
	if k < 0 || k >= s.pages() {
		return nil, corrupt("page %d of %d", k, s.pages())
	}
	if _, err := f.ReadAt(buf[:pageSize], (s.first+k)*pageSize); err != nil {
		return nil, err
	}
	return s.check(k, buf[:pageSize])
}

// check is the records of page k, whose bytes p are.
func (s section) check(k int64, p []byte) ([]byte, error) {
	n := s.records(k) * s.size
	if used, sum := be.Uint32(p[inPage:]), be.Uint32(p[inPage+4:]); int64(used) != int64(n) ||
		sum != crc32.Checksum(p[:inPage+4], castagnoli) {
		return nil, corrupt("page %d", s.first+k)
	}
	return p[:n], nil
}

// record reads record i into buf, of pageSize bytes.
func (s section) record(f disk.File, i int64, buf []byte) ([]byte, error) {
	p, err := s.read(f, i/s.perPage(), buf)
	if err != nil {
		return nil, err
	}
	return p[int(i%s.perPage())*s.size:][:s.size], nil
}

// reader reads a section's records in order.
type reader struct {
	f    disk.File
	s    section
	page int64 // the next one
	buf  []byte
	left int // pages in buf that were not taken
	p    []byte
}

// next is the next record; nil at the end.
func (r *reader) next() ([]byte, error) {
	if len(r.p) == 0 {
		if r.page == r.s.pages() {
			return nil, nil
		}
		if r.left == 0 {
			r.left = int(min(atOnce, r.s.pages()-r.page))
			if r.buf == nil {
				r.buf = make([]byte, r.left*pageSize)
			}
			r.buf = r.buf[:r.left*pageSize]
			if _, err := r.f.ReadAt(r.buf, (r.s.first+r.page)*pageSize); err != nil {
				return nil, err
			}
		}
		at := len(r.buf) - r.left*pageSize
		var err error
		if r.p, err = r.s.check(r.page, r.buf[at:at+pageSize]); err != nil {
			return nil, err
		}
		r.page, r.left = r.page+1, r.left-1
	}
	p := r.p[:r.s.size]
	r.p = r.p[r.s.size:]
	return p, nil
}

// writer writes sections, one behind the other. Its error is kept.
type writer struct {
	f    disk.File
	page int64 // the next one to be written
	buf  []byte
	used int // bytes of the last page
	s    section
	err  error
}

// begin begins a section.
func (w *writer) begin(size int) {
	w.end()
	w.s = section{first: w.page + int64(len(w.buf)/pageSize), size: size}
}

// add adds a record, and tells whether it is the first one of its page.
func (w *writer) add(p []byte) (first bool) {
	if w.used == 0 {
		first = true
		w.buf = append(w.buf, make([]byte, pageSize)...)
	}
	at := len(w.buf) - pageSize
	copy(w.buf[at+w.used:], p)
	w.used += len(p)
	w.s.n++
	if w.used+w.s.size > inPage {
		w.endPage()
	}
	return first
}

// end ends a section.
func (w *writer) end() section {
	w.endPage()
	return w.s
}

func (w *writer) endPage() {
	if w.used == 0 {
		return
	}
	seal(w.buf[len(w.buf)-pageSize:], w.used)
	if w.used = 0; len(w.buf) == atOnce*pageSize {
		w.flush()
	}
}

func (w *writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.f.WriteAt(w.buf, w.page*pageSize)
	}
	w.page += int64(len(w.buf) / pageSize)
	w.buf = w.buf[:0]
}

// seal completes a page of which so many bytes are in use.
func seal(p []byte, used int) {
	be.PutUint32(p[inPage:], uint32(used))
	be.PutUint32(p[inPage+4:], crc32.Checksum(p[:inPage+4], castagnoli))
}

const (
	magic   = "ckptfs-anchors\x00\x00"
	version = 1
	head    = len(magic) + 4 + 16 + 4 + 4 + 8 + 4 + 4
)

// header is page 0 of a run, and the beginning of a log.
type header struct {
	store              [16]byte
	first, last        uint32
	entries            uint64
	tensors, manifests uint32
}

func (h *header) page() []byte {
	p := append(make([]byte, 0, pageSize), magic...)
	p = be.AppendUint32(p, version)
	p = append(p, h.store[:]...)
	p = be.AppendUint32(be.AppendUint32(p, h.first), h.last)
	p = be.AppendUint64(p, h.entries)
	p = be.AppendUint32(be.AppendUint32(p, h.tensors), h.manifests)
	p = p[:pageSize]
	seal(p, head)
	return p
}

// readHeader reads page 0 of a file of a store and of such numbers.
func readHeader(f disk.File, store [16]byte, first, last uint32) (h header, err error) {
	p := make([]byte, pageSize)
	if _, err := f.ReadAt(p, 0); err != nil {
		return h, err
	}
	if p, err = (section{n: 1, size: head}).check(0, p); err != nil {
		return h, err
	}
	if string(p[:len(magic)]) != magic || be.Uint32(p[len(magic):]) != version {
		return h, corrupt("not an index of anchors of this version")
	}
	p = p[len(magic)+4:]
	copy(h.store[:], p)
	h.first, h.last = be.Uint32(p[16:]), be.Uint32(p[20:])
	h.entries, h.tensors, h.manifests = be.Uint64(p[24:]), be.Uint32(p[32:]), be.Uint32(p[36:])
	if h.store != store || h.first != first || h.last != last {
		return h, corrupt("of another store, or another number")
	}
	return h, nil
}

// put makes the bytes of a number.
func put(e uint64) []byte { return be.AppendUint64(nil, e) }
