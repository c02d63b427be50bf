// Package archive lays out tar files and zips by what lies in them.
//
// Each entry that is stored as it is gets the layout that it would have as a file of its own, moved to its
// place: equal tensors meet whether a checkpoint lies in a folder or in an archive. Tensors are called
// ENTRY/NAME. Everything between entries, entries that are compressed, and entries that no parser knows are
// Blob.
//
//	tar   | header 512 | entry's bytes, to a multiple of 512 with zeros | header | … | zeros |
//	zip   see package zipdir
//
// The layout is partial, since an archive may hold anything else, but for Keras's .keras:
// model.weights.h5 between two texts.
//
// An archive in which no parser knows any entry is none for this package: it is better off as one Blob.
// Archives in archives are followed three deep.
//
// # What is recognised
//
//	zip   what package zipdir knows; its rules hold
//	tar   ustar, pax and GNU headers as archive/tar reads them, uncompressed; sparse entries are Blob
//
// archive/tar is given a reader that seeks over entries, so that an archive is read in time linear in the
// number of its entries and not of its bytes. At most 262,144 entries, 1,048,576 regions and as many tensors,
// and 64 MiB of tensors' names.
package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

const (
	maxEntries = 1 << 18
	maxParts   = 1 << 20
	maxNames   = 64 << 20
	// smallest is the length from which on an entry is looked at.
	smallest = 16
)

func reject(format string, args ...any) error {
	return fmt.Errorf("archive: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// builder puts the entries' layouts together. Entries come in the order of their bytes.
type builder struct {
	r      io.ReaderAt
	detect formats.Detect
	layout *formats.Layout
	names  int
	known  bool
}

// add appends the n bytes at off, an entry called name.
func (b *builder) add(name string, off, n int64) error {
	l := b.layout
	l.Fill(off)
	if n < smallest || !utf8.ValidString(name) {
		return nil
	}
	inner, err := b.detect(io.NewSectionReader(b.r, off, n), n)
	if err != nil {
		return err
	}
	if inner.Format == "blob" {
		l.Fill(off + n)
		return nil
	}
	b.known = true
	for i := range inner.Tensors {
		b.names += len(name) + 1 + len(inner.Tensors[i].Name)
	}
	if b.names > maxNames || len(l.Regions)+len(inner.Regions) > maxParts ||
		len(l.Tensors)+len(inner.Tensors) > maxParts {
		return reject("more than %d regions or tensors, or %d bytes of names", maxParts, maxNames)
	}
	l.Place(inner, name+"/")
	return nil
}

func (b *builder) finish(size int64) (*formats.Layout, error) {
	if !b.known {
		return nil, reject("nothing known in it")
	}
	b.layout.Fill(size)
	return b.layout, nil
}

// ZipFormat is the entry of zips in the table of formats.
var ZipFormat = formats.Format{
	Parser: Zip{},
	Sniff:  zipdir.Sniff,
	Names:  []formats.Name{{Name: Zip{}.Name()}},
}

// Zip is the parser of zips. Detect finds the layout of an entry, and fails with errors of the reader's only.
type Zip struct{ Detect formats.Detect }

// Name returns "zip".
func (Zip) Name() string { return "zip" }

// Within is a formats.Archive's.
func (Zip) Within(detect formats.Detect) formats.Parser { return Zip{Detect: detect} }

// Parse returns the layout of a zip in which something is known.
func (z Zip) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	records, err := zipdir.Read(r, size)
	if err != nil {
		return nil, err
	}
	zipdir.SortByOffset(records)
	seen := make(map[string]bool, len(records))
	b := builder{r: r, detect: z.Detect, layout: &formats.Layout{Format: z.Name(), Partial: !keras(records)}}
	for i := range records {
		rec := &records[i]
		if seen[rec.Name] {
			return nil, reject("two entries called %.64q", rec.Name)
		}
		if seen[rec.Name] = true; !rec.Stored() {
			continue
		}
		if err := b.add(rec.Name, rec.Off, rec.Len); err != nil {
			return nil, err
		}
	}
	return b.finish(size)
}

// keras reports whether the entries are those of Keras's model.save: weights and two texts, so that all
// tensors are the weights'.
func keras(records []zipdir.Record) bool {
	weights := false
	for i := range records {
		switch records[i].Name {
		case "model.weights.h5":
			weights = records[i].Stored()
		case "config.json", "metadata.json":
		default:
			return false
		}
	}
	return weights
}

// TarFormat is the entry of tar files in the table of formats.
var TarFormat = formats.Format{
	Parser: Tar{},
	Sniff:  sniffTar,
	Names:  []formats.Name{{Name: Tar{}.Name()}},
}

// Tar is the parser of tar files. Detect finds the layout of an entry, and fails with errors of the reader's
// only.
type Tar struct{ Detect formats.Detect }

// Name returns "tar".
func (Tar) Name() string { return "tar" }

// Within is a formats.Archive's.
func (Tar) Within(detect formats.Detect) formats.Parser { return Tar{Detect: detect} }

const (
	tarMagic   = "ustar"
	tarMagicAt = 257
	tarBlock   = 512
)

// sniffTar reports whether a file of size bytes that starts with p may be a tar file.
func sniffTar(p []byte, size int64) bool {
	return size >= 2*tarBlock && len(p) >= tarMagicAt+len(tarMagic) &&
		string(p[tarMagicAt:tarMagicAt+len(tarMagic)]) == tarMagic
}

// Parse returns the layout of a tar file in which something is known.
func (t Tar) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	head := make([]byte, min(size, tarBlock))
	if err := formats.ReadFull(r, head, 0); err != nil {
		return nil, err
	}
	if !sniffTar(head, size) {
		return nil, reject("no tar")
	}
	src := &source{r: r, size: size}
	tr := tar.NewReader(src)
	seen := make(map[string]bool)
	b := builder{r: r, detect: t.Detect, layout: &formats.Layout{Format: t.Name(), Partial: true}}
	for {
		h, err := tr.Next()
		if src.err != nil {
			return nil, src.err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, reject("%v", err)
		}
		if len(seen) == maxEntries {
			return nil, reject("more than %d entries", maxEntries)
		}
		// A sparse entry is shorter in the file than Size says; it is told by its type or by its pax records.
		if h.Typeflag != tar.TypeReg || sparse(h) {
			continue
		}
		if src.pos+h.Size > size || h.Size < 0 {
			return nil, reject("entry %.64q: reaches past the file", h.Name)
		}
		if seen[h.Name] { // appended later: tar takes the last, and we can't say which that is
			return nil, reject("two entries called %.64q", h.Name)
		}
		seen[h.Name] = true
		if err := b.add(h.Name, src.pos, h.Size); err != nil {
			return nil, err
		}
	}
	return b.finish(size)
}

func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// source is what archive/tar reads and seeks in. It notes where it is, and the file's own first error.
type source struct {
	r    io.ReaderAt
	size int64
	pos  int64
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n := min(int64(len(p)), s.size-s.pos)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := formats.ReadFull(s.r, p[:n], s.pos); err != nil {
		if s.err == nil {
			s.err = err
		}
		return 0, err
	}
	s.pos += n
	return int(n), nil
}

func (s *source) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += s.pos
	case io.SeekEnd:
		off += s.size
	}
	if off < 0 {
		return 0, errors.New("archive: seek before the start")
	}
	s.pos = off
	return off, nil
}
