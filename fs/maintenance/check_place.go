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

// repairEvict is the mend of a local copy that is not the manifest's: it is evicted.
const repairEvict = "evict"

// inPlace compares the local copy of a packed file, which reads trust, with its manifest. A file that is
// changed or evicted meanwhile is passed over.
func (c *check) inPlace(ctx context.Context, p string, n *names.Node) error {
	ps, f := c.ps, n.File()
	f.Lock()
	was := f.StateLocked()
	if was.Record.Summed {
		f.Unlock()
		return c.plain(ctx, p, n)
	}
	var raw *os.File
	var err error
	if was.Resident() && !was.Hydrating {
		raw, err = n.File().OpenQuietly()
	}
	f.Unlock()
	if err != nil || raw == nil {
		return nil // the file was looked at just now
	}
	defer raw.Close()
	m, err := ps.Assemble.Manifest(was.Record.Manifest)
	if err != nil {
		return nil // told of already
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
	if is := f.StateLocked(); is.Record.Manifest == was.Record.Manifest && !is.Record.Hollow &&
		is.Gen == was.Gen {
		c.problem(control.Problem{Path: p, What: fmt.Sprintf("the local copy is damaged at %d: %v", at, err), Repair: repairEvict})
	}
	return nil
}

// plain compares a plain file with its checksum. One that was written since, or whose checksum a power cut
// has made doubtful, is passed over.
func (c *check) plain(ctx context.Context, p string, n *names.Node) error {
	ps, f := c.ps, n.File()
	if c.o.Subset > 0 && c.o.Subset < 1 && rand.Float64() >= c.o.Subset {
		return nil
	}
	var rec tree.Record
	var gen uint64
	holds := func() bool { // f.mu is held
		var st unix.Stat_t
		is := f.StateLocked()
		return is.Record == rec && is.Gen == gen && n.Stat(&st) == nil && content.SumHolds(&rec, &st)
	}
	f.Lock()
	is := f.StateLocked()
	rec, gen = is.Record, is.Gen
	var raw *os.File
	var err error
	if rec.Summed && holds() {
		raw, err = n.File().OpenQuietly()
	}
	f.Unlock()
	if err != nil || raw == nil {
		return nil // the file was looked at just now
	}
	defer raw.Close()
	h, size, err := content.SumOf(ctx, raw)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.out.ReadBytes += size
	if err == nil && h == rec.Sum {
		c.out.Verified++
		return nil
	}
	if err == nil {
		err = fmt.Errorf("its bytes are not those of its checksum: restore the file from a copy, or write it again: %w", cas.ErrCorrupt)
	}
	f.Lock()
	defer f.Unlock()
	if holds() && rec.Epoch == ps.Epoch() {
		c.problem(control.Problem{Path: p, What: err.Error()})
	}
	return nil
}

// compare reads every chunk that lies whole in raw, and zeros where the manifest has zeros. It returns where
// the first difference is.
func (c *check) compare(ctx context.Context, raw io.ReaderAt, m *manifest.Manifest) (int64, error) {
	var buf []byte
	read := func(off, size int64) ([]byte, error) {
		if int64(cap(buf)) < size {
			buf = make([]byte, size)
		}
		k, err := raw.ReadAt(buf[:size], off)
		if int64(k) == size {
			return buf[:size], nil
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	zeros := make([]byte, cas.ChunkSize)
	var off int64
	for _, e := range m.Extents {
		start := off
		off += e.Len
		if e.Object < 0 {
			for at := start; at < off; at += cas.ChunkSize {
				if err := ctx.Err(); err != nil {
					return at, err
				}
				size := min(off-at, cas.ChunkSize)
				b, err := read(at, size)
				if err != nil {
					return at, err
				}
				if !bytes.Equal(b, zeros[:size]) {
					return at, cas.ErrCorrupt
				}
			}
			continue
		}
		spans, err := m.Objects[e.Object].Spans(c.ps.Store.Get)
		if err != nil {
			continue // told of already
		}
		var in int64 // in the object
		for _, s := range spans {
			from, size := in, int64(s.Len)
			in += size
			if from < e.ObjOff || from+size > e.ObjOff+e.Len || c.o.Subset > 0 && c.o.Subset < 1 &&
				rand.Float64() >= c.o.Subset {
				continue
			}
			if err := ctx.Err(); err != nil {
				return start, err
			}
			at := start + from - e.ObjOff
			b, err := read(at, size)
			if err != nil {
				return at, err
			}
			if cas.Sum(b) != s.Hash {
				return at, cas.ErrCorrupt
			}
			c.out.ReadRecords++
			c.out.ReadBytes += size
		}
	}
	return 0, nil
}
