package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"ckptfs/cas"
)

// footerBuffer is how much of a footer is held at once; a multiple of entrySize.
const footerBuffer = 4096 * entrySize

// writeFooter writes footer and trailer at off or the next multiple of 8, and returns where they end.
func writeFooter(
	w io.WriterAt, id ID, off int64, recs []Record, sealed time.Time,
) (t Totals, end int64, err error) {
	start := roundUp(off)
	off = start
	sum := uint32(0)
	buf := make([]byte, 0, min(footerBuffer, len(recs)*entrySize))
	flush := func() error {
		_, err := w.WriteAt(buf, off)
		off += int64(len(buf))
		sum = crc32.Update(sum, castagnoli, buf)
		buf = buf[:0]
		return err
	}
	for i := range recs {
		r := &recs[i]
		t.Count(r)
		buf = append(buf, r.Hash[:]...)
		buf = le.AppendUint64(buf, uint64(r.Off))
		buf = le.AppendUint32(buf, r.Stored)
		buf = le.AppendUint32(buf, r.Raw)
		buf = append(buf, byte(r.Kind), r.Codec, 0, 0, 0, 0, 0, 0)
		if len(buf) == footerBuffer {
			if err := flush(); err != nil {
				return t, off, err
			}
		}
	}
	if len(buf) > 0 {
		if err := flush(); err != nil {
			return t, off, err
		}
	}
	p := make([]byte, trailerSize)
	copy(p, trailerMagic[:])
	le.PutUint16(p[8:], Version)
	le.PutUint32(p[12:], id.Number)
	copy(p[16:], id.Store[:])
	le.PutUint64(p[32:], uint64(start))
	le.PutUint64(p[40:], uint64(len(recs)))
	for i, c := range []Tally{t.Chunks, t.Lists, t.Manifests, t.Others} {
		le.PutUint64(p[48+24*i:], uint64(c.Records))
		le.PutUint64(p[56+24*i:], uint64(c.Raw))
		le.PutUint64(p[64+24*i:], uint64(c.Stored))
	}
	if !sealed.IsZero() {
		le.PutUint64(p[144:], uint64(sealed.Unix()))
	}
	le.PutUint32(p[152:], sum)
	le.PutUint32(p[156:], crc(p[:156]))
	_, err = w.WriteAt(p, off)
	return t, off + trailerSize, err
}

// Footer is the checked trailer of a sealed segment.
type Footer struct {
	Totals
	Records int64
	Sealed  time.Time // zero: not known
	sum     uint32
	// off is where the first entry is: FileHeaderSize <= off, and off + Records*entrySize + trailerSize is
	// the file's size.
	off int64
}

// ReadFooter reads the trailer of a file of size bytes, not yet the footer itself. The error is ErrUnsealed
// when there is no intact one.
func ReadFooter(f io.ReaderAt, size int64, id ID) (*Footer, error) {
	if size < FileHeaderSize+trailerSize {
		return nil, ErrUnsealed
	}
	p := make([]byte, trailerSize)
	if err := readFull(f, p, size-trailerSize); err != nil {
		return nil, err
	}
	if [8]byte(p[:8]) != trailerMagic || le.Uint32(p[156:]) != crc(p[:156]) {
		return nil, ErrUnsealed
	}
	if err := checkVersion(le.Uint16(p[8:])); err != nil {
		return nil, fmt.Errorf("trailer: %w", err)
	}
	if err := checkID(p[12:32], id); err != nil {
		return nil, err
	}
	t := &Footer{off: int64(le.Uint64(p[32:])), Records: int64(le.Uint64(p[40:])), sum: le.Uint32(p[152:])}
	if at := int64(le.Uint64(p[144:])); at > 0 {
		t.Sealed = time.Unix(at, 0)
	}
	for i, c := range []*Tally{&t.Chunks, &t.Lists, &t.Manifests, &t.Others} {
		c.Records = int64(le.Uint64(p[48+24*i:]))
		c.Raw = int64(le.Uint64(p[56+24*i:]))
		c.Stored = int64(le.Uint64(p[64+24*i:]))
	}
	if t.off < FileHeaderSize || t.off%align != 0 || t.Records < 0 || t.Records > size/entrySize ||
		t.off != size-trailerSize-t.Records*entrySize {
		return nil, fmt.Errorf("trailer: lengths disagree: %w", ErrUnsealed)
	}
	return t, nil
}

// Start is the offset at which the footer begins: all records lie before it.
func (t *Footer) Start() int64 { return t.off }

// Each calls fn with the entry of each record, by ascending offset. It returns ErrUnsealed when the footer is
// damaged, as a rule before any call. An error of fn, which keeps no pointer, ends it.
func (t *Footer) Each(f io.ReaderAt, fn func(*Record) error) error {
	// It reads the footer twice, so that it need not keep it: first to check all of it.
	sum := uint32(0)
	if err := t.blocks(f, func(p []byte) error {
		sum = crc32.Update(sum, castagnoli, p)
		return nil
	}); err != nil {
		return err
	}
	if sum != t.sum {
		return fmt.Errorf("footer: %w", ErrUnsealed)
	}
	next := int64(FileHeaderSize)
	var r Record
	return t.blocks(f, func(p []byte) error {
		for ; len(p) > 0; p = p[entrySize:] {
			r = Record{
				Hash:   cas.Hash(p[:32]),
				Off:    int64(le.Uint64(p[32:])),
				Stored: le.Uint32(p[40:]),
				Raw:    le.Uint32(p[44:]),
				Kind:   cas.Kind(p[48]),
				Codec:  p[49],
			}
			if r.Off < next || r.Off > t.off || r.Off%align != 0 ||
				r.Raw > cas.MaxChunk || r.Stored > cas.MaxChunk || r.End() > t.off {
				return fmt.Errorf("footer entry at %d: %w", r.Off, ErrUnsealed)
			}
			next = r.End()
			if err := fn(&r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *Footer) blocks(f io.ReaderAt, fn func([]byte) error) error {
	left := t.Records * entrySize
	buf := make([]byte, min(left, footerBuffer))
	for off := t.off; left > 0; {
		p := buf[:min(left, footerBuffer)]
		if err := readFull(f, p, off); err != nil {
			return err
		}
		if err := fn(p); err != nil {
			return err
		}
		off += int64(len(p))
		left -= int64(len(p))
	}
	return nil
}

// readFull fills p from off. The end of the file is io.ErrUnexpectedEOF.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
