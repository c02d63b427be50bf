package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/index/manifest"
)

// repairEvict is the repair of a local copy that differs from the manifest: it is dropped.
const repairEvict = "evict"

// local checks the bytes of a resident or plain file, which reads trust: a local copy against its manifest, a
// plain file against its checksum. A file that is changed or evicted meanwhile is passed over.
func (c *check) local(ctx context.Context, path string, n *names.Node) error {
	p, f := c.passes, n.File()
	f.Lock()
	was := f.StateLocked()
	if was.Record.Summed {
		f.Unlock()
		return c.plain(ctx, path, n)
	}
	var raw *os.File
	var err error
	if was.Resident() && !was.Hydrating {
		raw, err = n.File().OpenQuietly()
	}
	f.Unlock()
	if err != nil || raw == nil {
		return nil // check.file reported it
	}
	defer raw.Close()
	m, err := p.Assemble.Manifest(was.Record.Manifest)
	if err != nil {
		return nil // check.file reported it
	}
	at, err := c.compare(ctx, raw, m)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		return nil
	}
	f.Lock()
	defer f.Unlock()
	is := f.StateLocked()
	if is.Record.Manifest == was.Record.Manifest && !is.Record.Hollow && is.Gen == was.Gen {
		what := fmt.Sprintf("the local copy is damaged at %d: %v", at, err)
		c.problem(control.Problem{Path: path, What: what, Repair: repairEvict, Data: true})
	}
	return nil
}

// plain compares a plain file with its checksum. A file that was written since, or whose checksum a power cut
// made doubtful, is passed over.
func (c *check) plain(ctx context.Context, path string, n *names.Node) error {
	p, f := c.passes, n.File()
	if c.skips() {
		return nil
	}
	var rec tree.Record
	var gen uint64
	holdsLocked := func() bool { // File.mu is held
		var st unix.Stat_t
		is := f.StateLocked()
		return is.Record == rec && is.Gen == gen && n.Stat(&st) == nil && content.SumHolds(&rec, &st)
	}
	f.Lock()
	is := f.StateLocked()
	rec, gen = is.Record, is.Gen
	var raw *os.File
	var err error
	if rec.Summed && holdsLocked() {
		raw, err = n.File().OpenQuietly()
	}
	f.Unlock()
	if err != nil || raw == nil {
		return nil // check.file reported it
	}
	defer raw.Close()
	h, size, err := content.SumOf(ctx, raw)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.count(func() { c.out.ReadBytes += size })
	if err == nil && h == rec.Sum {
		c.count(func() { c.out.Verified++ })
		return nil
	}
	if err == nil {
		err = fmt.Errorf(
			"its bytes are not those of its checksum: restore the file from a copy, or write it again: %w",
			cas.ErrCorrupt)
	}
	f.Lock()
	defer f.Unlock()
	if holdsLocked() && rec.Epoch == p.Epoch() {
		c.problem(control.Problem{Path: path, What: err.Error(), Data: true})
	}
	return nil
}

// skips draws whether the next thing is left out, since only a part of the data is read.
func (c *check) skips() bool { return c.samples() && rand.Float64() >= c.o.Subset }

// compare reads every chunk that lies whole in raw, and zeros where the manifest has zeros. It returns the
// offset of the first difference.
func (c *check) compare(ctx context.Context, raw io.ReaderAt, m *manifest.Manifest) (int64, error) {
	r := &reader{raw: raw}
	var off int64
	last := int32(-1) // the object whose chunks spans are
	var spans []manifest.Span
	for _, e := range m.Extents {
		start := off
		off += e.Len
		var at int64
		var err error
		if e.Object < 0 {
			at, err = r.zeros(ctx, start, off)
		} else {
			if e.Object != last { // many short extents may lie in one
				last = e.Object
				spans, _ = m.Objects[last].Spans(c.passes.Store.Get) // check.object reported the error
			}
			at, err = c.same(ctx, r, spans, e, start)
		}
		if err != nil {
			return at, err
		}
	}
	return 0, nil
}

// same compares the chunks of an object that lie whole in the extent e, which begins at start. It returns the
// offset of the first difference.
func (c *check) same(
	ctx context.Context, r *reader, spans []manifest.Span, e manifest.Extent, start int64,
) (int64, error) {
	var in int64 // in the object
	for _, s := range spans {
		from, size := in, int64(s.Len)
		in += size
		if from < e.ObjOff || from+size > e.ObjOff+e.Len || c.skips() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return start, err
		}
		at := start + from - e.ObjOff
		b, err := r.read(at, size)
		if err != nil {
			return at, err
		}
		if cas.Sum(b) != s.Hash {
			return at, cas.ErrCorrupt
		}
		c.count(func() {
			c.out.ReadRecords++
			c.out.ReadBytes += size
		})
	}
	return 0, nil
}

// reader reads ranges of a file into one buffer.
type reader struct {
	raw io.ReaderAt
	buf []byte
}

// read returns the bytes of a range, until the next call; io.ErrUnexpectedEOF when the file ends before it.
func (r *reader) read(off, size int64) ([]byte, error) {
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	k, err := r.raw.ReadAt(r.buf[:size], off)
	if int64(k) == size {
		return r.buf[:size], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// noData is a chunk of zeros.
var noData [cas.ChunkSize]byte

// zeros looks whether the bytes in [from, to) are zero. It returns where one of ChunkSize bytes is not.
func (r *reader) zeros(ctx context.Context, from, to int64) (int64, error) {
	for at := from; at < to; at += cas.ChunkSize {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		size := min(to-at, cas.ChunkSize)
		b, err := r.read(at, size)
		if err != nil {
			return at, err
		}
		if !bytes.Equal(b, noData[:size]) {
			return at, cas.ErrCorrupt
		}
	}
	return 0, nil
}
