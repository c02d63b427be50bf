package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// Reader reads one segment, also while it is being written. It may be used by several goroutines at once.
type Reader struct {
	f  disk.File
	id ID
}

// Open opens a segment for reading, and looks at nothing yet.
func Open(fsys disk.FS, dir string, id ID) (*Reader, error) {
	f, err := fsys.OpenFile(Path(dir, id.Number), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, id: id}, nil
}

// OpenRW opens a segment that a Reader may also Seal.
func OpenRW(fsys disk.FS, dir string, id ID) (*Reader, error) {
	f, err := fsys.OpenFile(Path(dir, id.Number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, id: id}, nil
}

// Number is the segment's number.
func (r *Reader) Number() uint32 { return r.id.Number }

// Size is the length of the file.
func (r *Reader) Size() (int64, error) { return r.f.Size() }

// WillRead says that [off, off+n) of the file is going to be read soon.
func (r *Reader) WillRead(off, n int64) { r.f.WillRead(off, n) }

// ReadBlocks reads whole blocks of the file, past the page cache unless keep is set; see disk.File.
func (r *Reader) ReadBlocks(p []byte, off int64, keep bool) (int, error) {
	if keep {
		return r.f.ReadAt(p, off)
	}
	return r.f.ReadPast(p, off)
}

// CheckHeader reads the file header. Its error is cas.ErrNewer, ErrOlder, ErrForeign, that of the disk, or
// cas.ErrCorrupt: then a scan may still find records, since each is tied to its place.
func (r *Reader) CheckHeader() error {
	p := make([]byte, FileHeaderSize)
	if err := readFull(r.f, p, 0); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("file header: %w", cas.ErrCorrupt)
		}
		return err
	}
	return checkFileHeader(p, r.id)
}

// Footer reads the trailer; see ReadFooter.
func (r *Reader) Footer() (*Footer, error) {
	size, err := r.f.Size()
	if err != nil {
		return nil, err
	}
	return ReadFooter(r.f, size, r.id)
}

// Each calls fn with each entry of the footer.
func (r *Reader) Each(t *Footer, fn func(*Record) error) error { return t.Each(r.f, fn) }

// Scan scans the segment as it is now from off; see Scanner.
func (r *Reader) Scan(off int64) (*Scanner, error) {
	size, err := r.f.Size()
	if err != nil {
		return nil, err
	}
	return NewScanner(r.f, size, r.id, off), nil
}

// Settle makes durable what the file holds from off on, whichever process wrote it, and has reads find what
// the disk has. A disk that refuses bytes once tells one process, and takes what comes later.
func (r *Reader) Settle(off int64) error {
	refused := r.f.Sync()
	if err := r.f.Forget(off); err != nil {
		return err
	}
	if refused == nil {
		return nil
	}
	return r.f.Sync()
}

// Seal gives a segment a footer, which lists recs, by ascending offset, and syncs. It overwrites nothing: a
// segment that was sealed has a new footer behind the old one then. When the footer cannot be written the
// file is cut back to what it was. When only the sync fails nothing is known of the footer, and the segment
// must not be changed any more.
func (r *Reader) Seal(recs []Record, sealed time.Time) (Totals, error) {
	size, err := r.f.Size()
	if err != nil {
		return Totals{}, err
	}
	t, _, err := writeFooter(r.f, r.id, size, recs, sealed)
	if err != nil {
		return t, errors.Join(err, r.f.Truncate(size))
	}
	return t, r.f.Sync()
}

// Allocated is how many bytes the file takes on the disk.
func (r *Reader) Allocated() (int64, error) { return r.f.Allocated() }

// Punch makes a range a hole, which reads as zeros. The footer must not list records in it.
func (r *Reader) Punch(g Range) error { return r.f.PunchHole(g.Off, g.End-g.Off) }

// ReadHeader reads the header of the record at loc. The error is cas.ErrCorrupt when it differs from h and
// loc.
func (r *Reader) ReadHeader(loc cas.Location, h cas.Hash, rec *Record) error {
	var p [RecordHeaderSize]byte
	if err := r.read(p[:], loc.Off); err != nil {
		return err
	}
	return r.match(p[:], loc, h, rec)
}

// HeaderAt reads the header of the record at off. The error is cas.ErrCorrupt when there is none.
func (r *Reader) HeaderAt(off int64, rec *Record) error {
	var p [RecordHeaderSize]byte
	if err := r.read(p[:], off); err != nil {
		return err
	}
	return rec.parse(p[:], r.id, off)
}

// ReadPayload fills p, loc.Stored bytes long, with the payload of the record at loc as stored, and checks it
// against rec, which ReadHeader gave.
func (r *Reader) ReadPayload(loc cas.Location, rec *Record, p []byte) error {
	if err := r.read(p, loc.Off+RecordHeaderSize); err != nil {
		return err
	}
	return rec.CheckPayload(p)
}

// ReadRecord reads header and payload in one go, into buf, which is RecordHeaderSize + loc.Stored bytes long.
// The payload is the part of buf behind the header.
func (r *Reader) ReadRecord(
	loc cas.Location, h cas.Hash, rec *Record, buf []byte,
) (payload []byte, err error) {
	if err := r.read(buf, loc.Off); err != nil {
		return nil, err
	}
	return r.Record(buf, loc, h, rec)
}

// Record is ReadRecord with the bytes at hand.
func (r *Reader) Record(buf []byte, loc cas.Location, h cas.Hash, rec *Record) (payload []byte, err error) {
	payload, err = r.Unsummed(buf, loc, h, rec)
	if err != nil {
		return nil, err
	}
	return payload, rec.CheckPayload(payload)
}

// Unsummed is Record without the payload's checksum, for a caller that compares the decoded payload with its
// hash or XXH3.
func (r *Reader) Unsummed(buf []byte, loc cas.Location, h cas.Hash, rec *Record) (payload []byte, err error) {
	return buf[RecordHeaderSize:], r.match(buf, loc, h, rec)
}

func (r *Reader) read(p []byte, off int64) error {
	err := readFull(r.f, p, off)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("record reaches past the segment's end: %w", cas.ErrCorrupt)
	}
	return err
}

func (r *Reader) match(p []byte, loc cas.Location, h cas.Hash, rec *Record) error {
	if err := rec.parse(p, r.id, loc.Off); err != nil {
		return err
	}
	if rec.Hash != h || rec.Stored != loc.Stored || rec.Raw != loc.Raw {
		return fmt.Errorf("another record than the index says: %w", cas.ErrCorrupt)
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Taken is what a segment of size bytes takes on the disk: holes count for nothing. Unlike the blocks it is
// exact for one without holes.
func (r *Reader) Taken(size int64) int64 {
	if n, err := r.Allocated(); err == nil && n < size {
		return n
	}
	return size
}

// Gaps are the ranges before end in which none of recs lies.
func Gaps(recs []Record, end int64) (gs []Range) {
	at := int64(FileHeaderSize)
	for i := range recs {
		if recs[i].Off > at {
			gs = append(gs, Range{Off: at, End: recs[i].Off})
		}
		at = recs[i].End()
	}
	if end > at {
		gs = append(gs, Range{Off: at, End: end})
	}
	return gs
}
